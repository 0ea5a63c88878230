"""The ledger of sealed-set openings (evaluation spec, "The sealed sets open once").

One row for each (sealed set, experiment identity), in a table of its own: a SQLite file beside the instance's database,
or the schema ``arena_ledger`` in PostgreSQL, so that nothing Dagster wipes or migrates reaches it. UNIQUE constraints,
not the code here, decide who was first. Whoever may write the database can forge the ledger; its committed exports
(``ledger_export``) are what shows that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import IntegrityError as UniqueViolation
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema, CreateTable

from arena_pipeline.errors import ConfigError, LedgerError, SealedSetRefused
from arena_pipeline.provenance.hashing import is_sha256, sha256_json
from arena_pipeline.provenance.locks import exclusive_lock

POSTGRES_SCHEMA = "arena_ledger"
_BUSY_SECONDS = 30
# Any constant: it keeps two processes from creating the schema at the same time.
_POSTGRES_CREATION_LOCK = 7_262_401

Outcome = Literal["new", "resume", "reused", "recorded"]


def sealed_set_sha256(test_seeds: Iterable[int], manifest_sha256: str) -> str:
    """Name of a sealed set: the hash of the test split's distinct seeds and of the sealed manifest's hash."""
    return sha256_json({"test_seeds": sorted(set(test_seeds)), "manifest_sha256": manifest_sha256})


def sqlite_url(path: Path) -> sa.URL:
    """Database address of a ledger file, such as ``storage/ledger.sqlite``."""
    return sa.URL.create("sqlite", database=str(path))


@dataclass(frozen=True)
class Opening:
    """One row of the ledger. Hashes are hex SHA-256, times are UTC in ISO 8601.

    ``ordinal`` counts the openings of this sealed set, 1 for the first; the k-th uses intervals at
    1 - 0.05 / k. ``outcome`` says what ``Ledger.open`` did:
    "new" (row written now), "resume" (same adapter, not complete), "reused" (same adapter, complete: return the
    recorded result, generate nothing); "recorded" for rows that were merely listed.
    """

    sealed_set: str
    experiment_identity: str
    experiment_name: str
    adapter_sha256: str
    run_id: str
    opened_at: str
    ordinal: int
    completed_at: str | None = None
    responses_sha256: str | None = None
    rows_sha256: str | None = None
    summaries_sha256: str | None = None
    verdict_sha256: str | None = None
    outcome: Outcome = field(default="recorded", compare=False)

    @property
    def complete(self) -> bool:
        """Whether the hashes of the result are recorded."""
        return self.completed_at is not None

    def to_dict(self) -> dict[str, Any]:
        """The row, column by column; without the outcome, which is no part of it."""
        return {name: getattr(self, name) for name in COLUMNS}


COLUMNS = tuple(column.name for column in fields(Opening) if column.name != "outcome")


def _table(schema: str | None) -> sa.Table:
    nullable = {"completed_at", "responses_sha256", "rows_sha256", "summaries_sha256", "verdict_sha256"}
    return sa.Table(
        "sealed_set_openings",
        sa.MetaData(schema=schema),
        *(sa.Column(name, sa.Integer if name == "ordinal" else sa.Text, nullable=name in nullable) for name in COLUMNS),
        sa.UniqueConstraint("sealed_set", "experiment_identity"),
        sa.UniqueConstraint("sealed_set", "ordinal"),
    )


class Ledger:
    """The ledger at a database address (SQLite file or PostgreSQL), created if absent. Safe for many processes.

    Every method raises ``LedgerError`` if the database does not answer.
    """

    def __init__(self, url: str | sa.URL) -> None:
        try:
            address = sa.make_url(url)
        except ArgumentError:
            raise ConfigError(
                "ledger: found no database address; allowed: sqlite:///FILE or postgresql://..."
            ) from None
        kind = address.get_backend_name()
        if kind not in ("sqlite", "postgresql") or not address.database or address.database == ":memory:":
            shown = address.render_as_string(hide_password=True)
            raise ConfigError(f"ledger: found address {shown}; allowed: sqlite:///FILE or postgresql://HOST/DATABASE")
        self.table = _table(POSTGRES_SCHEMA if kind == "postgresql" else None)
        self._shown = address.render_as_string(hide_password=True)
        self._engine = self._connect(address.set(drivername="postgresql+psycopg") if kind == "postgresql" else address)
        self._create()

    def open(
        self, sealed_set: str, experiment_identity: str, experiment_name: str, adapter_sha256: str, run_id: str
    ) -> Opening:
        """Open a sealed set for an experiment, before its first prompt is sent.

        Returns the row, with the outcome "new", "resume" or "reused". Raises ``SealedSetRefused``, naming the first
        record, if another adapter opened this set for this experiment.
        """
        _hashes(sealed_set=sealed_set, experiment_identity=experiment_identity, adapter_sha256=adapter_sha256)
        if not experiment_name or not run_id:
            raise LedgerError(
                f"experiment {experiment_name!r}, run {run_id!r}: an opening records both; none may be empty"
            )
        row = Opening(sealed_set, experiment_identity, experiment_name, adapter_sha256, run_id, _now(), ordinal=0)
        while True:
            try:
                with self._begin() as connection:
                    known = self._find(connection, sealed_set, experiment_identity)
                    if known is None:
                        last = sa.select(sa.func.coalesce(sa.func.max(self.table.c.ordinal), 0))
                        last = last.where(self.table.c.sealed_set == sealed_set)
                        row = replace(row, ordinal=connection.execute(last).scalar_one() + 1)
                        connection.execute(sa.insert(self.table).values(row.to_dict()))
            except UniqueViolation:
                # Another process wrote a row of this sealed set between our look and our insert: look again.
                continue
            return replace(row, outcome="new") if known is None else _same_adapter(known, adapter_sha256)

    def require(self, sealed_set: str, experiment_identity: str, adapter_sha256: str) -> Opening:
        """The row that this experiment opened with this adapter, outcome "resume" or "reused".

        Raises ``SealedSetRefused`` if there is none or if another adapter opened it.
        """
        with self._begin() as connection:
            known = self._find(connection, sealed_set, experiment_identity)
        if known is None:
            raise SealedSetRefused(
                f"sealed set {sealed_set} was not opened for experiment {experiment_identity}: "
                "materialize test_evaluation first, it opens the set"
            )
        return _same_adapter(known, adapter_sha256)

    def complete(self, opening: Opening, *, responses: str, rows: str, summaries: str, verdict: str) -> Opening:
        """Record the SHA-256 of what an opening led to.

        This happens once: the same hashes again change nothing, other hashes raise ``LedgerError``.
        """
        found = _hashes(
            responses_sha256=responses, rows_sha256=rows, summaries_sha256=summaries, verdict_sha256=verdict
        )
        table = self.table.c
        with self._begin() as connection:
            connection.execute(
                sa.update(self.table)
                .where(
                    table.sealed_set == opening.sealed_set,
                    table.experiment_identity == opening.experiment_identity,
                    table.adapter_sha256 == opening.adapter_sha256,
                    table.completed_at.is_(None),
                )
                .values(completed_at=_now(), **found)
            )
            recorded = self._find(connection, opening.sealed_set, opening.experiment_identity)
        if recorded is None:
            raise LedgerError(f"{self._shown}: no opening of {opening.sealed_set} to complete; was it replaced?")
        _same_adapter(recorded, opening.adapter_sha256)
        for name, value in found.items():
            if (earlier := getattr(recorded, name)) != value:
                raise LedgerError(
                    f"sealed set {opening.sealed_set}, experiment {recorded.experiment_name}: completed on "
                    f"{recorded.completed_at} with {name} {earlier}, found {value} now; restore the recorded files"
                )
        return recorded

    def openings(self, sealed_set: str | None = None) -> list[Opening]:
        """All rows, or those of one sealed set, by sealed set and ordinal."""
        query = sa.select(self.table).order_by(self.table.c.sealed_set, self.table.c.ordinal)
        if sealed_set is not None:
            query = query.where(self.table.c.sealed_set == sealed_set)
        with self._begin() as connection:
            return [Opening(**row) for row in connection.execute(query).mappings()]

    def _find(self, connection: sa.Connection, sealed_set: str, experiment_identity: str) -> Opening | None:
        table = self.table.c
        query = sa.select(self.table).where(
            table.sealed_set == sealed_set, table.experiment_identity == experiment_identity
        )
        row = connection.execute(query).mappings().one_or_none()
        return None if row is None else Opening(**row)

    def _connect(self, address: sa.URL) -> sa.Engine:
        if address.get_backend_name() == "sqlite":
            file = Path(str(address.database))
            file.parent.mkdir(parents=True, exist_ok=True)
            engine = sa.create_engine(address, poolclass=NullPool, connect_args={"timeout": _BUSY_SECONDS})
            sa.event.listen(engine, "connect", lambda connection, _: _prepare_sqlite(file, connection))
            sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            return engine
        try:
            return sa.create_engine(address, poolclass=NullPool)
        except ModuleNotFoundError:
            raise ConfigError('ledger: PostgreSQL needs a driver: pip install "arena-pipeline[postgres]"') from None

    def _create(self) -> None:
        with self._begin() as connection:
            schema = self.table.schema
            if schema is not None:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_POSTGRES_CREATION_LOCK)))
                if sa.inspect(connection).has_table(self.table.name, schema):
                    return
                connection.execute(CreateSchema(schema, if_not_exists=True))
            connection.execute(CreateTable(self.table, if_not_exists=True))

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        """A transaction, committed when the block ends."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except UniqueViolation:
            raise
        except DBAPIError as error:
            cause = " ".join(str(error.orig).split())
            raise LedgerError(f"ledger {self._shown}: {cause}; nothing was recorded, try again") from error


