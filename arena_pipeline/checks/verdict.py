"""The verdict computed again from the saved files, and the card from them and from the adapter's bytes."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import Any

from arena_pipeline.assets.card import CARD_FILE, CARD_INPUTS, CARD_SETTINGS, FILES_FILE, write_card
from arena_pipeline.assets.sealed import closed_because
from arena_pipeline.assets.training import ADAPTER
from arena_pipeline.assets.verdict import EVIDENCE, EXPERIMENT_FILE, VERDICT_FILE, completion_hashes, gather_evidence
from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.checks.recomputing import chosen_adapter, require_same
from arena_pipeline.errors import EvaluationError, IntegrityError
from arena_pipeline.evaluation.verdict import build_verdict
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.resources.reader import Reader


@blocking_check("gate_verdicts", "recomputed")
def verdict_recomputed(reader: Reader) -> dict[str, Any]:
    """Every gate follows from the saved files, under the settings saved beside it, which are those in force.

    The ledger's row is complete with the hashes of these results.
    """
    artifact, artifacts = reader.artifact("gate_verdicts"), {name: reader.artifact(name) for name in EVIDENCE}
    settings = artifact.read_json(EXPERIMENT_FILE)
    require_same(f"gate_verdicts, {EXPERIMENT_FILE}", settings, reader.experiment.resolved())
    evidence = gather_evidence(reader, artifacts)
    saved = artifact.read_json(VERDICT_FILE)
    # A recorded verdict stands as the code of its day wrote it; its figures must be what today's code finds too.
    verdict = build_verdict(replace(evidence, code_version=str(saved.get("code_version"))))
    require_same(f"gate_verdicts, {VERDICT_FILE}", saved, verdict)
    shown = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    if closed_because(artifacts["test_evaluation"]):
        return shown
    own = evidence.openings[-1]
    opening = reader.ledger.ledger.require(own["sealed_set"], own["experiment_identity"], evidence.adapter_sha256)
    if opening.experiment_name == reader.experiment.name:
        for name, expected in completion_hashes(artifacts, artifact).items():
            if (recorded := getattr(opening, f"{name}_sha256")) != expected:
                raise IntegrityError(f"ledger, {name} of opening {opening.ordinal}", str(recorded), expected)
    return shown


@blocking_check("adapter_card", "files")
def card_files(reader: Reader) -> dict[str, Any]:
    """The card's text follows from the other artifacts, and its hashes are those of the adapter's files."""
    card, artifacts = reader.artifact("adapter_card"), {name: reader.artifact(name) for name in CARD_INPUTS}
    listed, chosen = card.read_json(FILES_FILE), artifacts["selected_checkpoint"]
    if listed["files"] != hash_tree(chosen.path / ADAPTER) or listed["adapter_sha256"] != chosen_adapter(reader):
        raise EvaluationError(f"adapter_card, {FILES_FILE}: not the hashes of the adapter in {chosen.path}")
    _require_same_text(
        card.read_bytes(CARD_FILE).decode("utf-8", errors="replace"),
        write_card(reader.experiment.slice(*CARD_SETTINGS), artifacts),
    )
    return {"adapter_sha256": listed["adapter_sha256"]}


def _require_same_text(saved: str, computed: str) -> None:
    """Raise ``EvaluationError`` naming the first line of a card that is not the one just computed."""
    lines = zip_longest(saved.split("\n"), computed.split("\n"))
    for number, (found, expected) in enumerate(lines, start=1):
        if found != expected:
            raise EvaluationError(
                f"adapter_card, {CARD_FILE}:{number}: {found!r} instead of {expected!r}, computed again; materialize "
                "it again"
            )
