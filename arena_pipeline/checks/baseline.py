"""The evaluator proven by the oracle, the baselines played again, the base's figures from its saved responses."""

from __future__ import annotations

from typing import Any, Final

from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.checks.recomputing import base_scores, recomputed_base_evaluation, require_same
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.baselines import baselines
from arena_pipeline.evaluation.conditions import CONDITIONS
from arena_pipeline.evaluation.runner import recompute
from arena_pipeline.evaluation.scripted_provider import ORACLE, ScriptedProvider
from arena_pipeline.resources.reader import Reader

TOLERANCE: Final = 1e-9


@blocking_check("scripted_baselines", "recomputed")
def baselines_recomputed(reader: Reader) -> dict[str, Any]:
    """Every policy plays every case again; every figure is the saved one, and the optimum's regret is 0."""
    artifact, manifests = reader.artifact("scripted_baselines"), reader.artifact("frozen_manifest")
    shown: dict[str, Any] = {}
    for which in ("sealed", "development"):
        manifest = reader.recorded_manifest(manifests, which)
        repeats = reader.experiment.evaluation.random_repeats
        found = baselines(manifest.name, random_repeats=repeats, progress=reader.progress)
        require_same(f"scripted_baselines, {which}.json", artifact.read_json(f"{which}.json"), found)
        if (optimum := found["policies"][0])["mean_oracle_regret"] > TOLERANCE:
            raise EvaluationError(f"scripted_baselines: {optimum['policy']} has regret {optimum['mean_oracle_regret']}")
        shown |= {f"{which} {body['policy']}": body["mean_oracle_regret"] for body in found["policies"]}
    return shown


@blocking_check("oracle_evaluation", "perfect")
def oracle_perfect(reader: Reader) -> dict[str, Any]:
    """From its saved replies the oracle has regret 0 and optimal rate 1.0 in all four conditions."""
    summary = recompute(reader.artifact("oracle_evaluation").path).summary
    if summary["model"] != ScriptedProvider(ORACLE).identity:
        raise EvaluationError(f"oracle_evaluation: played by {summary['model']}, not by the oracle")
    manifest = reader.recorded_manifest(reader.artifact("frozen_manifest"), "sealed")
    if summary["manifest_sha256"] != manifest.sha256:
        raise EvaluationError(
            f"oracle_evaluation: manifest_sha256 is {summary['manifest_sha256']}, expected {manifest.sha256}"
        )
    for name in CONDITIONS:
        figures = summary["conditions"][name]
        if figures["optimal_rate"] != 1.0 or figures["mean_regret"] > TOLERANCE:
            raise EvaluationError(
                f"oracle_evaluation: condition {name} has regret {figures['mean_regret']} and optimal rate "
                f"{figures['optimal_rate']}, expected 0 and 1: the evaluator, prompts or parser have a fault"
            )
    return {name: summary["conditions"][name]["mean_reward"] for name in CONDITIONS}


@blocking_check("base_dev_evaluation", "recomputed")
def base_dev_recomputed(reader: Reader) -> dict[str, Any]:
    """Rows and summary follow from the base's saved replies to the development manifest."""
    return recomputed_base_evaluation(reader, "base_dev_evaluation", "development")


@blocking_check("base_arena_evaluation", "recomputed")
def base_arena_recomputed(reader: Reader) -> dict[str, Any]:
    """Rows and summary follow from the base's saved replies to the manifest of the verdict."""
    return recomputed_base_evaluation(reader, "base_arena_evaluation", "sealed")


@blocking_check("base_validation_scores", "recomputed")
def base_scores_recomputed(reader: Reader) -> dict[str, Any]:
    """Verdicts and summary follow from the base's saved replies to the whole validation split."""
    summary = base_scores(reader)
    return {"examples": summary["examples"], "selection_score": summary["selection_score"]}
