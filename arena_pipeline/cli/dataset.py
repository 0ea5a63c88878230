"""`arena dataset build` and `arena dataset audit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_pipeline.cli.project import Project, find_project
from arena_pipeline.cli.screen import JsonOption, Screen, counted, interruptible
from arena_pipeline.errors import DatasetError, IntegrityError, PinMismatch

if TYPE_CHECKING:
    from arena_pipeline.sft.audit_report import AuditReport, Failure

commands = typer.Typer(help="The training dataset: build it, audit one from anywhere.", no_args_is_help=True)

_DEFAULT_PROMPTS = "data/prompts/arena-v2-open.toml"
_FAILURES_SHOWN = 20


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(commands, name="dataset")


@commands.command("build", epilog="Example: arena dataset build --out data/arena_sft_stage1 --workers 2")
def build(
    out: Annotated[Path, typer.Option(help="New directory for the dataset; an existing one is never overwritten.")],
    prompts: Annotated[
        Path | None, typer.Option(help=f"Prompt pack, TOML or JSON. Default: {_DEFAULT_PROMPTS}.", metavar="PACK")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of game states to make plain rows from.")] = 1024,
    start_seed: Annotated[int, typer.Option(min=0, help="Seed of the first state.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes. Default: 1, or one for each core where there are many seeds.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build the dataset, load it back, compare its content hash with its pin and record the hashes of its files."""
    from arena_pipeline.arena.prompts import PromptPack
    from arena_pipeline.provenance.pins import Pins, RecordedPins, dataset_pin_name
    from arena_pipeline.sft.builder import build_dataset
    from arena_pipeline.sft.loading import load_dataset
    from arena_pipeline.sft.pinned import expect_pinned

    project = find_project()
    source = project.root / _DEFAULT_PROMPTS if prompts is None else prompts
    pack = PromptPack.load(source)
    pins = Pins.load(project.pins_file)
    # A changed text under a pinned version is found now, not after minutes of building.
    pins.expect("prompt_packs", pack.version, pack.sha256, source, allow_new=True)
    screen = Screen(as_json)
    with screen.progress() as progress, interruptible(f"nothing was left in {out}; run the same command again"):
        manifest = build_dataset(out, pack, seeds, start_seed, workers, progress)
    dataset = load_dataset(out)
    pin = dataset_pin_name(pack.version, seeds, start_seed)
    equals = expect_pinned(pins, pin, dataset, out)
    recorded = RecordedPins(project.recorded_pins)
    recorded.record("datasets", project.shown(out), pin, dataset.content_sha256, dataset.file_hashes)
    screen.line(f"{out}: {len(dataset.file_hashes)} files, content hash {dataset.content_sha256}")
    screen.line(_counts(manifest.examples_by_split, manifest.examples_by_phase))
    comparison = "equals its pin" if equals else "data/pins.toml has no pin to compare it with under the name"
    screen.line(f"{comparison} datasets.{pin}")
    screen.line(f"hashes of its files recorded in {project.shown(project.recorded_pins)}")
    screen.json(
        {
            **manifest.to_dict(),
            "directory": str(out),
            "file_sha256": dict(dataset.file_hashes),
            "equals_pin": equals,
        }
    )


@commands.command("audit", epilog="Example: arena dataset audit data/arena_sft_stage1 --require-split-action-coverage")
def audit(
    directory: Annotated[Path, typer.Argument(help="Dataset directory, built here or published.", metavar="DIR")],
    require_split_action_coverage: Annotated[
        bool,
        typer.Option("--require-split-action-coverage", help="Also demand that each split has every kind of action."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Audit a dataset from its bytes and seeds alone: ids, states, labels, prompts, membership, counts.

    Where hashes of its files are recorded or pinned, they are compared too. Exits 1 if any rule is broken, naming the
    row and the rule.
    """
    from arena_pipeline.sft.audit import audit_dataset

    screen = Screen(as_json)
    with screen.progress() as progress, interruptible("run the same command again"):
        report = audit_dataset(directory, require_split_action_coverage, progress=progress)
    report = replace(report, failures=(*report.failures, *_changed_files(find_project(), directory)))
    _show_report(screen, report)
    screen.json(report.to_dict())
    if not report.valid:
        raise typer.Exit(1)


def _changed_files(project: Project, directory: Path) -> list[Failure]:
    """What differs from a dataset's pin and from its recorded first load; nothing of what cannot even be loaded.

    A copy without a manifest does not say of which seeds it is: those are of the experiment that names its directory.
    """
    from arena_pipeline.experiments import load_experiments
    from arena_pipeline.provenance.pins import STANDARD_BUILD, Pins, RecordedPins
    from arena_pipeline.sft.audit_report import Failure
    from arena_pipeline.sft.loading import load_dataset
    from arena_pipeline.sft.pinned import expect_pinned, expect_pinned_manifest, pinned_name

    try:
        dataset = load_dataset(directory)
    except (DatasetError, IntegrityError):
        return []
    place = project.shown(directory)
    seeds = STANDARD_BUILD
    if dataset.manifest is None:
        choices = [experiment.dataset for experiment in load_experiments(project.root)]
        seeds = next(((one.num_seeds, one.start_seed) for one in choices if one.directory == place), seeds)
    name = pinned_name(dataset, *seeds)
    pins, recorded = Pins.load(project.pins_file), RecordedPins(project.recorded_pins)
    compared: dict[str, Callable[[], object]] = {
        "pinned": lambda: expect_pinned(pins, name, dataset, directory),
        "pinned manifest": lambda: expect_pinned_manifest(pins, name, dataset, directory),
        "recorded": lambda: recorded.compare(
            "datasets", place, name, dataset.content_sha256, dataset.file_hashes, directory
        ),
    }
    failures = []
    for rule, compare in compared.items():
        try:
            compare()
        except PinMismatch as error:
            file = Path(error.file).name
            failures.append(Failure(file, rule, str(error)))
    return failures


def _show_report(screen: Screen, report: AuditReport) -> None:
    counts = report.counts
    for failure in report.failures[:_FAILURES_SHOWN]:
        screen.line(str(failure), "red")
    if len(report.failures) > _FAILURES_SHOWN:
        screen.line(f"... and {len(report.failures) - _FAILURES_SHOWN} more; --json lists all", "red")
    screen.line(f"{report.directory}: {report.layout} layout, content hash {report.content_sha256}")
    screen.line(
        f"{counts['num_examples']} rows of {counts['num_unique_seeds']} seeds: {_listed(counts['phases'])}; "
        f"{counts['verified_solver_seeds']} seeds solved again"
    )
    screen.line(f"rejected while building: {_listed(counts['rejections'])}")
    screen.line(f"actions: {_listed(counts['action_kinds'])}")
    if report.valid:
        screen.line("valid: no rule is broken", "green")
    else:
        screen.line(f"not valid: {counted(len(report.failures), 'failure')}", "bold red")


def _counts(by_split: Any, by_phase: Any) -> str:
    return f"{sum(by_split.values())} rows: {_listed(by_split)}; {_listed(by_phase)}"


def _listed(counts: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
