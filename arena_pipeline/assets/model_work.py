"""Training and generation for a stage, each in a process of its own that resumes what a killed one left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.experiments import Recipe
from arena_pipeline.processes.launcher import run_task
from arena_pipeline.resources.reader import BaseModel
from arena_pipeline.resources.stage import Stage
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.sft.loading import Dataset


def train_adapter(
    stage: Stage,
    work: Path,
    dataset: Dataset,
    base: BaseModel,
    recipe: Recipe,
    row_ids: Sequence[str],
    *,
    measure_validation: bool,
) -> None:
    """Train on rows of train in the order of ``row_ids``; ``work/output`` gets checkpoints and record."""
    payload = {
        "base": _base(base),
        "dataset": _dataset(dataset),
        "row_ids": list(row_ids),
        "recipe": recipe.model_dump(mode="json"),
        "device": stage.experiment.serving.device,
        "measure_validation": measure_validation,
    }
    _run(stage, "train", payload, work)


def score_models(
    stage: Stage,
    work: Path,
    dataset: Dataset,
    split: str,
    base: BaseModel,
    models: Mapping[str, tuple[int | None, Path | None]],
    *,
    row_ids: Sequence[str] | None = None,
    opened_for_adapter: str | None = None,
) -> None:
    """Score models, each name -> (step, adapter directory), on a split; ``work/output/NAME`` gets what was scored."""
    payload = {
        "base": _base(base),
        "dataset": _dataset(dataset),
        "split": split,
        "row_ids": None if row_ids is None else list(row_ids),
        "models": [
            {"name": name, "step": step, "adapter": _adapter(adapter)} for name, (step, adapter) in models.items()
        ],
        "serving": stage.experiment.serving.model_dump(mode="json"),
        "opened_for_adapter": opened_for_adapter,
    }
    _run(stage, "score_rows", payload, work)


def evaluate_model(
    stage: Stage,
    work: Path,
    manifest: str,
    pack: PromptPack,
    base: BaseModel,
    adapter: Path | None = None,
    opened_for_adapter: str | None = None,
) -> None:
    """Play a manifest; ``work/output`` gets the evaluation directory."""
    payload = {
        "base": _base(base),
        "adapter": _adapter(adapter),
        "manifest": manifest,
        "prompts": asdict(pack),
        "serving": stage.experiment.serving.model_dump(mode="json"),
        "opened_for_adapter": opened_for_adapter,
    }
    _run(stage, "evaluate_arena", payload, work)


def _run(stage: Stage, task: str, payload: Mapping[str, Any], work: Path) -> None:
    log = stage.context.log
    run_task(task, payload, work, progress=stage.progress, log=log.info, dagster_context=stage.context)


def _base(base: BaseModel) -> dict[str, str]:
    return {"path": str(base.path), "sha256": base.sha256}


def _adapter(adapter: Path | None) -> dict[str, str] | None:
    return None if adapter is None else {"path": str(adapter), "sha256": adapter_sha256(adapter)}


def _dataset(dataset: Dataset) -> dict[str, str]:
    return {"directory": str(dataset.directory), "content_sha256": dataset.content_sha256}
