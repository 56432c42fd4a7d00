"""Public tools for tests: a link emulator (`link`) and conformance suites for back ends (`suites`, needs pytest)."""

from edgedraft.testing.link import LinkEmulator, RunningLink, running_link
from edgedraft.testing.link_schedule import LinkDirection, LinkProfile

__all__ = ["LinkDirection", "LinkEmulator", "LinkProfile", "RunningLink", "running_link"]
