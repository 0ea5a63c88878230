"""Fixtures of the providers' tests: a stand-in base model and an adapter trained on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena_pipeline_tests.sft.runs import small_run
from arena_pipeline_tests.stand_ins import write_stand_in_base


@pytest.fixture(scope="session")
def stand_in_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_in_base(tmp_path_factory.mktemp("base") / "stand-in")


@pytest.fixture(scope="session")
def stand_in_adapter(stand_in_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("adapter") / "work"
    small_run(work, stand_in_base)
    return work / "output" / "checkpoints" / "step-000006"
