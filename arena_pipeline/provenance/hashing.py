"""The project's one hashing function, SHA-256, over bytes, text, canonical JSON, files and directory trees."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_sha256(value: object) -> bool:
    """Whether a value is a text of 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


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


def tree_sha256(hashes: dict[str, str]) -> str:
    """One hash for a tree of files: the SHA-256 of the canonical JSON of {file: SHA-256}, as ``hash_tree`` maps it."""
    return sha256_json(hashes)
