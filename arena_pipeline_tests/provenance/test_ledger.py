"""The ledger, on SQLite and on a real PostgreSQL: a sealed set opens once for each experiment, whoever races for it."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE

import pytest
import sqlalchemy as sa

from arena_pipeline.errors import ConfigError, LedgerError, SealedSetRefused
from arena_pipeline.provenance import ledger as ledger_module
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.provenance.ledger import POSTGRES_SCHEMA, Ledger, Opening, sealed_set_sha256, sqlite_url
from arena_pipeline.provenance.locks import exclusive_lock

SEALED = sealed_set_sha256([3, 1, 2], "f" * 64)
MANY = 4


def sha(name: str) -> str:
    return sha256_text(name)


RESULT = {name: sha(name) for name in ("responses", "rows", "summaries", "verdict")}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database in which nothing of the ledger exists yet."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "a storage, with spaces" / "ledger.sqlite").render_as_string()
    address: str = request.getfixturevalue("postgres_cluster")
    with sa.create_engine(address, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text(f"DROP SCHEMA IF EXISTS {POSTGRES_SCHEMA} CASCADE"))
    return address


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger(url)


def open_set(ledger: Ledger, adapter: str, experiment: str = "tiny-cpu", run: str = "run-1") -> Opening:
    return ledger.open(SEALED, sha(experiment), experiment, sha(adapter), run)


def test_a_sealed_set_is_its_seeds_and_its_manifest() -> None:
    assert sealed_set_sha256([1, 2, 3, 3], "f" * 64) == SEALED
    assert len({SEALED, sealed_set_sha256([1, 2], "f" * 64), sealed_set_sha256([1, 2, 3], "e" * 64)}) == 3


def test_the_first_opening_is_written_and_dated(ledger: Ledger, url: str) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    opening = open_set(ledger, "first")
    assert (opening.outcome, opening.ordinal, opening.complete) == ("new", 1, False)
    written = datetime.fromisoformat(opening.opened_at)
    assert written.utcoffset() is not None
    assert before <= written <= datetime.now(UTC)
    assert Ledger(url).openings() == [opening]


def test_the_same_adapter_resumes_until_it_is_complete_and_is_reused_after(ledger: Ledger) -> None:
    first = open_set(ledger, "first")
    again = open_set(ledger, "first", run="run-2")
    assert (again.outcome, again) == ("resume", first)
    assert ledger.require(SEALED, sha("tiny-cpu"), sha("first")).outcome == "resume"
    done = ledger.complete(first, **RESULT)
    assert done.complete
    assert (done.responses_sha256, done.verdict_sha256) == (sha("responses"), sha("verdict"))
    reused = open_set(ledger, "first", run="run-3")
    assert (reused.outcome, reused) == ("reused", done)
    assert ledger.require(SEALED, sha("tiny-cpu"), sha("first")).outcome == "reused"


@pytest.mark.parametrize("complete", [False, True])
def test_another_adapter_is_refused_with_the_record_of_the_first(ledger: Ledger, complete: bool) -> None:
    first = open_set(ledger, "first", run="run-of-the-first")
    if complete:
        ledger.complete(first, **RESULT)
    for attempt in (
        lambda: open_set(ledger, "second"),
        lambda: ledger.require(SEALED, sha("tiny-cpu"), sha("second")),
        lambda: ledger.complete(Opening(**{**vars(first), "adapter_sha256": sha("second")}), **RESULT),
    ):
        with pytest.raises(SealedSetRefused) as caught:
            attempt()
        for part in (first.adapter_sha256, first.opened_at, first.run_id, first.experiment_name, sha("second")):
            assert part in str(caught.value)
    assert [row.adapter_sha256 for row in ledger.openings()] == [sha("first")]
    assert ledger.openings()[0].complete is complete


def test_nothing_plays_a_set_that_was_not_opened(ledger: Ledger) -> None:
    with pytest.raises(SealedSetRefused, match="not opened.*test_evaluation"):
        ledger.require(SEALED, sha("tiny-cpu"), sha("first"))
    open_set(ledger, "first", experiment="other")
    with pytest.raises(SealedSetRefused, match="not opened"):
        ledger.require(SEALED, sha("tiny-cpu"), sha("first"))


def test_a_completion_is_written_once(ledger: Ledger) -> None:
    opening = open_set(ledger, "first")
    done = ledger.complete(opening, **RESULT)
    assert ledger.complete(opening, **RESULT) == done
    for name in RESULT:
        with pytest.raises(LedgerError, match=f"{name}_sha256 {RESULT[name]}, found {sha('edited')}"):
            ledger.complete(opening, **(RESULT | {name: sha("edited")}))
    assert ledger.openings() == [done]


def test_openings_of_one_sealed_set_are_counted_across_experiments(ledger: Ledger) -> None:
    rows = [open_set(ledger, "same", experiment) for experiment in ("a", "b", "c")]
    elsewhere = ledger.open(sealed_set_sha256([9], "f" * 64), sha("a"), "a", sha("same"), "run-1")
    assert [row.ordinal for row in rows] == [1, 2, 3]
    assert elsewhere.ordinal == 1
    assert open_set(ledger, "same", "b").ordinal == 2
    assert ledger.openings(SEALED) == rows
    assert len(ledger.openings()) == 4


def test_the_database_itself_refuses_a_second_row(ledger: Ledger, url: str) -> None:
    first = open_set(ledger, "first")
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    for changed in ({"ordinal": 2}, {"experiment_identity": sha("other")}):
        with pytest.raises(sa.exc.IntegrityError, match=r"(?i)unique"), engine.begin() as connection:
            connection.execute(sa.insert(ledger.table).values(first.to_dict() | changed))


RACER = """
import sys
from arena_pipeline.errors import SealedSetRefused
from arena_pipeline.provenance.ledger import Ledger
url, *row = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    opening = Ledger(url).open(*row)
    print(opening.outcome, opening.adapter_sha256, opening.ordinal)
