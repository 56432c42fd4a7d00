"""Public tools for tests: a link emulator (`link`) and conformance suites for back ends (`suites`, needs pytest)."""

from edgedraft.sim.network import LinkDirection, LinkProfile
from edgedraft.testing.link import LinkEmulator, RunningLink, running_link

__all__ = ["LinkDirection", "LinkEmulator", "LinkProfile", "RunningLink", "running_link"]
