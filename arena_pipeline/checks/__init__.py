"""The blocking checks of the lineage; each computes again from bytes."""

from arena_pipeline.checks.baseline import (
    base_arena_recomputed,
    base_dev_recomputed,
    base_scores_recomputed,
    baselines_recomputed,
    oracle_perfect,
)
from arena_pipeline.checks.blocking import BODIES
from arena_pipeline.checks.evaluation import arena_bound, comparison_recomputed, test_bound
from arena_pipeline.checks.inputs import (
    audit_valid,
    base_model_pins,
    dataset_pins,
    gate_policy_pin,
    manifest_pins,
    prompt_pins,
)
from arena_pipeline.checks.training import (
    adapters_finite_and_moved,
    checkpoint_scores_recomputed,
    selection_recomputed,
    sft_dev_recomputed,
    smoke_schema,
)
from arena_pipeline.checks.verdict import card_files, verdict_recomputed

__all__ = ["ALL_CHECKS", "BODIES"]

ALL_CHECKS = (
    dataset_pins,
    audit_valid,
    prompt_pins,
    manifest_pins,
    gate_policy_pin,
    base_model_pins,
    baselines_recomputed,
    oracle_perfect,
    base_dev_recomputed,
    base_arena_recomputed,
    base_scores_recomputed,
    smoke_schema,
    adapters_finite_and_moved,
    checkpoint_scores_recomputed,
    selection_recomputed,
    sft_dev_recomputed,
    test_bound,
    arena_bound,
    comparison_recomputed,
    verdict_recomputed,
    card_files,
)
