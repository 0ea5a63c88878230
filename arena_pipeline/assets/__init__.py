"""The assets of the lineage, one module per stage, in pipeline order."""

from arena_pipeline.assets.baseline import (
    base_arena_evaluation,
    base_dev_evaluation,
    base_validation_scores,
    oracle_evaluation,
    scripted_baselines,
)
from arena_pipeline.assets.evaluation import communication_comparison, sft_arena_evaluation, test_evaluation
from arena_pipeline.assets.inputs import (
    arena_sft_dataset,
    base_model,
    dataset_audit,
    frozen_manifest,
    machine_preflight,
    prompts_in_use,
)
from arena_pipeline.assets.training import (
    checkpoint_scores,
    lora_checkpoints,
    overfit_smoke,
    selected_checkpoint,
    sft_dev_evaluation,
)
from arena_pipeline.assets.verdict import adapter_card, gate_verdicts

ALL_ASSETS = (
    arena_sft_dataset,
    dataset_audit,
    prompts_in_use,
    frozen_manifest,
    base_model,
    machine_preflight,
    scripted_baselines,
    oracle_evaluation,
    base_dev_evaluation,
    base_arena_evaluation,
    base_validation_scores,
    overfit_smoke,
    lora_checkpoints,
    checkpoint_scores,
    selected_checkpoint,
    sft_dev_evaluation,
    test_evaluation,
    sft_arena_evaluation,
    communication_comparison,
    gate_verdicts,
    adapter_card,
)
