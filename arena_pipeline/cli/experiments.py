"""`arena experiment list|new` and `arena preflight`."""

from __future__ import annotations

from typing import Annotated

import typer

from arena_pipeline.cli.project import DEFAULT_EXPERIMENT, find_project
from arena_pipeline.cli.screen import JsonOption, Screen
from arena_pipeline.errors import ConfigError

commands = typer.Typer(help="Experiments: one TOML file each in data/experiments.", no_args_is_help=True)

ExperimentOption = Annotated[
    str,
    typer.Option("--experiment", "-e", help="Experiment: the name of its file in data/experiments.", metavar="NAME"),
]


def add_to(app: typer.Typer) -> None:
    """Add the group and `arena preflight`."""
    app.add_typer(commands, name="experiment")
    app.command("preflight", epilog="Example: arena preflight --experiment stage1")(preflight)


@commands.command("list", epilog="Example: arena experiment list")
def list_all(as_json: JsonOption = False) -> None:
    """List the experiments with what each is for."""
    from arena_pipeline.experiments import load_experiments

    experiments = load_experiments(find_project().root)
    screen = Screen(as_json)
    screen.table(
        ("experiment", "base model", "steps", "machine", "sealed manifest", "for"),
        [
            (
                experiment.name,
                experiment.base_model.name,
                experiment.recipe.steps or f"{experiment.recipe.epochs} epochs",
                "GPU" if experiment.machine.gpu else "CPU",
                experiment.evaluation.sealed_manifest if experiment.result else "none, a rehearsal",
                experiment.description,
            )
            for experiment in experiments
        ],
    )
    screen.json([experiment.resolved() | {"identity": experiment.identity} for experiment in experiments])


@commands.command("new", epilog="Example: arena experiment new longer --from tiny-cpu")
def new(
    name: Annotated[
        str, typer.Argument(help="Its name: lower-case letters, digits, dots, dashes, underscores.", metavar="NAME")
    ],
    source: Annotated[str, typer.Option("--from", help="Experiment to copy.", metavar="NAME")] = DEFAULT_EXPERIMENT,
) -> None:
    """Write a new experiment as a copy of another, to be edited."""
    from arena_pipeline.experiments import EXPERIMENTS, Experiment, load_experiment
    from arena_pipeline.provenance.config_files import check_config
    from arena_pipeline.provenance.files import write_text

    project = find_project()
    folder = project.root / EXPERIMENTS
    copied = load_experiment(source, project.root)
    # Checked before a path is made of it.
    check_config(Experiment, copied.model_dump() | {"name": name}, f"experiment {name!r}")
    path = folder / f"{name}.toml"
    if path.exists():
        raise ConfigError(f"{project.shown(path)}: is there already; choose another name, or edit it")
    write_text(path, (folder / f"{copied.name}.toml").read_text(encoding="utf-8"))
    screen = Screen()
    screen.line(f"{project.shown(path)}: a copy of {source}")
    screen.line(f"edit it, then: arena run --experiment {name}")


def preflight(experiment: ExperimentOption = DEFAULT_EXPERIMENT, as_json: JsonOption = False) -> None:
    """Compare this machine with what an experiment needs, one line each; exits 1 if something is missing.

    Notes say what would run here, but slowly; they do not change the exit status.
    """
    from arena_pipeline.experiments import check_machine, load_experiment, measure_machine, slow_settings

    project = find_project()
    loaded, machine = load_experiment(experiment, project.root), measure_machine(project.storage)
    checks, notes = check_machine(loaded, project.root, machine), slow_settings(loaded, machine)
    screen = Screen(as_json)
    for check in checks:
        screen.line(
            f"{'ok     ' if check.ok else 'MISSING'} {check.name}: {check.required} needed, found {check.found}",
            None if check.ok else "bold red",
        )
    for note in notes:
        screen.line(f"note    {note}", "yellow")
    enough = all(check.ok for check in checks)
    screen.json(
        {
            "experiment": experiment,
            "ok": enough,
            "checks": [
                {"name": check.name, "required": check.required, "found": check.found, "ok": check.ok}
                for check in checks
            ],
            "notes": notes,
        }
    )
    if not enough:
        raise typer.Exit(1)
