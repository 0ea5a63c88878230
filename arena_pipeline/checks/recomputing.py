"""Saved evaluations and scores, computed again from their saved responses and held to the inputs that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arena_pipeline.assets.baseline import BASE_SCORES
from arena_pipeline.assets.training import ADAPTER
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.runner import Evaluation, difference, recompute
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.resources.reader import Reader
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.sft.scoring import recompute_scores


def require_same(what: str, saved: Any, computed: Any) -> None:
    """Raise ``EvaluationError`` naming the first place where a saved JSON value is not the one just computed."""
    if place := difference(saved, json.loads(canonical_json(computed))):
        raise EvaluationError(f"{what}: {place}, computed again; materialize it again")


def recomputed_evaluation(reader: Reader, asset: str, which: str, adapter: str | None) -> Evaluation:
    """An evaluation's rows and summary, computed again; of this manifest, these prompts, this base and this adapter."""
    artifact = reader.artifact(asset)
    evaluation = recompute(artifact.path)
    manifest = reader.recorded_manifest(reader.artifact("frozen_manifest"), which)
    summary = evaluation.summary
    _require(asset, "manifest_sha256", summary["manifest_sha256"], manifest.sha256)
    _require(asset, "prompt_sha256", summary["prompt_sha256"], reader.prompts(reader.artifact("prompts_in_use")).sha256)
    _require_model(reader, asset, summary["model"], adapter)
    return evaluation


def recomputed_base_evaluation(reader: Reader, asset: str, which: str) -> dict[str, Any]:
    """``recomputed_evaluation`` of the untouched base, as metadata."""
    return evaluation_figures(recomputed_evaluation(reader, asset, which, None))


def evaluation_figures(evaluation: Evaluation) -> dict[str, Any]:
    """What a check shows of an evaluation that it computed again."""
    generated = evaluation.summary["conditions"]["generated"]
    return {
        "cases": evaluation.summary["cases"],
        "mean_regret": generated["mean_regret"],
        "strict_action_rate": generated["strict_action_rate"],
    }


def recomputed_scores(
    reader: Reader, artifact: Artifact, split: str, model: str, adapter: str | None, row_ids: list[str] | None = None
) -> dict[str, Any]:
    """A scored model's summary, computed again from its replies to a split's rows, or to some of them."""
    rows = list(reader.dataset(reader.artifact("arena_sft_dataset")).rows(split))
    if row_ids is not None:
        by_id = {row.id: row for row in rows}
        rows = [by_id[row_id] for row_id in row_ids]
    summary = recompute_scores(artifact.path / model, rows)
    _require_model(reader, model, summary["model"], adapter)
    return summary


def chosen_adapter(reader: Reader) -> str:
    """The hash of the selected checkpoint's adapter, computed from its files."""
    return adapter_sha256(reader.artifact("selected_checkpoint").path / ADAPTER)


def base_scores(reader: Reader) -> dict[str, Any]:
    """The untouched base's validation summary, computed again."""
    return recomputed_scores(reader, reader.artifact("base_validation_scores"), "validation", BASE_SCORES, None)


def _require_model(reader: Reader, what: str, model: Mapping[str, Any], adapter: str | None) -> None:
    base = reader.base_model(reader.artifact("base_model"))
    _require(what, "base_sha256", model["base_sha256"], base.sha256)
    _require(what, "adapter_sha256", model["adapter_sha256"], adapter)
    serving = reader.experiment.serving
    _require(what, "kind", model["kind"], serving.backend)
    _require(what, "dtype", model["dtype"], serving.dtype)
    _require(what, "batch_size", model["batch_size"], serving.batch_size)
    _require(what, "max_new_tokens", model["decoding"]["max_new_tokens"], serving.max_new_tokens)


def _require(what: str, name: str, found: object, expected: object) -> None:
    if found != expected:
        raise EvaluationError(f"{what}: {name} is {found!r}, expected {expected!r}; materialize it again")
