"""What the sealed sets said: computed again from saved replies, and bound to the one row in the ledger."""

from __future__ import annotations

from typing import Any

from arena_pipeline.assets.evaluation import comparisons
from arena_pipeline.assets.sealed import OPENING_FILE, TEST_SCORES, closed_because, opening_facts, sealed_set
from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.checks.recomputing import (
    chosen_adapter,
    evaluation_figures,
    recomputed_evaluation,
    recomputed_scores,
    require_same,
)
from arena_pipeline.errors import EvaluationError
from arena_pipeline.provenance.ledger import Opening
from arena_pipeline.resources.reader import Reader


@blocking_check("test_evaluation", "bound_in_ledger")
def test_bound(reader: Reader) -> dict[str, Any]:
    """The ledger holds the opening by this very adapter, and the test summary follows from the saved replies.

    Where nothing was opened, the ledger holds no row of this experiment and this adapter.
    """
    artifact, adapter = reader.artifact("test_evaluation"), chosen_adapter(reader)
    named = sealed_set(reader, {name: reader.artifact(name) for name in ("arena_sft_dataset", "frozen_manifest")})
    if because := closed_because(artifact):
        opened = [one for one in reader.ledger.ledger.openings(named) if _is_of(one, reader, adapter)]
        if opened:
            raise EvaluationError(f"test_evaluation says that nothing was opened, the ledger says: {opened[0]}")
        return {"closed_because": because}
    opening = reader.ledger.ledger.require(named, reader.experiment.identity, adapter)
    saved = artifact.read_json(OPENING_FILE)
    until_then = [one for one in reader.ledger.ledger.openings(named) if one.ordinal <= opening.ordinal]
    facts = {**opening_facts(opening), "openings": [opening_facts(one) for one in until_then]}
    # Openings elsewhere are what exports said at that time; they grow, and no ledger here can prove them.
    facts["openings_elsewhere"] = saved.get("openings_elsewhere")
    require_same(f"test_evaluation, {OPENING_FILE}", saved, facts)
    summary = recomputed_scores(reader, artifact, "test", TEST_SCORES, adapter)
    return {"opening": opening.ordinal, "examples": summary["examples"], "schema_valid": summary["schema_valid"]}


def _is_of(opening: Opening, reader: Reader, adapter: str) -> bool:
    return (opening.experiment_identity, opening.adapter_sha256) == (reader.experiment.identity, adapter)


@blocking_check("sft_arena_evaluation", "bound_in_ledger")
def arena_bound(reader: Reader) -> dict[str, Any]:
    """The ledger holds the opening by this very adapter, and rows and summary follow from the saved replies."""
    tested = reader.artifact("test_evaluation")
    because = closed_because(reader.artifact("sft_arena_evaluation"))
    if because != closed_because(tested):
        raise EvaluationError("sft_arena_evaluation and test_evaluation disagree on whether anything was opened")
    if because:
        return {"closed_because": because}
    adapter = chosen_adapter(reader)
    reader.ledger.ledger.require(tested.read_json(OPENING_FILE)["sealed_set"], reader.experiment.identity, adapter)
    return evaluation_figures(recomputed_evaluation(reader, "sft_arena_evaluation", "sealed", adapter))


@blocking_check("communication_comparison", "recomputed")
def comparison_recomputed(reader: Reader) -> dict[str, Any]:
    """Every paired figure follows from the saved rows of both models."""
    names = (
        "base_dev_evaluation",
        "sft_dev_evaluation",
        "base_arena_evaluation",
        "test_evaluation",
        "sft_arena_evaluation",
    )
    found = comparisons({name: reader.artifact(name) for name in names}, reader.project.gate_policy().alpha)
    artifact = reader.artifact("communication_comparison")
    if sorted(artifact.files) != sorted(found):
        raise EvaluationError(f"communication_comparison: holds {sorted(artifact.files)}, expected {sorted(found)}")
    for name, comparison in found.items():
        require_same(f"communication_comparison, {name}", artifact.read_json(name), comparison)
    return {name: comparison["regret_difference"]["generated"]["mean"] for name, comparison in found.items()}
