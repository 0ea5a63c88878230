"""Fixtures of the process tests: a real dataset of a few rows, a stand-in base model, and payloads for the tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.serving.loading import base_sha256
from arena_pipeline.sft.builder import build_dataset
from arena_pipeline.sft.loading import Dataset, load_dataset
from arena_pipeline_tests.sft.runs import recipe_with
from arena_pipeline_tests.stand_ins import stand_in_tokenizer, write_stand_in_base

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Inputs:
    """What the payloads name."""

    base: dict[str, str]
    dataset: Dataset

    def train(self, steps: int = 4, checkpoints: int = 2) -> dict[str, Any]:
        """A training of some steps of two rows, over the first ACT rows of train again and again."""
        rows = [row.id for row in self.dataset.rows("train") if row.phase == "ACT"][:8]
        recipe = recipe_with(
            max_length=2048, effective_batch_size=2, steps=steps, epochs=None, checkpoints=checkpoints, dropout=0.0
        )
        return {
            "base": self.base,
            "dataset": {"directory": str(self.dataset.directory), "content_sha256": self.dataset.content_sha256},
            "row_ids": [rows[index % 8] for index in range(2 * steps)],
            "recipe": recipe.model_dump(mode="json"),
            "device": "cpu",
            "measure_validation": False,
        }

    @property
    def serving(self) -> dict[str, Any]:
        """Short replies in small batches."""
        return {
            "backend": "transformers", "batch_size": 16, "dtype": "float32", "device": "cpu", "max_new_tokens": 4,
        }  # fmt: skip


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    directory = tmp_path_factory.mktemp("inputs")
    pack = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
    build_dataset(directory / "dataset", pack, num_seeds=16, start_seed=300_000, workers=1)
    dataset = load_dataset(directory / "dataset")
    # One that knows the dataset's words: every row is proven to fit, and letter by letter they would not.
    texts = [message["content"] for row in dataset.rows("validation") for message in row.messages]
    base = write_stand_in_base(directory / "base", tokenizer=stand_in_tokenizer(texts, 600))
    return Inputs({"path": str(base), "sha256": base_sha256(base)}, dataset)
