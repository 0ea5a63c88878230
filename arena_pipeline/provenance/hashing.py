"""The project's one hashing function, SHA-256, over bytes, text, canonical JSON, files and directory trees."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from arena_pipeline.errors import ArenaError

_CHUNK = 1 << 20


def canonical_json(value: Any) -> str:
    """Compact, key-sorted, ASCII-escaped JSON; NaN and infinities raise ``ValueError``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_bytes(data: bytes) -> str:
    """Hex SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_text(text: str) -> str:
    """Hex SHA-256 of a text's UTF-8 bytes."""
    return sha256_bytes(text.encode("utf-8"))


def sha256_json(value: Any) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return sha256_text(canonical_json(value))


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def tree_hashes(directory: Path) -> dict[str, str]:
    """Map each file below a directory, by its POSIX path relative to it, to its SHA-256.

    Raises ``ArenaError`` for a symbolic link: a link's target lies outside what the hash covers.
    """
    hashes: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            raise ArenaError(f"{path}: symbolic links are not allowed inside a hashed directory; copy the file instead")
        if path.is_file():
            hashes[path.relative_to(directory).as_posix()] = sha256_file(path)
    return hashes


def tree_sha256(hashes: dict[str, str]) -> str:
    """One hash for a tree: the SHA-256 of the canonical JSON of its ``tree_hashes``."""
    return sha256_json(hashes)
