"""Thresholds found while decoding: a Gaussian process, searches over it, and the tuner that runs them online."""