except SealedSetRefused as error:
    print("refused", error)
"""


def together(commands: list[list[str]]) -> list[str]:
    """Start processes, let all go on at the same moment once each said "ready", and return what they said then."""
    racers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) for command in commands]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    ended = [racer.communicate() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * len(racers), ended
    return [output for output, _ in ended]


def race(url: str, rows: list[tuple[str, str]]) -> list[list[str]]:
    """Let one process for each (experiment, adapter) open the set at the same moment; return the words each said."""
    command = [sys.executable, "-c", RACER, url, SEALED]
    entries = [
        [sha(experiment), experiment, sha(adapter), f"run-{number}"]
        for number, (experiment, adapter) in enumerate(rows)
    ]
    return [output.split() for output in together([[*command, *entry] for entry in entries])]


def test_of_many_adapters_at_once_exactly_one_wins(url: str) -> None:
    said = race(url, [("tiny-cpu", f"adapter-{number}") for number in range(MANY)])
    (winner,) = [words for words in said if words[0] == "new"]
    refused = [" ".join(words) for words in said if words[0] == "refused"]
    assert len(refused) == MANY - 1
    assert all(f"by adapter {winner[1]}" in text for text in refused)
    assert [row.adapter_sha256 for row in Ledger(url).openings()] == [winner[1]]


def test_of_many_runs_of_one_adapter_at_once_exactly_one_is_new(url: str) -> None:
    said = race(url, [("tiny-cpu", "adapter")] * MANY)
    assert sorted(words[0] for words in said) == ["new"] + ["resume"] * (MANY - 1)


def test_many_experiments_at_once_are_numbered_without_gap_or_repetition(url: str) -> None:
    said = race(url, [(f"experiment-{number}", "adapter") for number in range(MANY)])
    assert {words[0] for words in said} == {"new"}
    assert sorted(int(words[2]) for words in said) == list(range(1, MANY + 1))


def test_a_killed_writer_leaves_the_ledger_usable(url: str, ledger: Ledger) -> None:
    killed = """
import os, signal, sys
import sqlalchemy as sa
from arena_pipeline.provenance.ledger import Ledger
book = Ledger(sys.argv[1])
sa.event.listen(sa.Engine, "commit", lambda connection: os.kill(os.getpid(), signal.SIGKILL))
book.open(*sys.argv[2:])
"""
    row = [SEALED, sha("tiny-cpu"), "tiny-cpu", sha("killed"), "run-0"]
    assert subprocess.run([sys.executable, "-c", killed, url, *row]).returncode == -9
    assert ledger.openings() == []
    assert open_set(ledger, "first").ordinal == 1


def test_a_new_file_is_prepared_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SQLite refuses, at once, the slower of two that switch a new file to write-ahead logging. That race is too narrow
    # to be run; so this shows that a second process waits.
    file, waiting = tmp_path / "ledger.sqlite", threading.Event()

    def lock(path: Path, subject: str, on_wait: Callable[[str], None]) -> AbstractContextManager[None]:
        return exclusive_lock(path, subject, on_wait=lambda holder: waiting.set())

    monkeypatch.setattr(ledger_module, "exclusive_lock", lock)
    with ThreadPoolExecutor() as pool:
        with exclusive_lock(tmp_path / "ledger.sqlite.lock", "the ledger"):
            second = pool.submit(Ledger, sqlite_url(file))
            assert waiting.wait(timeout=60)
            assert file.read_bytes() == b""
        assert second.result().openings() == []


def test_a_reader_does_not_hold_a_writer_up(tmp_path: Path) -> None:
    ledger = Ledger(sqlite_url(tmp_path / "ledger.sqlite"))
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM sealed_set_openings").fetchone() == (0,)
        assert open_set(ledger, "first").outcome == "new"
        assert reader.execute("SELECT count(*) FROM sealed_set_openings").fetchone() == (0,)
    assert len(ledger.openings()) == 1


@pytest.mark.parametrize("field", range(5))
def test_an_opening_without_its_facts_is_refused(tmp_path: Path, field: int) -> None:
    row = [SEALED, sha("tiny-cpu"), "tiny-cpu", sha("first"), "run-1"]
    row[field] = ""
    ledger = Ledger(sqlite_url(tmp_path / "ledger.sqlite"))
    with pytest.raises(LedgerError, match="found ''|may be empty"):
        ledger.open(*row)
    with pytest.raises(LedgerError, match="verdict_sha256: found 'no hash'"):
        ledger.complete(open_set(ledger, "first"), **(RESULT | {"verdict": "no hash"}))


@pytest.mark.parametrize("address", ["", "sqlite://", "sqlite:///:memory:", "mysql://user:secret@host/db", "ledger"])
def test_an_address_that_keeps_nothing_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="allowed: sqlite:///FILE") as caught:
        Ledger(address)
    assert "secret" not in str(caught.value)


def test_a_database_that_does_not_answer_is_one_line_without_the_password(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(sqlite_url(tmp_path / "ledger.sqlite"))
    pytest.importorskip("psycopg", reason="the postgres extra is not installed")
    with pytest.raises(LedgerError, match="nothing was recorded") as caught:
        Ledger(f"postgresql://arena:secret@/arena?host={tmp_path}")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
