"""The `arena` command. Importing it, and `arena --help`, loads no library that a single command needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and exit: 0 done, 1 a check failed, 2 wrong usage, 130 interrupted."""
    from arena_pipeline.cli.application import run

    sys.exit(run(sys.argv[1:]))
