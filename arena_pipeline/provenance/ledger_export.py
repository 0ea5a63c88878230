"""The ledger as a file for committing: JSON lines, each bound to the one before it by hash.

A line is ``{"opening": {...}, "previous": sha256, "sha256": sha256}``; the last one, ``{"openings": count, ...}``,
makes a cut-off file visible. Every line is canonical JSON, so that an export is a pure function of its openings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from arena_pipeline.errors import ArenaError, IntegrityError
from arena_pipeline.provenance.files import write_text
from arena_pipeline.provenance.hashing import canonical_json, sha256_bytes, sha256_json
from arena_pipeline.provenance.ledger import COLUMNS, Opening

_FORMAT = "arena-ledger-export-v1"
_NO_LINE = "no such line"


def export_openings(openings: Iterable[Opening], path: Path) -> None:
    """Write openings, in the order given, as a hash-chained file."""
    write_text(path, "".join(_lines(openings)))


def verify_export(path: Path) -> list[Opening]:
    """Read an export and prove it; ``IntegrityError`` names the first line that is not as it was written.

    This finds accidents and edits of single lines. Only the commit that holds the file, or a signature, speaks against
    somebody who writes all of it anew.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ArenaError(f"{path}: no such file") from None
    *ended, rest = data.split(b"\n")
    found = [line + b"\n" for line in ended] + ([rest] if rest else [])
    openings = [_opening(line, path, number) for number, line in enumerate(found[:-1], start=1)]
    expected = [line.encode() for line in _lines(openings)]
    for number, (wanted, line) in enumerate(zip_longest(expected, found), start=1):
        if wanted != line:
            raise IntegrityError(f"{path}, line {number}", _hash(wanted), _hash(line))
    return openings


def _lines(openings: Iterable[Opening]) -> Iterator[str]:
    previous, count = "0" * 64, 0
    for opening in openings:
        count += 1
        line, previous = _chained({"opening": opening.to_dict(), "previous": previous})
        yield line
    yield _chained({"format": _FORMAT, "openings": count, "previous": previous})[0]


def _chained(content: dict[str, Any]) -> tuple[str, str]:
    sha256 = sha256_json(content)
    return canonical_json(content | {"sha256": sha256}) + "\n", sha256


def _opening(line: bytes, path: Path, number: int) -> Opening:
    try:
        values = json.loads(line)["opening"]
        if set(values) != set(COLUMNS):
            raise ValueError
        return Opening(**values)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IntegrityError(f"{path}, line {number}", "of an opening", f"{_hash(line)}, which is none") from None


def _hash(line: bytes | None) -> str:
    return _NO_LINE if line is None else sha256_bytes(line)
