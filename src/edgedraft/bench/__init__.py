"""Measurements that anybody can run again, one command per table."""
