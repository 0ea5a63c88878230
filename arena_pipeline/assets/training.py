"""[training] The overfit smoke, LoRA checkpoints, their behaviour on validation, and the one that goes on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from dagster import MaterializeResult

from arena_pipeline.assets.baseline import BASE_SCORES, EVALUATION_CODE, SCORING_CODE
from arena_pipeline.assets.descriptions import (
    describe_checkpoint_scores,
    describe_evaluation,
    describe_scores,
    describe_selection,
    describe_training,
)
from arena_pipeline.assets.model_work import evaluate_model, score_models, train_adapter
from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.experiments import RESULT_CHECKPOINTS, Experiment
from arena_pipeline.processes.protocol import OUTPUT
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.provenance.files import write_json
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stage import Stage, Work
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.sft.mixture import Mixture, mixture
from arena_pipeline.sft.rows import Row
from arena_pipeline.sft.scoring import SUMMARY_FILE
from arena_pipeline.sft.selection import (
    SELECTION_SPLIT,
    Candidate,
    Eligibility,
    require_scored_on,
    select,
)
from arena_pipeline.sft.smoke import smoke_draws, smoke_rows
from arena_pipeline.sft.training import CHECKPOINTS, RECORD_FILE, TRAINING_VERSION, checkpoint_name

GROUP = "training"
MIXTURE_FILE = "mixture.json"
SELECTION_FILE = "selection.json"
VALIDATION_FILE = "validation-summary.json"
ADAPTER = "adapter"
SMOKE_SCORES = "smoke"

REHEARSAL_ELIGIBILITY: Final = Eligibility(0.0, 0.0, 0.0, 0.0)
"""A rehearsal trains for seconds: it selects among what it has, so that all that follows is rehearsed too."""


def eligibility(reader: Reader) -> Eligibility:
    """What a checkpoint must reach on validation: the gate policy's rates, or anything at all in a rehearsal."""
    if not reader.experiment.result:
        return REHEARSAL_ELIGIBILITY
    return Eligibility.of_gates(reader.project.gate_policy().thresholds)


@stage_asset(
    group=GROUP,
    code_version=f"{TRAINING_VERSION}.smoke-1",
    kinds={"pytorch", "huggingface"},
    inputs=["arena_sft_dataset", "base_model"],
    after=["base_dev_evaluation", "base_arena_evaluation", "base_validation_scores"],
)
def overfit_smoke(stage: Stage) -> MaterializeResult[Any]:
    """Can the recipe learn the overfit set by heart? It has weights of its own, which are thrown away.

    A low rate of schema-valid replies on rows that were learned by heart means a fault in the chat template or in the
    loss mask, never too little data: its check stops everything that follows.
    """
    experiment, smoke = stage.experiment, stage.experiment.smoke
    dataset = stage.dataset(stage.inputs["arena_sft_dataset"])
    rows = smoke_rows(dataset.rows("train"), smoke.rows)
    base = stage.base_model(stage.inputs["base_model"])
    recipe = smoke.recipe(experiment.recipe)
    # Which rate is required decides nothing about the replies: it belongs to the check.
    config = experiment.slice("recipe", "smoke.steps", "smoke.learning_rate", "smoke.rows", "serving")
    drawn = smoke_draws(rows, smoke.steps * recipe.effective_batch_size, recipe.seed)

    def overfit(work: Work) -> None:
        weights = work.scratch / "weights"
        train_adapter(stage, weights, dataset, base, recipe, drawn, measure_validation=False)
        adapter = weights / OUTPUT / CHECKPOINTS / checkpoint_name(smoke.steps)
        models = {SMOKE_SCORES: (smoke.steps, adapter)}
        score_models(stage, work.scratch, dataset, "train", base, models, row_ids=[row.id for row in rows])
        shutil.copyfile(weights / OUTPUT / RECORD_FILE, work.out / RECORD_FILE)

    outcome = stage.obtain(overfit, config=config)
    return stage.materialize(
        outcome, {**describe_training(outcome.artifact), **describe_scores(outcome.artifact, SMOKE_SCORES)}
    )


@stage_asset(
    group=GROUP,
    code_version=f"{TRAINING_VERSION}.1",
    kinds={"pytorch", "huggingface"},
    inputs=["arena_sft_dataset", "base_model"],
    after=["overfit_smoke"],
)
def lora_checkpoints(stage: Stage) -> MaterializeResult[Any]:
    """The training run: LoRA on the frozen base model, its checkpoints evenly spaced, each with its validation loss."""
    dataset = stage.dataset(stage.inputs["arena_sft_dataset"])
    base = stage.base_model(stage.inputs["base_model"])
    recipe, drawn = stage.experiment.recipe, draw_mixture(stage.experiment, dataset.rows("train"))

    def train(work: Work) -> None:
        train_adapter(stage, work.scratch, dataset, base, recipe, drawn.row_ids, measure_validation=True)
        write_json(work.out / MIXTURE_FILE, mixture_record(drawn))

    outcome = stage.obtain(train, config=stage.experiment.slice("recipe", "serving.device"))
    return stage.materialize(outcome, describe_training(outcome.artifact))


def draw_mixture(experiment: Experiment, train_rows: Sequence[Row]) -> Mixture:
    """The rows of the training run, in the order drawn."""
    recipe = experiment.recipe
    return mixture(train_rows, recipe.mixture.model_dump(), recipe.draws(len(train_rows)), recipe.seed)


