"""`arena clean` and `arena reap`."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from arena_pipeline.cli.project import find_project
from arena_pipeline.cli.screen import JsonOption, Screen
from arena_pipeline.errors import ConfigError

_MIB = 2**20


def add_to(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("clean", epilog="Example: arena clean")(clean)
    app.command("reap", epilog="Example: arena reap")(reap)


def clean(
    all_artifacts: Annotated[
        bool,
        typer.Option(
            "--all-artifacts",
            help="Remove every artifact too. Stages are then computed again, a complete sealed set is not.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --all-artifacts: do not ask, even where sealed sets were opened.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what interrupted stages left behind; say what was removed.

    The ledger of sealed-set openings, the history of runs and the datasets are never touched.
    """
    from arena_pipeline.provenance.artifacts import ArtifactStore

    project = find_project()
    project.export()
    screen = Screen(as_json)
    root = project.artifacts
    if all_artifacts and not yes and not _agreed(screen):
        raise typer.Abort
    before = _bytes_below(root)
    removed = [f"work of {name}" for name in ArtifactStore(root).remove_leftovers()]
    if all_artifacts:
        removed += _remove_artifacts(root)
    freed = before - _bytes_below(root)
    for name in removed:
        screen.line(f"removed: {name}")
    screen.line(f"{freed / _MIB:.1f} MiB freed; the ledger is as it was" if removed else "there was nothing to remove")
    screen.json({"removed": removed, "freed_bytes": freed})


def reap(as_json: JsonOption = False) -> None:
    """Report runs as failed whose process ended without saying so, after a kill or a power cut.

    Such a run keeps its place in the queue and on the GPU, so that later ones would wait for ever.
    """
    from arena_pipeline.cli.dead_runs import report_dead_runs
    from arena_pipeline.resources.instance import open_instance

    project = find_project()
    project.export()
    with open_instance() as instance:
        dead = report_dead_runs(instance)
    screen = Screen(as_json)
    for run in dead:
        screen.line(f"run {run.run_id} ({run.what}): {run.reason}; reported as failed")
    if not dead:
        screen.line("every run that has started is alive or has ended")
    screen.json([{"run_id": run.run_id, "what": run.what, "reason": run.reason} for run in dead])


def _agreed(screen: Screen) -> bool:
    """Ask where sealed sets were opened: what they said lies among the artifacts, and they are not asked again.

    Raises ``ConfigError`` where nobody can be asked.
    """
    from arena_pipeline.provenance.ledger import Ledger
    from arena_pipeline.resources.locations import ledger_address

    names = sorted({opening.experiment_name for opening in Ledger(ledger_address()).openings()})
    if not names:
        return True
    lost = (
        f"the sealed sets were opened by {', '.join(names)}, and what they said is among the artifacts; without it an "
        "opening that is complete is refused for ever, since a sealed set is not asked twice"
    )
    if not sys.stdin.isatty():
        raise ConfigError(f"--all-artifacts: {lost}; keep a copy of storage/artifacts, and add --yes to remove it")
    screen.line(f"{lost}, and one that is not complete goes on with its very adapter alone", "yellow")
    return typer.confirm("Remove it?", err=True)


def _remove_artifacts(root: Path) -> list[str]:
    from arena_pipeline.provenance.locks import exclusive_lock

    kept = sorted(path.name for path in root.glob("objects/*/*") if path.is_dir())
    with ExitStack() as stack:
        for lock in sorted(root.glob("locks/*/*.lock")):
            stack.enter_context(exclusive_lock(lock, f"{lock.parent.name} with key {lock.stem}"))
        # Keys first: a key without its object would be taken for damage.
        for kind in ("keys", "commits", "objects", "work", "locks"):
            if (root / kind).is_dir():
                shutil.rmtree(root / kind)
    return [f"artifact {sha256}" for sha256 in kept]


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
