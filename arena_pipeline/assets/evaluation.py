"""[evaluation] The sealed sets, once: the selected checkpoint on the test split and on the manifest of the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagster import MaterializeResult

from arena_pipeline.assets.baseline import EVALUATION_CODE, SCORING_CODE
from arena_pipeline.assets.descriptions import describe_comparison, describe_evaluation, describe_scores, read_rows
from arena_pipeline.assets.model_work import evaluate_model, score_models
from arena_pipeline.assets.sealed import (
    CLOSED_FILE,
    OPENING_FILE,
    TEST_SCORES,
    closed_because,
    obtain_opened,
    opening_facts,
    reason_to_stay_closed,
    sealed_set,
)
from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.assets.training import ADAPTER, SELECTION_FILE, judged_step
from arena_pipeline.evaluation.comparison import compare
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.provenance.files import write_json
from arena_pipeline.resources.metadata import table
from arena_pipeline.resources.stage import Stage, Work
from arena_pipeline.serving.adapters import adapter_sha256

GROUP: Final = "evaluation"
DEVELOPMENT_FILE: Final = "development.json"
SEALED_FILE: Final = "sealed.json"


@stage_asset(
    group=GROUP,
    code_version=f"{SCORING_CODE}.sealed-1",
    kinds={"huggingface"},
    inputs=["arena_sft_dataset", "frozen_manifest", "base_model", "selected_checkpoint"],
    after=["scripted_baselines", "base_dev_evaluation", "base_arena_evaluation", "sft_dev_evaluation"],
)
def test_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """Opens the sealed sets: a row in the ledger, then the selected checkpoint on the test split, once.

    They open only if the gates pass on validation and the development manifest; else this says why they stay closed.
    """
    looked_at = ("scripted_baselines", "base_dev_evaluation", "sft_dev_evaluation")
    artifacts = {**stage.inputs, **{name: stage.passed(name) for name in looked_at}}
    dataset = stage.dataset(stage.inputs["arena_sft_dataset"])
    base = stage.base_model(stage.inputs["base_model"])
    adapter = stage.inputs["selected_checkpoint"].path / ADAPTER
    named, identity = sealed_set(stage, artifacts), stage.experiment.identity
    ledger, adapter_hash = stage.ledger.ledger, adapter_sha256(adapter)
    opened_before = any(
        (opening.experiment_identity, opening.adapter_sha256) == (identity, adapter_hash)
        for opening in ledger.openings(named)
    )
    # What was opened stays opened, whatever a stricter policy would say now.
    if not opened_before and (because := reason_to_stay_closed(stage, artifacts)):
        return _closed(stage, because)
    opening = ledger.open(named, identity, stage.experiment.name, adapter_hash, stage.context.run.run_id)
    stage.context.log.info(f"sealed set {named}: opening {opening.ordinal}, {opening.outcome}")

    def score(work: Work) -> None:
        models = {TEST_SCORES: (_step(stage), adapter)}
        score_models(stage, work.scratch, dataset, "test", base, models, opened_for_adapter=opening.adapter_sha256)
        earlier = [opening_facts(one) for one in ledger.openings(named) if one.ordinal <= opening.ordinal]
        elsewhere = [opening_facts(one) for one in stage.ledger.elsewhere(named)]
        write_json(
            work.out / OPENING_FILE, {**opening_facts(opening), "openings": earlier, "openings_elsewhere": elsewhere}
        )

    config = {"sealed_set": named, "experiment_identity": identity, **stage.experiment.slice("serving")}
    outcome = obtain_opened(stage, opening, score, config)
    return stage.materialize(
        outcome,
        {
            "opened": True,
            "opening": opening.ordinal,
            "ledger_row": table([opening_facts(opening)]),
            **describe_scores(outcome.artifact, TEST_SCORES),
        },
    )


def _step(stage: Stage) -> int:
    # Not the selected step: under a stricter policy, what was opened before goes on though nothing is eligible now.
    return judged_step(stage.inputs["selected_checkpoint"].read_json(SELECTION_FILE))


def _closed(stage: Stage, because: str) -> MaterializeResult[Any]:
    outcome = stage.obtain(
        lambda work: write_json(work.out / CLOSED_FILE, {"opened": False, "because": because}),
        config={"closed_because": because},
    )
    return stage.materialize(outcome, {"opened": False, "closed_because": because})


@stage_asset(
    group=GROUP,
    code_version=f"{EVALUATION_CODE}.sealed-1",
    kinds={"huggingface"},
    inputs=["frozen_manifest", "prompts_in_use", "base_model", "selected_checkpoint", "test_evaluation"],
)
def sft_arena_evaluation(stage: Stage) -> MaterializeResult[Any]:
    """The selected checkpoint on the manifest of the verdict, once: it requires the ledger's row of this adapter."""
    tested = stage.inputs["test_evaluation"]
    if because := closed_because(tested):
        return _closed(stage, because)
    manifest = stage.recorded_manifest(stage.inputs["frozen_manifest"], "sealed")
    pack = stage.prompts(stage.inputs["prompts_in_use"])
    base = stage.base_model(stage.inputs["base_model"])
    adapter = stage.inputs["selected_checkpoint"].path / ADAPTER
    named, identity = tested.read_json(OPENING_FILE)["sealed_set"], stage.experiment.identity
    opening = stage.ledger.ledger.require(named, identity, adapter_sha256(adapter))

    def play(work: Work) -> None:
        evaluate_model(stage, work.scratch, manifest.name, pack, base, adapter, opening.adapter_sha256)

    config = {"manifest": manifest.name, "experiment_identity": identity, **stage.experiment.slice("serving")}
    outcome = obtain_opened(stage, opening, play, config)
    return stage.materialize(
        outcome, {"opened": True, "opening": opening.ordinal, **describe_evaluation(outcome.artifact)}
    )


@stage_asset(
    group=GROUP,
    code_version="comparison-1",
    kinds={"python"},
    inputs=[
        "base_dev_evaluation",
        "sft_dev_evaluation",
        "base_arena_evaluation",
        "test_evaluation",
        "sft_arena_evaluation",
    ],
)
def communication_comparison(stage: Stage) -> MaterializeResult[Any]:
    """Base versus fine-tuned model, paired by case, in the four conditions: on development, and on what was opened."""
    alpha = stage.project.gate_policy().alpha

    def write(work: Work) -> None:
        for name, comparison in comparisons(stage.inputs, alpha).items():
            write_json(work.out / name, comparison)

    outcome = stage.obtain(write, config={"alpha": alpha})
    written = [name for name in (DEVELOPMENT_FILE, SEALED_FILE) if name in outcome.artifact.files]
    found: dict[str, Any] = {name: outcome.artifact.read_json(name) for name in written}
    return stage.materialize(outcome, describe_comparison(found))


def comparisons(artifacts: Mapping[str, Artifact], alpha: float) -> dict[str, dict[str, Any]]:
    """The comparisons that can be made, by the file that holds them."""
    base, tuned = artifacts["base_dev_evaluation"], artifacts["sft_dev_evaluation"]
    found = {DEVELOPMENT_FILE: compare(read_rows(base), read_rows(tuned), alpha=alpha)}
    tested = artifacts["test_evaluation"]
    if not closed_because(tested):
        base, tuned = artifacts["base_arena_evaluation"], artifacts["sft_arena_evaluation"]
        ordinal = tested.read_json(OPENING_FILE)["ordinal"]
        found[SEALED_FILE] = compare(read_rows(base), read_rows(tuned), ordinal, alpha)
    return found
