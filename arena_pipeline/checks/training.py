"""The smoke's hard stop, adapters that are finite and moved, scores and selection computed again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena_pipeline.assets.training import (
    ADAPTER,
    MIXTURE_FILE,
    SELECTION_FILE,
    SMOKE_SCORES,
    VALIDATION_FILE,
    checkpoint_directories,
    draw_mixture,
    judged_step,
    mixture_record,
    select_checkpoint,
)
from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.checks.recomputing import (
    chosen_adapter,
    evaluation_figures,
    recomputed_evaluation,
    recomputed_scores,
    require_same,
)
from arena_pipeline.errors import EvaluationError, IntegrityError, TrainingError
from arena_pipeline.resources.metadata import table
from arena_pipeline.resources.reader import Reader
from arena_pipeline.serving.adapters import WEIGHTS_FILE, adapter_sha256
from arena_pipeline.sft.recipe import checkpoint_steps, training_steps
from arena_pipeline.sft.selection import SELECTION_SPLIT
from arena_pipeline.sft.smoke import smoke_rows
from arena_pipeline.sft.training import RECORD_FILE, checkpoint_name


@blocking_check("overfit_smoke", "schema")
def smoke_schema(reader: Reader) -> dict[str, Any]:
    """Of the rows that were learned by heart, nearly all replies are schema-valid, from the saved replies."""
    artifact, smoke = reader.artifact("overfit_smoke"), reader.experiment.smoke
    trained = artifact.read_json(RECORD_FILE)["checkpoints"][-1]["adapter_sha256"]
    rows = smoke_rows(reader.dataset(reader.artifact("arena_sft_dataset")).rows("train"), smoke.rows)
    summary = recomputed_scores(reader, artifact, "train", SMOKE_SCORES, trained, [row.id for row in rows])
    valid, least = summary["schema_valid"], smoke.minimum_schema_valid
    if valid < least:
        raise TrainingError(
            f"overfit smoke: {valid:.4f} of {summary['examples']} replies to rows learned by heart are schema-valid, "
            f"at least {least} are needed: a fault in the chat template or in the loss mask, not too few rows; look at "
            f"{SMOKE_SCORES}/responses.jsonl in {artifact.path}"
        )
    return {"schema_valid": valid, "required": least, "exact": summary["exact"]}


@blocking_check("lora_checkpoints", "finite_and_moved")
def adapters_finite_and_moved(reader: Reader) -> dict[str, Any]:
    """Every weight and validation loss is finite; B matrices have left zero; no two checkpoints are equal.

    The rows of the run are the mixture's, drawn again, and the checkpoints are the recipe's.
    """
    artifact, recipe = reader.artifact("lora_checkpoints"), reader.experiment.recipe
    record = artifact.read_json(RECORD_FILE)
    train_rows = reader.dataset(reader.artifact("arena_sft_dataset")).rows("train")
    drawn = draw_mixture(reader.experiment, train_rows)
    require_same(f"lora_checkpoints, {MIXTURE_FILE}", artifact.read_json(MIXTURE_FILE), mixture_record(drawn))
    if record["mixture_sha256"] != drawn.sha256:
        raise TrainingError(f"lora_checkpoints: trained on mixture {record['mixture_sha256']}, drawn is {drawn.sha256}")
    expected = checkpoint_steps(training_steps(recipe, len(drawn.row_ids)), recipe.checkpoints)
    directories = checkpoint_directories(artifact)
    if list(directories) != expected:
        raise TrainingError(f"lora_checkpoints: checkpoints of steps {list(directories)}, the recipe says {expected}")
    recorded = {entry["step"]: entry["adapter_sha256"] for entry in record["checkpoints"]}
    for entry in record["checkpoints"]:
        if not math.isfinite(loss := entry.get("validation_loss", math.nan)):
            raise TrainingError(f"lora_checkpoints, step {entry['step']}: validation loss {loss} is not finite")
    before: dict[str, NDArray[np.float32]] = {}
    rows = []
    for step, directory in directories.items():
        found = adapter_sha256(artifact.path / directory)
        if found != recorded[step]:
            raise IntegrityError(artifact.path / directory, recorded[step], found)
        weights = _weights(artifact.path / directory / WEIGHTS_FILE)
        rows.append({"step": step, "adapter_sha256": found, "moved": _moved(step, before, weights)})
        before = weights
    return {"checkpoints": table(rows)}


def _weights(path: Path) -> dict[str, NDArray[np.float32]]:
    # numpy's loader: a check has no need of torch.
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _moved(step: int, before: dict[str, NDArray[np.float32]], weights: dict[str, NDArray[np.float32]]) -> float:
    """Norm of the change since the checkpoint before (of the B matrices, which start at zero, for the first)."""
    total = 0.0
    for name, values in weights.items():
        if not np.isfinite(values).all():
            raise TrainingError(f"lora_checkpoints, step {step}: {name} is not finite; lower the learning rate")
        if before:
            total += float(np.square(values.astype(np.float64) - before[name]).sum())
        elif ".lora_B." in name:
            total += float(np.square(values.astype(np.float64)).sum())
    if total == 0.0:
        raise TrainingError(f"lora_checkpoints, step {step}: the adapter has not moved since the checkpoint before it")
    return float(total**0.5)


@blocking_check("checkpoint_scores", "recomputed")
def checkpoint_scores_recomputed(reader: Reader) -> dict[str, Any]:
    """Every checkpoint's verdicts and summary follow from its saved replies to the whole validation split."""
    artifact, trained = reader.artifact("checkpoint_scores"), reader.artifact("lora_checkpoints")
    scores = {}
    for step, directory in checkpoint_directories(trained).items():
        adapter = adapter_sha256(trained.path / directory)
        name = checkpoint_name(step)
        summary = recomputed_scores(reader, artifact, SELECTION_SPLIT, name, adapter)
        if summary["step"] != step:
            raise EvaluationError(f"checkpoint_scores, {name}: step is {summary['step']}, expected {step}")
        scores[name] = summary["selection_score"]
    return scores


