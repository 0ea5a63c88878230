"""Directories compared, byte for byte, with the hashes recorded for their files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena_pipeline.errors import IntegrityError
from arena_pipeline.provenance.hashing import sha256_file

NO_FILE = "no such file"


def _entries(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield (POSIX path relative to the directory, path) of everything below it that is not a directory, sorted."""
    for parent, directories, files in os.walk(directory):
        directories.sort()
        links = [name for name in directories if (Path(parent) / name).is_symlink()]
        for name in sorted(files + links):
            path = Path(parent) / name
            yield path.relative_to(directory).as_posix(), path


def _irregular(path: Path) -> str | None:
    """Say what a path is if it is no regular file; links are not followed."""
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        return None
    return "a symbolic link" if stat.S_ISLNK(mode) else "a special file"


def hash_tree(directory: Path) -> dict[str, str]:
    """Map each file below a directory, by its relative POSIX path, to its SHA-256.

    Raises ``IntegrityError`` for a symbolic link (its target lies outside what the hash covers) and for a pipe, socket
    or device.
    """
    hashes = {}
    for name, path in _entries(directory):
        if found := _irregular(path):
            raise IntegrityError(path, "of a regular file", found, "copy the file itself to this place")
        hashes[name] = sha256_file(path)
    return hashes


def verify_tree(directory: Path, expected: Mapping[str, str], advice: str = "") -> None:
    """Re-hash every file of a directory and compare with ``expected`` (POSIX relative path -> SHA-256).

    Raises ``IntegrityError``, naming the first file that is changed, missing, added, a symbolic link or a special file.
    """
    if not directory.is_dir() or directory.is_symlink():
        found = "a symbolic link" if directory.is_symlink() else "no such directory"
        raise IntegrityError(directory, "of a directory with the recorded files", found, advice)
    present = dict(_entries(directory))
    for name, path in present.items():
        if odd := _irregular(path):
            raise IntegrityError(path, expected.get(name, NO_FILE), odd, advice)
    for name, recorded in sorted(expected.items()):
        found = sha256_file(present[name]) if name in present else NO_FILE
        if found != recorded:
            raise IntegrityError(directory / name, recorded, found, advice)
    for name, path in present.items():
        if name not in expected:
            raise IntegrityError(path, NO_FILE, sha256_file(path), advice)


def flush(path: Path) -> None:
    """Have a file, or a directory's list of names, put on the disk before anything refers to it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(directory: Path) -> None:
    """``flush`` a directory and everything below it."""
    for path in (directory, *directory.rglob("*")):
        flush(path)
