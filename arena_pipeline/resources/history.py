"""What Dagster's event log says of an asset: its latest artifact, what that was made from, whether its checks passed.

A blocking check stops what follows only inside one run (known trouble 41), and assets may be materialized one by one,
in any order: so every body asks here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from dagster import AssetCheckKey, AssetKey, AssetRecordsFilter, DagsterInstance, TableMetadataValue
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from arena_pipeline.errors import ArtifactError, EvaluationError
from arena_pipeline.resources.metadata import table

DATA_VERSION_TAG: Final = "dagster/data_version"
INPUTS: Final = "inputs"
"""Metadata of a materialization: a table of the upstream artifacts that it was made from."""

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
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Upstream asset -> the SHA-256 of the artifact that this one was made from."""


def latest_materialization(instance: DagsterInstance, asset: str, partition: str) -> Materialization:
    """The latest materialization in the event log; ``ArtifactError`` if there is none."""
    wanted = AssetRecordsFilter(asset_key=AssetKey(asset), asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or (event := records[0].asset_materialization) is None:
        raise ArtifactError(f"{asset}, experiment {partition}: never materialized; materialize it first")
    sha256 = (event.tags or {}).get(DATA_VERSION_TAG, "")
    return Materialization(asset, records[0].storage_id, sha256, _recorded_inputs(event.metadata.get(INPUTS)))


def inputs_table(inputs: Mapping[str, str]) -> TableMetadataValue:
    """What is recorded of a materialization's inputs, upstream asset -> the SHA-256 of its artifact."""
    return table([{"input": name, "sha256": sha256} for name, sha256 in sorted(inputs.items())])


def _recorded_inputs(recorded: object) -> dict[str, str]:
    """``inputs_table``, read back; an asset without inputs records none."""
    rows = recorded.records if isinstance(recorded, TableMetadataValue) else []
    return {str(row.data["input"]): str(row.data["sha256"]) for row in rows}


def require_current_inputs(instance: DagsterInstance, latest: Sequence[Materialization], partition: str) -> None:
    """Raise ``ArtifactError`` unless these latest materializations, and all behind them, were made from the latest.

    Else figures of one lineage would be read beside the artifacts of another. The message says what to materialize
    again, and in which order.
    """
    known = {made.asset: made for made in latest}
    visited: set[str] = set()
    stale: dict[str, str] = {}

    def visit(asset: str) -> None:
        if asset in visited:
            return
        visited.add(asset)
        if asset not in known:
            known[asset] = latest_materialization(instance, asset, partition)
        inputs = known[asset].inputs
        for upstream in inputs:
            visit(upstream)
        # After what it was made from: what is named first is what to begin with.
        for upstream, used in inputs.items():
            if (current := known[upstream].artifact_sha256) != used:
                stale.setdefault(asset, f"made from {upstream} {used}, which is now {current}")

    for made in latest:
        visit(made.asset)
    if stale:
        asset, reason = next(iter(stale.items()))
        again = ", then ".join(stale)
        raise ArtifactError(f"{asset}, experiment {partition}: {reason}; materialize {again} again")


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
