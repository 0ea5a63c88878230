"""`arena run`: the lineage through Dagster, in this process, to the verdict."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_pipeline.cli.experiments import ExperimentOption
from arena_pipeline.cli.project import DEFAULT_EXPERIMENT, Project, find_project
from arena_pipeline.cli.screen import JsonOption, Screen, complain, interruptible

if TYPE_CHECKING:
    from arena_pipeline.resources.execution import RunResult


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog="Example: arena run --experiment tiny-cpu")(run)


def run(
    experiment: ExperimentOption = DEFAULT_EXPERIMENT,
    until: Annotated[
        str | None, typer.Option(help="Stop after this asset. Default: run to the verdict.", metavar="ASSET")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Materialise an experiment's lineage, from pinned inputs to the verdict, and print the verdict.

    What was computed before is verified from its bytes and reused; Ctrl-C and the same command again goes on where it
    stopped. Exits 0 when there is a verdict, promoted or not, and 1 when a stage or a check failed.
    """
    project = find_project()
    project.export()
    screen = Screen(as_json)
    began = time.monotonic()
    command = f"arena run --experiment {experiment}" + (f" --until {until}" if until else "")
    _note_what_is_slow(screen, experiment, project)
    with interruptible(f"`{command}` goes on from here, no finished batch is lost"):
        result = _materialise(experiment, until, project, screen)
    seconds = time.monotonic() - began
    _show(screen, result, until, seconds, project)
    screen.json(_as_json(result, seconds))
    if not result.success:
        for failure in result.failures:
            complain(failure)
        complain(f"{experiment} failed after {seconds:.0f} s; once that is mended, `{command}` goes on from there")
        raise typer.Exit(1)


def _note_what_is_slow(screen: Screen, experiment: str, project: Project) -> None:
    from arena_pipeline.experiments import load_experiment, measure_machine, slow_settings

    for note in slow_settings(load_experiment(experiment, project.root), measure_machine(project.storage)):
        screen.line(f"note      {note}", "yellow")


def _materialise(experiment: str, until: str | None, project: Project, screen: Screen) -> RunResult:
    from dagster import PreviewWarning

    from arena_pipeline.cli.dead_runs import report_dead_runs
    from arena_pipeline.cli.stages import StageLines
    from arena_pipeline.jobs import run_lineage
    from arena_pipeline.resources.instance import open_instance

    with open_instance() as instance, screen.progress() as bar:
        for dead in report_dead_runs(instance):
            screen.line(f"run {dead.run_id} ({dead.what}): {dead.reason}; reported as failed", "yellow")
        stages = StageLines(screen, bar)
        with warnings.catch_warnings():
            # Of functions that may change with a release: the release is pinned.
            warnings.simplefilter("ignore", PreviewWarning)
            result = run_lineage(experiment, until, project.root, stages.report, instance, stages.event)
        if stages.interrupted:
            raise KeyboardInterrupt
        return result


def _show(screen: Screen, result: RunResult, until: str | None, seconds: float, project: Project) -> None:
    from arena_pipeline.evaluation.verdict_table import render_verdict

    stages = len(result.computed) + len(result.reused)
    if result.success and not result.computed:
        screen.line(f"nothing was recomputed: all {stages} stages were there, every byte verified again", "green")
    elif result.success:
        screen.line(f"computed: {len(result.computed)}, reused: {len(result.reused)}, in {seconds:.0f} s")
    if result.verdict is not None:
        screen.show(render_verdict(result.verdict))
    elif result.success:
        screen.line(f"{result.experiment} is there up to {until}; `arena run` without --until goes on to the verdict")
    if result.adapter_path is not None:
        adapter = project.shown(result.adapter_path)
        screen.line(f"adapter: {adapter}")
        screen.line(
            f"try it: arena eval --provider transformers --experiment {result.experiment} --adapter {adapter} "
            f"--manifest arena-dev:6 --out storage/tried-{result.experiment}"
        )


def _as_json(result: RunResult, seconds: float) -> dict[str, Any]:
    value = asdict(result) | {"seconds": round(seconds, 3)}
    for name in ("verdict_path", "adapter_path"):
        value[name] = None if value[name] is None else str(value[name])
    return value
