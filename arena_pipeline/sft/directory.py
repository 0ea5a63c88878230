"""A directory that appears whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.trees import flush


def refuse_existing(directory: Path) -> None:
    """Raise ``DatasetError`` if something is in the way; an empty directory is not."""
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise DatasetError(f"{directory}: exists and is not a directory; choose another place")
    if directory.is_dir() and any(directory.iterdir()):
        raise DatasetError(f"{directory}: is not empty, and is never overwritten; choose another place or remove it")


@contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """A directory beside ``directory`` to fill, which takes its name when the body ends without an exception.

    What an interrupted earlier build left beside it is removed. Raises ``DatasetError`` if ``directory`` exists and is
    not empty, now or at the end, or if another process is filling it.
    """
    refuse_existing(directory)
    directory = directory.resolve()
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        # The lock is on the directory itself: the system lets go of it when its holder ends, however it ends.
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DatasetError(f"{directory}: cannot be made ({error.strerror}); choose another place") from None
    try:
        if not _lock(descriptor, partial):
            raise DatasetError(f"{directory}: another process is building it; wait for it or choose another place")
        for left_over in partial.iterdir():
            left_over.unlink()
        try:
            yield partial
            for file in partial.iterdir():
                flush(file)
            os.fsync(descriptor)
            try:
                partial.rename(directory)
            except OSError as error:
                raise DatasetError(
                    f"{directory}: could not be put in place ({error.strerror}); it was left as it is"
                ) from None
            flush(directory.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> bool:
    """Lock the open directory; False if someone else has it, or has just renamed it or put another in its place."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), directory.stat())
    except OSError:
        return False
