"""The job over the whole lineage, the sensor that keeps the partitions, and running a lineage in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dagster import (
    AssetSelection,
    DagsterInstance,
    DefaultSensorStatus,
    Definitions,
    PartitionedConfig,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    define_asset_job,
    in_process_executor,
    sensor,
)

from arena_pipeline.assets import ALL_ASSETS
from arena_pipeline.checks import ALL_CHECKS
from arena_pipeline.errors import ArenaError
from arena_pipeline.experiments import EXPERIMENTS as EXPERIMENTS_FOLDER
from arena_pipeline.experiments import list_experiments, load_experiment
from arena_pipeline.progress import Progress, silent
from arena_pipeline.resources.execution import EventListener, RunResult, materialize_lineage
from arena_pipeline.resources.locations import project_root
from arena_pipeline.resources.partitions import EXPERIMENTS
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource

GPU_TAG: Final = "arena/gpu"
JOB_NAME: Final = "lineage"
SENSOR_SECONDS: Final = 30

RESOURCES: Final[Mapping[str, Any]] = {
    "project": ProjectResource(),
    "artifacts": ArtifactStoreResource(),
    "ledger": LedgerResource(),
}


def run_tags(experiment: str) -> dict[str, str]:
    """Tags of an experiment's runs: those that need a GPU wait for one another in the queue.

    Run tags, because the queue sees no others (known trouble 42); and not a pool, which would sit on the assets of
    every experiment, so that one without a GPU would wait behind one with it.
    """
    try:
        needs_gpu = load_experiment(experiment, project_root()).machine.gpu
    except ArenaError:
        # The file is gone or broken: the run itself will say so.
        return {}
    return {GPU_TAG: "true"} if needs_gpu else {}


lineage = define_asset_job(
    JOB_NAME,
    selection=AssetSelection.all(),
    description="Everything from the pinned inputs to the verdict, for one experiment.",
    config=PartitionedConfig(
        partitions_def=EXPERIMENTS,
        run_config_for_partition_key_fn=lambda experiment: {},
        tags_for_partition_key_fn=run_tags,
    ),
)


@sensor(
    name="experiments",
    description="Adds a partition for each new file in data/experiments; one whose file is gone keeps its history.",
    minimum_interval_seconds=SENSOR_SECONDS,
    default_status=DefaultSensorStatus.RUNNING,
)
def experiments_sensor(context: SensorEvaluationContext) -> SensorResult | SkipReason:
    """Add the partitions of new experiment files."""
    known = set(context.instance.get_dynamic_partitions(str(EXPERIMENTS.name)))
    names = list_experiments(project_root() / EXPERIMENTS_FOLDER)
    missing = [name for name in names if name not in known]
    if not missing:
        return SkipReason(f"all {len(names)} experiments have their partition")
    return SensorResult(dynamic_partitions_requests=[EXPERIMENTS.build_add_request(missing)])


def build_definitions() -> Definitions:
    """The code location: assets, checks, job, sensor and resources."""
    return Definitions(
        assets=ALL_ASSETS,
        asset_checks=ALL_CHECKS,
        jobs=[lineage],
        sensors=[experiments_sensor],
        resources=RESOURCES,
        # One step at a time, in the run's own process: what is heavy runs in a child of its own anyway, two of those
        # would only share the cores, and few writers spare the event log's SQLite file (known trouble 45).
        executor=in_process_executor,
    )


def run_lineage(
    experiment: str,
    until: str | None = None,
    root: Path | None = None,
    progress: Progress = silent,
    instance: DagsterInstance | None = None,
    on_event: EventListener | None = None,
) -> RunResult:
    """Materialize an experiment's lineage, or what leads up to the asset ``until``, with its checks, in this process.

    ``root`` is the project (ARENA_PROJECT_DIR or this clone if left out), ``progress`` gets what the steps report.
    Without ``instance`` the one of the project is used. ``on_event`` gets every entry of the event log as it is
    written, which then goes to no other output. What was computed before is verified and reused. Failures are in the
    result; raises ``ConfigError`` for an unknown asset, or for an experiment that is not there or not valid.
    """
    job = build_definitions().resolve_job_def(JOB_NAME)
    return materialize_lineage(job, experiment, until, root, progress, instance, on_event)
