"""[verdict] Every gate from saved responses, and a card for the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagster import MaterializeResult

from arena_pipeline.assets.card import (
    CARD_FILE,
    CARD_INPUTS,
    CARD_SETTINGS,
    FILES_FILE,
    adapter_files,
    write_card,
)
from arena_pipeline.assets.descriptions import describe_verdict, read_rows
from arena_pipeline.assets.sealed import (
    OPENING_FILE,
    TEST_SCORES,
    closed_because,
    development_evidence,
    filed,
    result_hashes,
)
from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.assets.training import ADAPTER, SELECTION_FILE, VALIDATION_FILE
from arena_pipeline.evaluation.evidence import ArenaEvidence, Evidence, SealedEvidence
from arena_pipeline.evaluation.verdict import build_verdict
from arena_pipeline.provenance.artifacts import Artifact
from arena_pipeline.provenance.files import write_bytes, write_json, write_text
from arena_pipeline.provenance.ledger import Opening
from arena_pipeline.resources.metadata import markdown, table
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stage import Outcome, Stage, Work
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.sft.rows import content_sha256
from arena_pipeline.sft.scoring import SEALED_SPLIT, SUMMARY_FILE
from arena_pipeline.sft.selection import SELECTION_SPLIT

GROUP: Final = "verdict"
VERDICT_FILE: Final = "verdict.json"
EXPERIMENT_FILE: Final = "experiment.json"
"""The settings that a verdict was come to under, defaults included, beside the verdict."""
VERDICT_CODE: Final = "arena-verdict-v1.1"

EVIDENCE: Final = (
    "arena_sft_dataset",
    "frozen_manifest",
    "base_model",
    "scripted_baselines",
    "base_dev_evaluation",
    "base_arena_evaluation",
    "selected_checkpoint",
    "sft_dev_evaluation",
    "test_evaluation",
    "sft_arena_evaluation",
)
"""All that a verdict follows from."""


@stage_asset(
    group=GROUP,
    code_version=VERDICT_CODE,
    kinds={"python", "json"},
    inputs=EVIDENCE,
    after=["communication_comparison"],
)
def gate_verdicts(stage: Stage) -> MaterializeResult[Any]:
    """Every gate's verdict, computed from saved responses; it is also what completes the opening in the ledger."""
    policy, opening = stage.project.gate_policy(), _own_opening(stage)
    settings = stage.experiment.resolved()
    recorded = None if opening is None else recorded_verdict(stage, opening)

    def write(work: Work) -> None:
        write_json(work.out / EXPERIMENT_FILE, settings)
        if recorded is None:
            write_json(work.out / VERDICT_FILE, build_verdict(gather_evidence(stage, stage.inputs)))
        else:
            write_bytes(work.out / VERDICT_FILE, recorded.read_bytes(VERDICT_FILE))

    if recorded is not None and _stated_settings(recorded) == settings:
        outcome = Outcome(recorded, True, 0.0)
    else:
        outcome = stage.obtain(write, config={"policy_sha256": policy.sha256, "experiment": settings})
    described = describe_verdict(outcome.artifact.read_json(VERDICT_FILE))
    if opening is not None:
        completed = stage.ledger.ledger.complete(opening, **completion_hashes(stage.inputs, outcome.artifact))
        described["ledger_row"] = table([completed.to_dict()])
    return stage.materialize(outcome, described)


def recorded_verdict(stage: Stage, opening: Opening) -> Artifact | None:
    """The verdict that a complete opening records, by its hash and not by its key; None where there is none yet.

    Of several it is the one beside the present settings: the description, which is no part of an experiment's identity,
    may have changed since.
    """
    found = [
        artifact
        for artifact in (filed(stage.store, stage.asset) if opening.complete else ())
        if artifact.files[VERDICT_FILE] == opening.verdict_sha256
    ]
    settings = stage.experiment.resolved()
    return max(found, key=lambda artifact: _stated_settings(artifact) == settings, default=None)


def _stated_settings(artifact: Artifact) -> Any:
    return artifact.read_json(EXPERIMENT_FILE) if EXPERIMENT_FILE in artifact.files else None


