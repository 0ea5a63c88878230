"""The one partitioning of all assets and checks: a partition for each experiment file."""

from __future__ import annotations

from dagster import DagsterInstance, DynamicPartitionsDefinition

EXPERIMENTS = DynamicPartitionsDefinition(name="experiments")


def add_experiments(instance: DagsterInstance, names: list[str]) -> list[str]:
    """Add the partitions that are missing and return them; a partition whose file is gone keeps its history."""
    known = set(instance.get_dynamic_partitions("experiments"))
    missing = [name for name in names if name not in known]
    if missing:
        instance.add_dynamic_partitions("experiments", missing)
    return missing
