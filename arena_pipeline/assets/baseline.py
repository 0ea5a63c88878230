"""[baseline] What simple policies, the oracle and the untouched base model reach, before anything is trained."""

from __future__ import annotations

from typing import Any

from dagster import MaterializeResult

from arena_pipeline.assets.descriptions import describe_baselines, describe_evaluation, describe_scores
from arena_pipeline.assets.model_work import evaluate_model, score_models
from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.evaluation.baselines import baselines
from arena_pipeline.evaluation.conditions import EVALUATOR_VERSION
from arena_pipeline.evaluation.runner import evaluate
from arena_pipeline.evaluation.scripted_provider import ORACLE, ScriptedProvider
from arena_pipeline.provenance.files import write_json
from arena_pipeline.resources.stage import Stage, Work
from arena_pipeline.sft.scoring import SCORER_VERSION
from arena_pipeline.sft.selection import SELECTION_SPLIT

GROUP = "baseline"
EVALUATION_CODE = f"{EVALUATOR_VERSION}.1"
SCORING_CODE = f"{SCORER_VERSION}.1"

BASE_SCORES = "base"
"""Directory of the untouched base model's scores within its artifact."""

PROVEN = ("dataset_audit", "scripted_baselines", "oracle_evaluation", "machine_preflight")
"""What comes before the first prompt to a model: the audit, the baselines, and the proof of the evaluator."""


@stage_asset(group=GROUP, code_version="baselines-1", kinds={"python"}, inputs=["frozen_manifest"])
def scripted_baselines(stage: Stage) -> MaterializeResult[Any]:
    """The exact optimum, the scripted policies and random play on both manifests: what every model is set beside."""
    manifests = {
        which: stage.recorded_manifest(stage.inputs["frozen_manifest"], which) for which in ("sealed", "development")
    }
    repeats = stage.experiment.evaluation.random_repeats

    def play(work: Work) -> None:
        for which, manifest in manifests.items():
            found = baselines(manifest.name, random_repeats=repeats, progress=stage.progress)
            write_json(work.out / f"{which}.json", found)

    outcome = stage.obtain(play, config={"random_repeats": repeats})
    return stage.materialize(outcome, describe_baselines(outcome.artifact))


@stage_asset(group=GROUP, code_version=EVALUATION_CODE, kinds={"python"}, inputs=["frozen_manifest", "prompts_in_use"])
def oracle_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """The oracle through the whole evaluator, prompt text and parser included: the proof of the evaluator itself.

    It must reach regret 0 and optimal 1.0 in all four conditions.
    """
    manifest = stage.recorded_manifest(stage.inputs["frozen_manifest"], "sealed")
    pack = stage.prompts(stage.inputs["prompts_in_use"])
    batch_size = stage.experiment.serving.batch_size

    def play(work: Work) -> None:
        provider = ScriptedProvider(ORACLE)
        evaluate(work.out, manifest.name, pack, provider, batch_size=batch_size, progress=stage.progress)

    outcome = stage.obtain(play, config={"batch_size": batch_size})
    return stage.materialize(outcome, describe_evaluation(outcome.artifact))


def _base_evaluation(stage: Stage, which: str) -> MaterializeResult[Any]:
    manifest = stage.recorded_manifest(stage.inputs["frozen_manifest"], which)
    pack = stage.prompts(stage.inputs["prompts_in_use"])
    base = stage.base_model(stage.inputs["base_model"])
    outcome = stage.obtain(
        lambda work: evaluate_model(stage, work.scratch, manifest.name, pack, base),
        config={"manifest": manifest.name, **stage.experiment.slice("serving")},
    )
    return stage.materialize(outcome, describe_evaluation(outcome.artifact))


@stage_asset(
    group=GROUP,
    code_version=EVALUATION_CODE,
    kinds={"huggingface"},
    inputs=["frozen_manifest", "prompts_in_use", "base_model"],
    after=PROVEN,
)
def base_dev_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """The untouched base model on the development manifest, every raw reply kept."""
    return _base_evaluation(stage, "development")


@stage_asset(
    group=GROUP,
    code_version=EVALUATION_CODE,
    kinds={"huggingface"},
    inputs=["frozen_manifest", "prompts_in_use", "base_model"],
    after=PROVEN,
)
def base_arena_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """The untouched base model on the sealed manifest, which it may play freely, every raw reply kept."""
    return _base_evaluation(stage, "sealed")


@stage_asset(
    group=GROUP,
    code_version=SCORING_CODE,
    kinds={"huggingface"},
    inputs=["arena_sft_dataset", "base_model"],
    after=("prompts_in_use", *PROVEN),
)
def base_validation_scores(stage: Stage) -> MaterializeResult[Any]:
    """The untouched base model on the whole validation split, every raw reply kept."""
    dataset = stage.dataset(stage.inputs["arena_sft_dataset"])
    base = stage.base_model(stage.inputs["base_model"])
    outcome = stage.obtain(
        lambda work: score_models(stage, work.scratch, dataset, SELECTION_SPLIT, base, {BASE_SCORES: (None, None)}),
        config=stage.experiment.slice("serving"),
    )
    return stage.materialize(outcome, describe_scores(outcome.artifact, BASE_SCORES))
