"""`arena base-model build`: the embedded base model made again from its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arena_pipeline.cli.project import find_project
from arena_pipeline.cli.screen import JsonOption, Screen, interruptible

commands = typer.Typer(help="The embedded base model.", no_args_is_help=True)

_RECIPE = Path("data/base_models/arena-tiny/build.toml")


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(commands, name="base-model")


@commands.command("build", epilog="Example: arena base-model build --out storage/arena-tiny")
def build(
    out: Annotated[Path, typer.Option(help="New directory for the model; an existing one is never overwritten.")],
    recipe: Annotated[Path | None, typer.Option(help=f"How it is made. Default: {_RECIPE}.", metavar="FILE")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Processes that write the corpus.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Pre-train the base model from nothing, on texts about generated states that no dataset or evaluation contains."""
    from arena_pipeline.base_models.build import build_base_model
    from arena_pipeline.processes.gpu import resolved_device

    root = find_project().root
    screen = Screen(as_json)
    # Before anything is made: minutes of corpus come before the device is first used.
    where = resolved_device(device)
    with screen.progress() as progress, interruptible("run the same command again"):
        found = build_base_model(root / _RECIPE if recipe is None else recipe, out, root, where, workers, progress)
    for name, value in found.items():
        screen.line(f"{name}: {value}")
    screen.json(found)
