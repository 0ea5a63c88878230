"""The whole lineage of experiment `micro`, run once for all tests, and copies of it to tamper with."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance

from arena_pipeline.jobs import JOB_NAME, build_definitions, run_lineage
from arena_pipeline.provenance.artifacts import Artifact, stage_key
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.provenance.locks import exclusive_lock
from arena_pipeline.resources.execution import RunResult, reduce_result
from arena_pipeline.resources.history import DATA_VERSION_TAG, latest_materialization
from arena_pipeline.resources.instance import open_instance
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = "micro"
_VARIABLES = ("ARENA_PROJECT_DIR", "ARENA_STORAGE_DIR", "ARENA_LEDGER_URL", "DAGSTER_HOME")


@dataclass
class Lineage:
    """A project of its own with its storage, and what its first run came to."""

    root: Path
    first: dict[str, Any] = field(default_factory=dict)

    @property
    def storage(self) -> Path:
        return self.root / "storage"

    def run(self, until: str | None = None) -> RunResult:
        """Materialize the lineage here, in this process."""
        with _environment():
            return run_lineage(EXPERIMENT, until, self.root)

    def run_only(self, *assets: str) -> RunResult:
        """Materialize these assets, with their checks, in a run that holds no other."""
        with self.instance() as instance:
            job = build_definitions().resolve_job_def(JOB_NAME)
            result = job.execute_in_process(
                instance=instance,
                partition_key=EXPERIMENT,
                asset_selection=[AssetKey(asset) for asset in assets],
                raise_on_error=False,
            )
            return reduce_result(result, instance, EXPERIMENT)

    @contextmanager
    def instance(self) -> Iterator[DagsterInstance]:
        """The project's Dagster instance, with the environment that resources read."""
        with _environment():
            os.environ.update(ARENA_PROJECT_DIR=str(self.root), ARENA_STORAGE_DIR=str(self.storage))
            with open_instance() as instance:
                yield instance

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        """What a check gets."""
        with self.instance() as instance:
            yield Reader(ProjectResource(), ArtifactStoreResource(), LedgerResource(), instance, EXPERIMENT)

    def ledger_rows(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.storage / "ledger.sqlite")) as connection:
            return connection.execute("SELECT * FROM sealed_set_openings").fetchall()

    def edit_experiment(self, old: str, new: str) -> None:
        """Change a line of the experiment's file."""
        path = self.root / "data" / "experiments" / f"{EXPERIMENT}.toml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def make_project(root: Path) -> Path:
    """A project with the shipped inputs and nothing else."""
    (root / "data" / "experiments").mkdir(parents=True)
    shutil.copy(ROOT / "dagster.yaml", root)
    for name in ("gates.toml", "pins.toml", f"experiments/{EXPERIMENT}.toml"):
        shutil.copy(ROOT / "data" / name, root / "data" / name)
    shutil.copytree(ROOT / "data" / "prompts", root / "data" / "prompts")
    shutil.copytree(ROOT / "data" / "base_models" / "arena-tiny", root / "data" / "base_models" / "arena-tiny")
    return root


@pytest.fixture(scope="session")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """The finished lineage. Never change it: take a ``copy``. Test processes beside this one share it."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    root, record = place / "micro-lineage", place / "micro-lineage.json"
    with exclusive_lock(place / "micro-lineage.lock", "the shared lineage", on_wait=lambda holder: None):
        if not record.exists():
            lineage = Lineage(make_project(root))
            result = lineage.run()
            first = {"failures": result.failures, "computed": result.computed, "reused": result.reused}
            write_json(record, first | {"success": result.success, "verdict": result.verdict})
    first = read_json(record)
    assert first["success"], f"the shared lineage failed: {first['failures']}"
    return Lineage(root, first)


@pytest.fixture
def copy(micro: Lineage, tmp_path: Path) -> Lineage:
    """The finished lineage in a place of its own, free to be changed."""
    return copy_of(micro, tmp_path / "project")


def copy_of(lineage: Lineage, root: Path) -> Lineage:
    shutil.copytree(lineage.root, root)
    return Lineage(root, lineage.first)


def flip_byte(path: Path, position: int) -> None:
    """Change one bit of a file, whatever its mode."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def materialized(lineage: Lineage, asset: str) -> Artifact:
    """The artifact of an asset's latest materialization."""
    with lineage.reader() as reader:
        return reader.artifact(asset)


@contextmanager
def replaced(reader: Reader, asset: str, change: Any) -> Iterator[None]:
    """Have an asset's latest materialization be of changed files, as if they had been computed so.

    ``change`` gets a directory with the asset's files. Afterwards the original is the latest again.
    """
    original = reader.artifact(asset)
    config = {"original": original.sha256, "change": id(change)}
    key = stage_key(asset, inputs={}, config=config, code_version="test")
    with reader.store.work(asset, key) as scratch:
        directory = scratch / "output"
        shutil.copytree(original.path, directory)
        for path in directory.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        change(directory)
        changed = reader.store.commit(asset, key, directory, inputs={}, config=config, code_version="test")
    report(reader.instance, asset, changed.sha256)
    try:
        yield
    finally:
        report(reader.instance, asset, original.sha256)


def report(instance: DagsterInstance, asset: str, sha256: str) -> None:
    """Have Dagster record a materialization whose checks did not run."""
    event = AssetMaterialization(asset, partition=EXPERIMENT, tags={DATA_VERSION_TAG: sha256})
    instance.report_runless_asset_event(event)
    assert latest_materialization(instance, asset, EXPERIMENT).artifact_sha256 == sha256


@contextmanager
def _environment() -> Iterator[None]:
    """Without the variables that a developer's shell may have set; they are restored afterwards."""
    before = {name: os.environ.pop(name, None) for name in _VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
