"""Running a job for one experiment in this process, and reducing what happened to what a person needs to know."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from dagster import AssetKey, AssetSelection, DagsterInstance, EventLogEntry, ExecuteInProcessResult, JobDefinition
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData

from arena_pipeline import errors
from arena_pipeline.errors import ArenaError, ConfigError
from arena_pipeline.experiments import load_experiment
from arena_pipeline.progress import Progress
from arena_pipeline.resources.history import latest_materialization
from arena_pipeline.resources.instance import open_instance
from arena_pipeline.resources.locations import project_root
from arena_pipeline.resources.partitions import add_experiments
from arena_pipeline.resources.progress import attach
from arena_pipeline.resources.stores import ArtifactStoreResource

EventListener = Callable[[EventLogEntry], None]

_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""For a caller who follows the events: they are then not written to standard error too."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run of the lineage did.

    ``verdict``, ``verdict_path`` and ``adapter_path`` are None where the run did not come to a verdict. ``reused`` and
    ``computed`` name the assets whose artifact was there already, and those that were made now; ``failures`` has one
    line for each step or check that failed.
    """

    experiment: str
    success: bool
    run_id: str
    verdict: dict[str, Any] | None = None
    verdict_path: Path | None = None
    adapter_path: Path | None = None
    reused: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def materialize_lineage(
    job: JobDefinition,
    experiment: str,
    until: str | None,
    root: Path | None,
    progress: Progress,
    instance: DagsterInstance | None,
    on_event: EventListener | None,
) -> RunResult:
    """Run ``job`` for an experiment; see ``jobs.run_lineage``."""
    run_id = str(uuid4())
    with _environment(root):
        load_experiment(experiment, project_root())
        selection = _up_to(job, until)
        with nullcontext(instance) if instance else open_instance() as used:
            add_experiments(used, [experiment])
            used.add_event_listener(run_id, _cancellation(used, run_id, experiment))
            if on_event is not None:
                used.add_event_listener(run_id, on_event)
            with attach(progress):
                result = job.execute_in_process(
                    run_config=None if on_event is None else _QUIET,
                    instance=used,
                    partition_key=experiment,
                    asset_selection=selection,
                    raise_on_error=False,
                    run_id=run_id,
                )
            return reduce_result(result, used, experiment)


def _cancellation(instance: DagsterInstance, run_id: str, experiment: str) -> EventListener:
    """A listener that asks for the cancellation of a run whose step was interrupted: unasked, Dagster says failure."""
    message = (
        f"interrupted by Ctrl-C or a signal; `arena run --experiment {experiment}` goes on from here, "
        "no finished batch is lost"
    )

    def listen(entry: EventLogEntry) -> None:
        event = entry.dagster_event
        if event is None or not event.is_step_failure:
            return
        run = instance.get_run_by_id(run_id)
        if run is not None and event.step_failure_data.error_source is ErrorSource.INTERRUPT:
            instance.report_run_canceling(run, message)

    return listen


@contextmanager
def _environment(root: Path | None) -> Iterator[None]:
    """Have resources and child processes find the project at ``root`` while the block runs."""
    before = {name: os.environ.get(name) for name in ("ARENA_PROJECT_DIR", "ARENA_STORAGE_DIR")}
    if root is not None:
        os.environ["ARENA_PROJECT_DIR"] = str(root)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _up_to(job: JobDefinition, until: str | None) -> list[AssetKey] | None:
    if until is None:
        return None
    graph = job.asset_layer.asset_graph
    known = sorted(key.to_user_string() for key in graph.executable_asset_keys)
    if until not in known:
        raise ConfigError(f"asset {until!r}: there is none of that name; allowed: {', '.join(known)}")
    return sorted(AssetSelection.assets(until).upstream().resolve(graph))


def reduce_result(result: ExecuteInProcessResult, instance: DagsterInstance, experiment: str) -> RunResult:
    """What a person needs to know of a run."""
    reused: list[str] = []
    computed: list[str] = []
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        was_there = materialization.metadata["reused"].value
        (reused if was_there else computed).append(materialization.asset_key.to_user_string())
    done = {*reused, *computed}
    store = ArtifactStoreResource().store

    def artifact(asset: str) -> Any:
        return store.open(latest_materialization(instance, asset, experiment).artifact_sha256)

    verdict, verdict_path, adapter_path = None, None, None
    if result.success and "gate_verdicts" in done:
        verdict_path = artifact("gate_verdicts").file("verdict.json")
        verdict = artifact("gate_verdicts").read_json("verdict.json")
        adapter_path = artifact("selected_checkpoint").path / "adapter"
    return RunResult(
        experiment=experiment,
        success=result.success,
        run_id=result.run_id,
        verdict=verdict,
        verdict_path=verdict_path,
        adapter_path=adapter_path,
        reused=reused,
        computed=computed,
        failures=_failures(result),
    )


def _failures(result: ExecuteInProcessResult) -> list[str]:
    """One line for each failed check and each step that failed otherwise."""
    failed_checks = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    lines = [
        f"{evaluation.asset_key.to_user_string()}: check {evaluation.check_name} failed: {evaluation.description}"
        for evaluation in failed_checks
    ]
    steps = {f"{check.asset_key.to_python_identifier()}_{check.check_name}" for check in failed_checks}
    for event in result.all_events:
        if event.is_step_failure and event.step_key not in steps:
            lines.append(f"{event.step_key}: {_reason(event.step_failure_data)}")
    return lines


def _reason(failure: StepFailureData) -> str:
    """The line of this project's error; of any other exception, its class and first line."""
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return failure.user_failure_data.description
    error = failure.error
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return "failed; its log says why"
    if error.cls_name == DagsterExecutionInterruptedError.__name__:
        return "stopped by a signal; what it had finished is kept, and the next run goes on from there"
    message = error.message.strip().splitlines()[0]
    if isinstance(kind := getattr(errors, error.cls_name or "", None), type) and issubclass(kind, ArenaError):
        return message.partition(": ")[2]
    return message