def gather_evidence(reader: Reader, artifacts: Mapping[str, Artifact]) -> Evidence:
    """The evidence that a verdict follows from, out of the artifacts of ``EVIDENCE``."""
    dataset = reader.dataset(artifacts["arena_sft_dataset"])
    chosen, tested = artifacts["selected_checkpoint"], artifacts["test_evaluation"]
    experiment = reader.experiment
    because = closed_because(tested)
    opening = None if because else tested.read_json(OPENING_FILE)
    return Evidence(
        experiment=experiment.name,
        code_version=VERDICT_CODE,
        policy=reader.project.gate_policy(),
        dataset_version=str(dataset.rows("train")[0].metadata["dataset_version"]),
        dataset_sha256=dataset.content_sha256,
        manifest_sha256=reader.recorded_manifest(artifacts["frozen_manifest"], "sealed").sha256,
        base_sha256=reader.base_model(artifacts["base_model"]).sha256,
        adapter_sha256=adapter_sha256(chosen.path / ADAPTER),
        selection=chosen.read_json(SELECTION_FILE),
        validation=chosen.read_json(VALIDATION_FILE),
        ids_sha256={
            split: content_sha256(row.id for row in dataset.rows(split)) for split in (SELECTION_SPLIT, SEALED_SPLIT)
        },
        development=development_evidence(artifacts),
        sealed=None if opening is None else _sealed_evidence(artifacts, opening["ordinal"]),
        closed_because=because,
        result=experiment.result,
        openings=[] if opening is None else opening["openings"],
        openings_elsewhere=[] if opening is None else opening["openings_elsewhere"],
    )


def _sealed_evidence(artifacts: Mapping[str, Artifact], ordinal: int) -> SealedEvidence:
    arena = ArenaEvidence(
        read_rows(artifacts["base_arena_evaluation"]),
        read_rows(artifacts["sft_arena_evaluation"]),
        artifacts["scripted_baselines"].read_json("sealed.json"),
    )
    return SealedEvidence(artifacts["test_evaluation"].read_json(f"{TEST_SCORES}/{SUMMARY_FILE}"), arena, ordinal)


def completion_hashes(artifacts: Mapping[str, Artifact], verdict: Artifact) -> dict[str, str]:
    """What the ledger records when an opening is complete: the hashes of all that it led to."""
    results = result_hashes(artifacts["test_evaluation"], artifacts["sft_arena_evaluation"])
    return results | {"verdict": verdict.files[VERDICT_FILE]}


def _own_opening(stage: Stage) -> Opening | None:
    """The ledger's row of this experiment; None where nothing was opened.

    Also None where an experiment of another name and the same settings opened first: its verdict is the recorded one.
    """
    tested = stage.inputs["test_evaluation"]
    if closed_because(tested):
        return None
    adapter = adapter_sha256(stage.inputs["selected_checkpoint"].path / ADAPTER)
    named = tested.read_json(OPENING_FILE)["sealed_set"]
    opening = stage.ledger.ledger.require(named, stage.experiment.identity, adapter)
    return opening if opening.experiment_name == stage.experiment.name else None


@stage_asset(
    group=GROUP,
    code_version="card-3",
    kinds={"markdown"},
    inputs=CARD_INPUTS,
)
def adapter_card(stage: Stage) -> MaterializeResult[Any]:
    """A card for whoever is handed the adapter: base, data, recipe, gates, limits, loading, and every file's hash."""
    settings = stage.experiment.slice(*CARD_SETTINGS)

    def write(work: Work) -> None:
        write_json(work.out / FILES_FILE, adapter_files(stage.inputs["selected_checkpoint"]))
        write_text(work.out / CARD_FILE, write_card(settings, stage.inputs))

    outcome = stage.obtain(write, config=settings)
    card = outcome.artifact.read_bytes(CARD_FILE).decode("utf-8")
    files = outcome.artifact.read_json(FILES_FILE)
    return stage.materialize(
        outcome,
        {
            "card": markdown(card),
            "adapter_files": table([{"file": name, "sha256": sha256} for name, sha256 in files["files"].items()]),
            "adapter_sha256": files["adapter_sha256"],
        },
    )
