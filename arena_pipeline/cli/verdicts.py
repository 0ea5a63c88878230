"""A verdict computed again from what is saved, from the raw responses up."""

from __future__ import annotations

from typing import Any

from arena_pipeline.assets import ALL_ASSETS
from arena_pipeline.assets.verdict import VERDICT_FILE, gate_verdicts
from arena_pipeline.checks import BODIES
from arena_pipeline.cli.project import Project
from arena_pipeline.errors import ArenaError
from arena_pipeline.experiments import load_experiment
from arena_pipeline.progress import Progress
from arena_pipeline.resources.history import latest_materialization, require_current_inputs
from arena_pipeline.resources.instance import open_instance
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource


def recomputed_verdict(project: Project, experiment: str, progress: Progress) -> dict[str, Any]:
    """Everything that the graph's checks compute, computed here: pins, rows, summaries, selection, and the verdict.

    Returns the verdict, which is then also the saved one. Raises an ``ArenaError`` that names the first thing that does
    not follow from what it should or was made from what has been replaced since, or the stage that was never run.
    """
    load_experiment(experiment, project.root)
    if not project.has_run:
        raise _none_yet(experiment)
    project.export()
    with open_instance() as instance:
        if experiment not in instance.get_materialized_partitions(gate_verdicts.key):
            raise _none_yet(experiment)
        reader = Reader(
            project=ProjectResource(),
            artifacts=ArtifactStoreResource(),
            ledger=LedgerResource(),
            instance=instance,
            partition=experiment,
        )
        # The checks of what comes after the verdict say nothing about it.
        names = [_name(asset) for asset in ALL_ASSETS]
        behind = names[: names.index(_name(gate_verdicts)) + 1]
        latest = [latest_materialization(instance, name, experiment) for name in behind]
        require_current_inputs(instance, latest, experiment)
        verdict = reader.store.open(latest[-1].artifact_sha256)
        bodies = [(name, body) for name in behind for body in BODIES.get(name, ())]
        for done, (name, body) in enumerate(bodies):
            progress(f"computing again: {name}", done, len(bodies))
            body(reader)
        saved: dict[str, Any] = verdict.read_json(VERDICT_FILE)
        return saved


def _name(asset: Any) -> str:
    return str(asset.key.to_user_string())


def _none_yet(experiment: str) -> ArenaError:
    return ArenaError(f"experiment {experiment}: no verdict yet; arena run --experiment {experiment} comes to one")