def _prepare_sqlite(file: Path, connection: sqlite3.Connection) -> None:
    # Transactions are begun by hand: the driver's own would begin too late to exclude another writer.
    connection.isolation_level = None
    # SQLite does not wait for its turn when two processes switch a new file to write-ahead logging at once.
    with exclusive_lock(file.with_name(f"{file.name}.lock"), str(file), on_wait=lambda holder: None):
        connection.execute("PRAGMA journal_mode = WAL")
    # A row must be on the disk before the first prompt is sent.
    connection.execute("PRAGMA synchronous = FULL")


def _hashes(**values: str) -> dict[str, str]:
    for name, value in values.items():
        if not is_sha256(value):
            raise LedgerError(f"{name}: found {value!r}; allowed: a SHA-256 of 64 lower-case hexadecimal digits")
    return values


def _same_adapter(known: Opening, adapter_sha256: str) -> Opening:
    if known.adapter_sha256 != adapter_sha256:
        raise SealedSetRefused(
            f"sealed set {known.sealed_set} was opened for experiment {known.experiment_name} on {known.opened_at} "
            f"by adapter {known.adapter_sha256} in run {known.run_id}; it opens once, so adapter {adapter_sha256} is "
            "refused: report what that opening said"
        )
    return replace(known, outcome="reused" if known.complete else "resume")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
