"""The exported ledger: what is written is read back, and a change of any byte or line is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena_pipeline.errors import ArenaError, IntegrityError
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.provenance.ledger import Ledger, Opening, sqlite_url
from arena_pipeline.provenance.ledger_export import export_openings, verify_export


@pytest.fixture
def openings(tmp_path: Path) -> list[Opening]:
    ledger = Ledger(sqlite_url(tmp_path / "ledger.sqlite"))
    sealed, adapter = sha256_text("sealed"), sha256_text("adapter")
    rows = [ledger.open(sealed, sha256_text(name), name, adapter, f"run of {name}") for name in ("a", "b", "ü")]
    ledger.complete(rows[0], responses=adapter, rows=adapter, summaries=adapter, verdict=adapter)
    return ledger.openings()


def test_an_export_reads_back(openings: list[Opening], tmp_path: Path) -> None:
    path = tmp_path / "records" / "ledger.jsonl"
    export_openings(openings, path)
    assert verify_export(path) == openings
    assert len(path.read_text().splitlines()) == len(openings) + 1
    export_openings([], path)
    assert verify_export(path) == []
    with pytest.raises(ArenaError, match="no such file"):
        verify_export(tmp_path / "none.jsonl")


def test_any_flipped_byte_is_found(openings: list[Opening], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    export_openings(openings, path)
    original = path.read_bytes()
    for position in range(len(original)):
        line = original[:position].count(b"\n") + 1
        mask = (0x01, 0x20, 0x80)[position % 3]
        path.write_bytes(original[:position] + bytes([original[position] ^ mask]) + original[position + 1 :])
        with pytest.raises(IntegrityError) as caught:
            verify_export(path)
        assert caught.value.file == f"{path}, line {line}"


def test_missing_added_and_moved_lines_are_found(openings: list[Opening], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    export_openings(openings, path)
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (
        lines[1:],
        lines[:-1],
        lines[:1] + lines[2:],
        [lines[1], lines[0], *lines[2:]],
        [lines[0], *lines],
        [*lines, lines[-1]],
        [*lines, b"\n"],
        [*lines, b"x"],
        [*lines[:-1], lines[-1].rstrip(b"\n")],
        [],
    ):
        path.write_bytes(b"".join(changed))
        with pytest.raises(IntegrityError):
            verify_export(path)
