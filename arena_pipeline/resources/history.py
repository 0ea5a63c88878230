"""What Dagster's event log says of an asset: its latest artifact in a partition, and whether its checks passed on it.

A blocking check stops what follows only inside one run (known trouble 41), so every body asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dagster import AssetCheckKey, AssetKey, AssetRecordsFilter, DagsterInstance
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from arena_pipeline.errors import ArtifactError, EvaluationError

DATA_VERSION_TAG: Final = "dagster/data_version"

BLOCKING_CHECKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "arena_sft_dataset": ("pins",),
        "dataset_audit": ("valid",),
        "prompts_in_use": ("pins",),
        "frozen_manifest": ("pins", "gate_policy"),
        "base_model": ("pins",),
        "scripted_baselines": ("recomputed",),
        "oracle_evaluation": ("perfect",),
        "base_dev_evaluation": ("recomputed",),
        "base_arena_evaluation": ("recomputed",),
        "base_validation_scores": ("recomputed",),
        "overfit_smoke": ("schema",),
        "lora_checkpoints": ("finite_and_moved",),
        "checkpoint_scores": ("recomputed",),
        "selected_checkpoint": ("recomputed",),
        "sft_dev_evaluation": ("recomputed",),
        "test_evaluation": ("bound_in_ledger",),
        "sft_arena_evaluation": ("bound_in_ledger",),
        "communication_comparison": ("recomputed",),
        "gate_verdicts": ("recomputed",),
        "adapter_card": ("files",),
    }
)
"""Asset -> its blocking checks. Whoever reads the asset's artifact requires them on that very materialization."""


@dataclass(frozen=True, slots=True)
class Materialization:
    """The latest materialization of an asset in a partition."""

    asset: str
    storage_id: int
    artifact_sha256: str


def latest_materialization(instance: DagsterInstance, asset: str, partition: str) -> Materialization:
    """The latest materialization in the event log; ``ArtifactError`` if there is none."""
    wanted = AssetRecordsFilter(asset_key=AssetKey(asset), asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or (event := records[0].asset_materialization) is None:
        raise ArtifactError(f"{asset}, experiment {partition}: never materialized; materialize it first")
    sha256 = (event.tags or {}).get(DATA_VERSION_TAG, "")
    return Materialization(asset, records[0].storage_id, sha256)


def require_checks(instance: DagsterInstance, materialization: Materialization, partition: str) -> None:
    """Raise ``EvaluationError`` unless every blocking check passed, last time it ran, on this materialization."""
    asset = materialization.asset
    for name in BLOCKING_CHECKS.get(asset, ()):
        # Only evaluations: a run that ended before its check leaves the record of a plan.
        history = instance.event_log_storage.get_asset_check_execution_history(
            AssetCheckKey(AssetKey(asset), name),
            limit=1,
            status={AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED},
            partition_filter=PartitionKeyFilter(key=partition),
        )
        evaluation = history[0].evaluation if history else None
        target = evaluation.target_materialization_data if evaluation else None
        if evaluation is None or target is None or target.storage_id != materialization.storage_id:
            raise EvaluationError(
                f"{asset}, experiment {partition}: its check {name} did not run on its latest materialization; "
                f"materialize {asset} with its checks"
            )
        if history[0].status is not AssetCheckExecutionRecordStatus.SUCCEEDED:
            reason = evaluation.description or "no reason given"
            raise EvaluationError(f"{asset}, experiment {partition}: its check {name} failed: {reason}")
