"""The program `edgedraft`, also as `python -m edgedraft`."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def run() -> int:
    """Load the commands and run one. Ctrl-C while they load is no fault of anybody's either."""
    try:
        from edgedraft.cli.app import main

        return main()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
