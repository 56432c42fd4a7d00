"""Scenarios and recorded texts that come with the package."""
