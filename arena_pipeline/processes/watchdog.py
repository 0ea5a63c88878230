"""The end of a child whose launcher is gone: a pipe that only the launcher holds open, read by a thread."""

from __future__ import annotations

import os
import signal
import threading


def watch_parent() -> None:
    """From now on, when standard input ends, kill this process's whole group.

    The launcher holds the other end and never writes: the end comes with the launcher's death, however it died. The
    process must lead its own group. Standard input itself becomes empty, so that nothing else reads the pipe.
    """
    if os.getpgrp() != os.getpid():
        raise RuntimeError("the watchdog would kill the launcher too: start the child in a session of its own")
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_wait, args=(descriptor,), name="parent watchdog", daemon=True).start()


def _wait(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    os.killpg(0, signal.SIGKILL)
