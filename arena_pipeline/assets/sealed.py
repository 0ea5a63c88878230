"""When the sealed sets open for an experiment, and what holds once they have.

Source: evaluation specification, "Order" and "The sealed sets open once".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from arena_pipeline.assets.descriptions import read_rows
from arena_pipeline.assets.training import SELECTION_FILE, VALIDATION_FILE
from arena_pipeline.errors import SealedSetRefused
from arena_pipeline.evaluation.evidence import ArenaEvidence
from arena_pipeline.evaluation.runner import ACTION_RESPONSES_FILE, BROADCAST_RESPONSES_FILE, ROWS_FILE
from arena_pipeline.evaluation.runner import SUMMARY_FILE as ARENA_SUMMARY_FILE
from arena_pipeline.evaluation.verdict import OPENING_FIELDS, development_gates
from arena_pipeline.experiments import STANDARD_SEEDS
from arena_pipeline.provenance.artifacts import Artifact, ArtifactStore
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.provenance.ledger import Opening, sealed_set_sha256
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stage import Outcome, Stage, Work
from arena_pipeline.sft.scoring import RESPONSES_FILE, SUMMARY_FILE, VERDICTS_FILE

CLOSED_FILE = "closed.json"
OPENING_FILE = "opening.json"
TEST_SCORES = "test"


def sealed_set(reader: Reader, artifacts: Mapping[str, Artifact]) -> str:
    """The hash of the sealed set of an experiment: the test split's seeds and the manifest of the verdict.

    Raises ``SealedSetRefused`` for a rehearsal whose test rows are of the standard dataset, whatever its file says.
    """
    test_rows = reader.dataset(artifacts["arena_sft_dataset"]).rows("test")
    if not reader.experiment.result:
        refuse_standard_seeds(reader.experiment.name, (row.seed for row in test_rows))
    manifest = reader.recorded_manifest(artifacts["frozen_manifest"], "sealed")
    return sealed_set_sha256((row.seed for row in test_rows), manifest.sha256)


def refuse_standard_seeds(experiment: str, test_seeds: Iterable[int]) -> None:
    """Raise ``SealedSetRefused`` if a rehearsal's test split has a seed of the standard build, sealed for results."""
    if sealed := sorted(seed for seed in test_seeds if any(seed in standard for standard in STANDARD_SEEDS)):
        raise SealedSetRefused(
            f"experiment {experiment}, dataset.directory: result is false, but test rows are of seed {sealed[0]}, "
            "which is sealed for results; name a dataset of other seeds, such as one built with start_seed 100000"
        )


def reason_to_stay_closed(reader: Reader, artifacts: Mapping[str, Artifact]) -> str:
    """Why nothing sealed is opened, or "": a checkpoint must be eligible and the gates must pass on development.

    A rehearsal has no sealed cases; it opens what it has in their place, so that opening is rehearsed too.
    """
    chosen = artifacts["selected_checkpoint"]
    if chosen.read_json(SELECTION_FILE)["selected_step"] is None:
        return "no checkpoint was eligible on validation, so nothing sealed was opened"
    if not reader.experiment.result:
        return ""
    gates = development_gates(
        chosen.read_json(VALIDATION_FILE), development_evidence(artifacts), reader.project.gate_policy()
    )
    failed = [gate.name for gate in gates if not gate.passed]
    if failed:
        return f"{', '.join(failed)} did not pass on validation and on development cases, so nothing sealed was opened"
    return ""


def development_evidence(artifacts: Mapping[str, Artifact]) -> ArenaEvidence:
    """Base and tuned model on the development manifest, beside the baselines."""
    return ArenaEvidence(
        read_rows(artifacts["base_dev_evaluation"]),
        read_rows(artifacts["sft_dev_evaluation"]),
        artifacts["scripted_baselines"].read_json("development.json"),
    )


def closed_because(artifact: Artifact) -> str:
    """What an artifact of a sealed stage says of why nothing was opened; "" if it was."""
    return str(artifact.read_json(CLOSED_FILE)["because"]) if CLOSED_FILE in artifact.files else ""


def opening_facts(opening: Opening) -> dict[str, Any]:
    """What was fixed when a sealed set was opened."""
    return {name: value for name, value in opening.to_dict().items() if name in OPENING_FIELDS}


def obtain_opened(
    stage: Stage, opening: Opening, compute: Callable[[Work], None], config: Mapping[str, Any]
) -> Outcome:
    """``Stage.obtain`` for an opened set: once its result is recorded, that result is returned and nothing is asked.

    It is known by its hashes, not by its key: a later version of the code would file it elsewhere, and that is no
    reason to ask again. Raises ``SealedSetRefused`` if the recorded result is not in the store any more.
    """
    if opening.complete and stage.store.find(stage.asset, stage.key(config)) is None:
        if (recorded := _recorded_result(stage.store, opening).get(stage.asset)) is not None:
            stage.context.log.info(f"reused: the result that the ledger records (artifact {recorded.sha256})")
            return Outcome(recorded, True, 0.0)
        raise SealedSetRefused(
            f"sealed set {opening.sealed_set}: opened for experiment {opening.experiment_name} and completed on "
            f"{opening.completed_at}, but the recorded result of {stage.asset} is not in {stage.store.root}; "
            "restore it there: a sealed set is not asked twice"
        )
    return stage.obtain(compute, config=config)


def _recorded_result(store: ArtifactStore, opening: Opening) -> dict[str, Artifact]:
    """The artifacts of both sealed stages, by asset, that hash to what a complete opening records; none without."""
    recorded = (opening.responses_sha256, opening.rows_sha256, opening.summaries_sha256)
    for tested, played in product(filed(store, "test_evaluation"), filed(store, "sft_arena_evaluation")):
        if not (closed_because(tested) or closed_because(played)):
            # Two experiments may have got the same replies: each has a result of its own.
            facts = tested.read_json(OPENING_FILE)
            if any(facts[name] != value for name, value in opening_facts(opening).items()):
                continue
            found = result_hashes(tested, played)
            if (found["responses"], found["rows"], found["summaries"]) == recorded:
                return {"test_evaluation": tested, "sft_arena_evaluation": played}
    return {}


def filed(store: ArtifactStore, stage: str) -> list[Artifact]:
    """Everything in the store that was computed for a stage."""
    found = (store.find(stage, path.stem) for path in sorted((store.root / "keys" / stage).glob("*.json")))
    return [artifact for artifact in found if artifact is not None]


def result_hashes(tested: Artifact, played: Artifact) -> dict[str, str]:
    """What the ledger records of an opening's result: the hashes of its responses, rows and summaries."""

    def of(test_file: str, *arena_files: str) -> str:
        arena = {f"arena/{file}": played.files[file] for file in arena_files}
        return sha256_json({f"test/{test_file}": tested.files[f"{TEST_SCORES}/{test_file}"]} | arena)

    return {
        "responses": of(RESPONSES_FILE, BROADCAST_RESPONSES_FILE, ACTION_RESPONSES_FILE),
        "rows": of(VERDICTS_FILE, ROWS_FILE),
        "summaries": of(SUMMARY_FILE, ARENA_SUMMARY_FILE),
    }
