"""Exclusive locks between processes: held by the operating system, so that a killed holder never leaves one behind."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from arena_pipeline.errors import LockHeld


def lock_holder(path: Path) -> str:
    """Describe the process that wrote itself into a lock file, such as ``process 4711 on laptop``."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, which has not yet written its number"


@contextmanager
def exclusive_lock(path: Path, subject: str, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock ``path`` while the block runs; the file stays, only the lock on it counts.

    ``subject`` says in messages what is locked. Where the lock is taken, ``LockHeld`` names its holder at once; with
    ``on_wait``, that is called once with the holder and the lock is waited for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A lock of flock's kind belongs to this opening of the file: a second one within the same process conflicts too.
    with path.open("a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock_holder(path)
            if on_wait is None:
                raise LockHeld(f"{subject}: in use by {holder}; wait for it to finish, or stop it") from None
            on_wait(holder)
            fcntl.flock(stream, fcntl.LOCK_EX)
        stream.truncate(0)
        stream.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        stream.flush()
        try:
            yield
        finally:
            stream.truncate(0)
