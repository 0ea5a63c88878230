"""What is made once for all tests of this folder: datasets (tests change copies, never these) and a stand-in base."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.sft.builder import build_dataset
from arena_pipeline.sft.loading import Dataset, load_dataset
from arena_pipeline_tests.stand_ins import write_stand_in_base

SMALL_SEEDS = 12


@pytest.fixture(scope="session")
def pack() -> PromptPack:
    """A wording of the tests' own: with quotes, line breaks and letters outside ASCII, as a brought one may have."""
    return PromptPack(
        version="arena-tests",
        broadcast_system='Sag, was du "siehst" —\nhöchstens drei Fakten.',
        action_system="Wähle genau eine Aktion.",
        team_objective="Hold the network 🐍.",
    )


@pytest.fixture(scope="session")
def full_directory(tmp_path_factory: pytest.TempPathFactory, pack: PromptPack) -> Path:
    """The whole dataset, as the golden vectors describe it."""
    directory = tmp_path_factory.mktemp("full") / "dataset"
    build_dataset(directory, pack)
    return directory


@pytest.fixture(scope="session")
def full(full_directory: Path) -> Dataset:
    """The whole dataset, loaded."""
    return load_dataset(full_directory)


@pytest.fixture(scope="session")
def small_directory(tmp_path_factory: pytest.TempPathFactory, pack: PromptPack) -> Path:
    """A dataset of a few plain seeds; its targeted and silence rows are as many as in the whole one."""
    directory = tmp_path_factory.mktemp("small") / "dataset"
    build_dataset(directory, pack, num_seeds=SMALL_SEEDS)
    return directory


@pytest.fixture(scope="session")
def small(small_directory: Path) -> Dataset:
    """The small dataset, loaded."""
    return load_dataset(small_directory)


@pytest.fixture(scope="session")
def stand_in_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model of random weights, for tests of the engine."""
    return write_stand_in_base(tmp_path_factory.mktemp("base") / "stand-in")
