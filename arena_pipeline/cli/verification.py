"""`arena manifest verify` and `arena pins verify`: hashes computed from content, compared with data/pins.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from arena_pipeline.cli.project import find_project
from arena_pipeline.cli.screen import JsonOption, Screen

if TYPE_CHECKING:
    from arena_pipeline.cli.pin_checks import PinCheck

manifest = typer.Typer(help="The evaluation manifests: fixed lists of cases.", no_args_is_help=True)
pins = typer.Typer(help="The pins: what every input must be, by SHA-256.", no_args_is_help=True)

_STYLES = {"equal": None, "absent": "yellow", "not pinned": "yellow", "different": "bold red"}


def add_to(app: typer.Typer) -> None:
    """Add both groups."""
    app.add_typer(manifest, name="manifest")
    app.add_typer(pins, name="pins")


@manifest.command("verify", epilog="Example: arena manifest verify")
def verify_manifests(as_json: JsonOption = False) -> None:
    """Compute the hash of every evaluation manifest from its cases and compare it with its pin."""
    from arena_pipeline.cli.pin_checks import check_manifests
    from arena_pipeline.provenance.pins import Pins

    project = find_project()
    _report(list(check_manifests(Pins.load(project.pins_file))), Screen(as_json))


@pins.command("verify", epilog="Example: arena pins verify")
def verify_pins(as_json: JsonOption = False) -> None:
    """Compute every pinned hash anew from content: prompt packs, datasets, manifests, base models, gate policies.

    Datasets and base models that a user brought have no pin; they are compared with the hashes that were recorded when
    they were first loaded. Exits 1 if anything differs, naming file, expected and found hash.
    """
    from arena_pipeline.cli.pin_checks import check_pins

    screen = Screen(as_json)
    with screen.progress() as progress:
        checks = list(check_pins(find_project(), progress))
    _report(checks, screen)


def _report(checks: list[PinCheck], screen: Screen) -> None:
    for check in checks:
        screen.line(check.line(), _STYLES[check.status])
    failed = [check for check in checks if check.status == "different"]
    if not failed:
        screen.line(f"{len(checks)} checked, none differs", "green")
    screen.json({"valid": not failed, "checks": [check.to_dict() for check in checks]})
    if failed:
        raise typer.Exit(1)