@blocking_check("selected_checkpoint", "recomputed")
def selection_recomputed(reader: Reader) -> dict[str, Any]:
    """The selection follows from the summaries; the adapter and the summary that go on are the selected ones."""
    artifact = reader.artifact("selected_checkpoint")
    names = ("arena_sft_dataset", "base_validation_scores", "lora_checkpoints", "checkpoint_scores")
    artifacts = {name: reader.artifact(name) for name in names}
    selection = select_checkpoint(reader, artifacts)
    require_same(f"selected_checkpoint, {SELECTION_FILE}", artifact.read_json(SELECTION_FILE), selection)
    step = judged_step(selection)
    trained = artifacts["lora_checkpoints"]
    expected = adapter_sha256(trained.path / checkpoint_directories(trained)[step])
    if (found := adapter_sha256(artifact.path / ADAPTER)) != expected:
        raise IntegrityError(artifact.path / ADAPTER, expected, found, f"not the adapter of step {step}")
    summary = artifacts["checkpoint_scores"].read_json(f"{checkpoint_name(step)}/summary.json")
    require_same(f"selected_checkpoint, {VALIDATION_FILE}", artifact.read_json(VALIDATION_FILE), summary)
    return {"judged_step": step, "num_eligible": selection["num_eligible"], "adapter_sha256": found}


@blocking_check("sft_dev_evaluation", "recomputed")
def sft_dev_recomputed(reader: Reader) -> dict[str, Any]:
    """Rows and summary follow from the selected checkpoint's saved replies to the development manifest."""
    evaluation = recomputed_evaluation(reader, "sft_dev_evaluation", "development", chosen_adapter(reader))
    return evaluation_figures(evaluation)
