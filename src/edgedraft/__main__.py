"""`python -m edgedraft` is the same program as `edgedraft`."""

from __future__ import annotations

import sys

from edgedraft.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
