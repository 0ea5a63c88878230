"""The verdict computed again from the saved files, and the card's hashes from the adapter's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from arena_pipeline.assets.card import FILES_FILE
from arena_pipeline.assets.sealed import closed_because
from arena_pipeline.assets.training import ADAPTER
from arena_pipeline.assets.verdict import EVIDENCE, VERDICT_FILE, completion_hashes, gather_evidence
from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.checks.recomputing import chosen_adapter, require_same
from arena_pipeline.errors import EvaluationError, IntegrityError
from arena_pipeline.evaluation.verdict import build_verdict
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.resources.reader import Reader


@blocking_check("gate_verdicts", "recomputed")
def verdict_recomputed(reader: Reader) -> dict[str, Any]:
    """Every gate follows from the saved files, and the ledger's row is complete with the hashes of these results."""
    artifacts = {name: reader.artifact(name) for name in EVIDENCE}
    evidence, artifact = gather_evidence(reader, artifacts), reader.artifact("gate_verdicts")
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
    """The hashes on the card are those of the adapter's files."""
    listed = reader.artifact("adapter_card").read_json(FILES_FILE)
    chosen = reader.artifact("selected_checkpoint")
    if listed["files"] != hash_tree(chosen.path / ADAPTER) or listed["adapter_sha256"] != chosen_adapter(reader):
        raise EvaluationError(f"adapter_card, {FILES_FILE}: not the hashes of the adapter in {chosen.path}")
    return {"adapter_sha256": listed["adapter_sha256"]}
