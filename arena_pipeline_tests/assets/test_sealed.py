"""What opens a sealed set: one experiment identity, its own row and its own result."""

from __future__ import annotations

from arena_pipeline_tests.lineages import Lineage, materialized


def test_an_experiment_that_differs_where_no_reply_depends_on_it_opens_for_itself(copy: Lineage) -> None:
    """Another identity is another opening: it gets a result of its own, not the first one's with the first's row."""
    copy.edit_experiment("minimum_disk_gib = 1", "minimum_disk_gib = 0.5")
    stages = ("test_evaluation", "sft_arena_evaluation", "communication_comparison", "gate_verdicts")
    result = copy.run_only(*stages)
    assert result.failures == []
    assert set(result.computed) >= {"test_evaluation", "sft_arena_evaluation", "gate_verdicts"}
    assert materialized(copy, "test_evaluation").read_json("opening.json")["ordinal"] == 2
    assert len(copy.ledger_rows()) == 2
