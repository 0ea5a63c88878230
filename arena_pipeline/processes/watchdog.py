"""The end of processes whose launcher is gone: a pipe that only the launcher holds open, read by a thread.

``python -m arena_pipeline.processes.watchdog MODULE ARGUMENTS`` runs a module so, with standard input as the pipe.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def watch_parent(descriptor: int) -> None:
    """From now on, when what ``descriptor`` reads from ends, kill this process's whole group.

    The launcher holds the other end and writes nothing more: the end comes with the launcher's death, however it died.
    The process must lead its own group.
    """
    if os.getpgrp() != os.getpid():
        raise RuntimeError("the watchdog would kill the launcher too: start the child in a session of its own")
    threading.Thread(target=_wait, args=(descriptor,), name="parent watchdog", daemon=True).start()


def _wait(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run a module as ``python -m`` does, with nothing to read on standard input."""
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    watch_parent(descriptor)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
