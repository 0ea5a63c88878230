"""`arena` alone: where each experiment stands, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from arena_pipeline.cli.project import Project, find_project
from arena_pipeline.cli.screen import JsonOption, Screen
from arena_pipeline.errors import ArenaError

if TYPE_CHECKING:
    from dagster import DagsterInstance


def add_to(app: typer.Typer) -> None:
    """Make it what `arena` does without a command."""
    app.callback(invoke_without_command=True, epilog="Example: arena run --experiment tiny-cpu")(overview)


def overview(context: typer.Context, as_json: JsonOption = False) -> None:
    """From pinned data to a verdict: the promotion pipeline for LoRA fine-tunes of communicating agents.

    Without a command: where each experiment stands, and what comes next.
    """
    if context.invoked_subcommand is not None:
        return
    project = find_project()
    standings = _standings(project)
    screen = Screen(as_json)
    screen.table(
        ("experiment", "stage", "verdict", "next"),
        [(entry["experiment"], entry["stage"], entry["verdict"], entry["next"]) for entry in standings],
    )
    screen.line("arena --help lists every command, arena ui opens the lineage in a browser")
    screen.json(standings)


def _standings(project: Project) -> list[dict[str, Any]]:
    from arena_pipeline.experiments import EXPERIMENTS, list_experiments

    names = list_experiments(project.root / EXPERIMENTS)
    if not project.has_run:
        return [_entry(name, "not started", "", f"arena run --experiment {name}") for name in names]
    project.export()
    from arena_pipeline.resources.instance import open_instance

    with open_instance() as instance:
        return [_standing(project, instance, name) for name in names]


def _standing(project: Project, instance: DagsterInstance, name: str) -> dict[str, Any]:
    from dagster import AssetKey, DagsterRunStatus, RunsFilter

    from arena_pipeline.assets import ALL_ASSETS

    assets = [asset.key.to_user_string() for asset in ALL_ASSETS]
    done = [asset for asset in assets if name in instance.get_materialized_partitions(AssetKey(asset))]
    run = f"arena run --experiment {name}"
    latest = next(iter(instance.get_runs(RunsFilter(tags={"dagster/partition": name}), limit=1)), None)
    stage = f"{len(done)} of {len(assets)}: {done[-1]}" if done else "not started"
    if latest is not None and latest.status in (DagsterRunStatus.STARTED, DagsterRunStatus.STARTING):
        return _entry(name, f"{stage}, running", "", "wait for it, or arena reap if its process was killed")
    if latest is not None and latest.status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED):
        return _entry(name, f"{stage}; the last run did not finish", "", run)
    if "gate_verdicts" not in done:
        return _entry(name, stage, "", run)
    try:
        verdict = _verdict(project, instance, name)
    except ArenaError as error:
        return _entry(name, stage, f"cannot be read: {error}", run)
    return _entry(name, stage, verdict["conclusion"], f"arena gates --experiment {name}")


def _verdict(project: Project, instance: DagsterInstance, name: str) -> Any:
    from arena_pipeline.provenance.artifacts import ArtifactStore
    from arena_pipeline.resources.history import latest_materialization, require_current_inputs

    latest = latest_materialization(instance, "gate_verdicts", name)
    require_current_inputs(instance, [latest], name)
    return ArtifactStore(project.artifacts).open(latest.artifact_sha256).read_json("verdict.json")


def _entry(experiment: str, stage: str, verdict: str, following: str) -> dict[str, Any]:
    return {"experiment": experiment, "stage": stage, "verdict": verdict, "next": following}
