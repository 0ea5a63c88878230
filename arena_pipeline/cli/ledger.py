"""`arena ledger show|export|verify`: the openings of sealed sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena_pipeline.cli.project import find_project
from arena_pipeline.cli.screen import JsonOption, Screen, counted

if TYPE_CHECKING:
    from arena_pipeline.provenance.ledger import Opening

commands = typer.Typer(help="The ledger: which adapter opened which sealed set, and when.", no_args_is_help=True)
_HASH_SHOWN = 12


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(commands, name="ledger")


@commands.command("show", epilog="Example: arena ledger show")
def show(as_json: JsonOption = False) -> None:
    """List every opening of a sealed set by an experiment of this instance."""
    openings = _openings()
    screen = Screen(as_json)
    if openings:
        _table(screen, openings)
    else:
        screen.line("no sealed set was opened on this instance")
    screen.json([opening.to_dict() for opening in openings])


@commands.command("export", epilog="Example: arena ledger export docs/ledger.jsonl")
def export(file: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")]) -> None:
    """Write all openings to a file for committing, each line bound to the one before it by hash."""
    from arena_pipeline.provenance.ledger_export import export_openings

    openings = _openings()
    export_openings(openings, file)
    Screen().line(f"{file}: {counted(len(openings), 'opening')}; arena ledger verify {file} proves it")


@commands.command("verify", epilog="Example: arena ledger verify docs/ledger.jsonl")
def verify(
    file: Annotated[Path, typer.Argument(help="File that `arena ledger export` wrote.", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Prove an exported file: exits 1 naming the first line that is not as it was written."""
    from arena_pipeline.provenance.ledger_export import verify_export

    openings = verify_export(file)
    screen = Screen(as_json)
    if openings:
        _table(screen, openings)
    screen.line(f"{file}: {counted(len(openings), 'opening')}, every line as it was written", "green")
    screen.json([opening.to_dict() for opening in openings])


def _openings() -> list[Opening]:
    from arena_pipeline.provenance.ledger import Ledger
    from arena_pipeline.resources.locations import ledger_address

    find_project().export()
    return Ledger(ledger_address()).openings()


def _table(screen: Screen, openings: list[Opening]) -> None:
    screen.table(
        ("sealed set", "opening", "experiment", "adapter", "opened", "completed", "run"),
        [
            (
                opening.sealed_set[:_HASH_SHOWN],
                opening.ordinal,
                opening.experiment_name,
                opening.adapter_sha256[:_HASH_SHOWN],
                opening.opened_at,
                opening.completed_at or "not yet",
                opening.run_id[:_HASH_SHOWN],
            )
            for opening in openings
        ],
    )
