"""A project folder of each test's own, and the command line as its user meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.cli.application import run
from arena_pipeline_tests.lineages import copy, micro

__all__ = ["copy", "micro"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from arena_pipeline.cli import main; main()"


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit status and both outputs."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """All of standard output as one JSON value."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on standard error."""
        assert self.err.startswith("arena: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


Arena = Callable[..., Outcome]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project's data, without datasets and models, that this test may change; storage is empty."""
    root = tmp_path / "project"
    for name in ("experiments", "prompts"):
        shutil.copytree(ROOT / "data" / name, root / "data" / name)
    for name in ("data/pins.toml", "data/gates.toml", "dagster.yaml", "workspace.yaml"):
        shutil.copy(ROOT / name, root / name)
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(root))
    monkeypatch.setenv("ARENA_STORAGE_DIR", str(root / "storage"))
    monkeypatch.delenv("ARENA_LEDGER_URL", raising=False)
    # What commands export, set here so that it is undone after the test.
    monkeypatch.setenv("DAGSTER_HOME", str(root))
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def arena(capsys: pytest.CaptureFixture[str]) -> Arena:
    """Run one command line in this process."""

    def call(*arguments: object) -> Outcome:
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


def arena_process(*arguments: object, cwd: Path, **variables: str) -> Outcome:
    """Run one command line in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
    )
    return Outcome(child.returncode, child.stdout, child.stderr)