def mixture_record(drawn: Mixture) -> dict[str, Any]:
    """A mixture as lora_checkpoints' artifact holds it."""
    return {
        "row_ids": list(drawn.row_ids),
        "sha256": drawn.sha256,
        "counts": dict(drawn.counts),
        "realised": dict(drawn.realised),
    }


def checkpoint_directories(artifact: Artifact) -> dict[int, str]:
    """Step -> directory within an artifact of lora_checkpoints, in the order of training."""
    record = artifact.read_json(RECORD_FILE)
    return {entry["step"]: f"{CHECKPOINTS}/{checkpoint_name(entry['step'])}" for entry in record["checkpoints"]}


@stage_asset(
    group=GROUP,
    code_version=SCORING_CODE,
    kinds={"huggingface"},
    inputs=["arena_sft_dataset", "base_model", "lora_checkpoints"],
)
def checkpoint_scores(stage: Stage) -> MaterializeResult[Any]:
    """Every checkpoint's own replies to the whole validation split, scored."""
    dataset, trained = stage.dataset(stage.inputs["arena_sft_dataset"]), stage.inputs["lora_checkpoints"]
    base = stage.base_model(stage.inputs["base_model"])
    models = {
        checkpoint_name(step): (step, trained.path / directory)
        for step, directory in checkpoint_directories(trained).items()
    }
    outcome = stage.obtain(
        lambda work: score_models(stage, work.scratch, dataset, SELECTION_SPLIT, base, models),
        config=stage.experiment.slice("serving"),
    )
    return stage.materialize(outcome, describe_checkpoint_scores(outcome.artifact))


@stage_asset(
    group=GROUP,
    code_version="arena-select-v1.1",
    kinds={"python"},
    inputs=["arena_sft_dataset", "base_validation_scores", "lora_checkpoints", "checkpoint_scores"],
)
def selected_checkpoint(stage: Stage) -> MaterializeResult[Any]:
    """The checkpoint that goes on, chosen by its behaviour on validation alone.

    Where none is eligible, the best-scoring one is judged and nothing sealed is opened for it.
    """
    trained, scores = stage.inputs["lora_checkpoints"], stage.inputs["checkpoint_scores"]
    selection = select_checkpoint(stage, stage.inputs)
    step = judged_step(selection)

    def keep(work: Work) -> None:
        write_json(work.out / SELECTION_FILE, selection)
        write_json(work.out / VALIDATION_FILE, scores.read_json(f"{checkpoint_name(step)}/{SUMMARY_FILE}"))
        shutil.copytree(trained.path / checkpoint_directories(trained)[step], work.out / ADAPTER, dirs_exist_ok=True)

    outcome = stage.obtain(keep, config={"eligibility": asdict(eligibility(stage))})
    adapter = adapter_sha256(outcome.artifact.path / ADAPTER)
    return stage.materialize(outcome, {"adapter_sha256": adapter, "judged_step": step, **describe_selection(selection)})


def judged_step(selection: Mapping[str, Any]) -> int:
    """The step that the verdict is about: the selected one, or the best-scoring one where none is eligible."""
    selected = selection["selected_step"]
    return int(selection["best_scoring_step"] if selected is None else selected)


def select_checkpoint(reader: Reader, artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    """Select among the checkpoints of ``artifacts`` (those of selected_checkpoint's inputs).

    Raises ``EvaluationError`` unless each was scored on the whole pinned validation split.
    """
    scores, base = artifacts["checkpoint_scores"], artifacts["base_validation_scores"]
    rows = reader.dataset(artifacts["arena_sft_dataset"]).rows(SELECTION_SPLIT)
    sources = [
        f"{checkpoint_name(step)}/{SUMMARY_FILE}" for step in checkpoint_directories(artifacts["lora_checkpoints"])
    ]
    candidates = [Candidate(f"checkpoint_scores/{source}", scores.read_json(source)) for source in sources]
    untouched = Candidate(
        f"base_validation_scores/{BASE_SCORES}/{SUMMARY_FILE}", base.read_json(f"{BASE_SCORES}/{SUMMARY_FILE}")
    )
    experiment = reader.experiment
    least = RESULT_CHECKPOINTS if experiment.result else experiment.recipe.checkpoints
    require_scored_on(candidates, rows, least)
    return select(candidates, untouched, eligibility(reader))


@stage_asset(
    group=GROUP,
    code_version=EVALUATION_CODE,
    kinds={"huggingface"},
    inputs=["frozen_manifest", "prompts_in_use", "base_model", "selected_checkpoint"],
)
def sft_dev_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """The selected checkpoint on the development manifest: what decides whether the sealed sets may open."""
    manifest = stage.recorded_manifest(stage.inputs["frozen_manifest"], "development")
    pack = stage.prompts(stage.inputs["prompts_in_use"])
    base = stage.base_model(stage.inputs["base_model"])
    adapter = stage.inputs["selected_checkpoint"].path / ADAPTER
    outcome = stage.obtain(
        lambda work: evaluate_model(stage, work.scratch, manifest.name, pack, base, adapter=adapter),
        config={"manifest": manifest.name, **stage.experiment.slice("serving")},
    )
    return stage.materialize(outcome, describe_evaluation(outcome.artifact))
