"""The one way by which `arena eval` lets an adapter play sealed cases: through the ledger, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from arena_pipeline.cli.project import Project
from arena_pipeline.errors import ConfigError, SealedSetRefused

if TYPE_CHECKING:
    from arena_pipeline.experiments import Experiment
    from arena_pipeline.provenance.ledger import Opening


def open_sealed_set(
    project: Project, experiment: Experiment | None, manifest: str, identity: Mapping[str, Any], options: Sequence[str]
) -> Opening:
    """Open a sealed set for an experiment's adapter, before its first prompt is sent; the ledger's record.

    ``options`` names the command's options that would change what the experiment asks of the model. Raises
    ``ConfigError`` unless all is as the experiment says, and ``SealedSetRefused`` where another adapter was first, or
    where this one is through: what it was asked is recorded, and is not asked again.
    """
    from arena_pipeline.arena.manifests import MANIFESTS, manifest_sha256
    from arena_pipeline.provenance.ledger import Ledger, sealed_set_sha256
    from arena_pipeline.resources.locations import ledger_address
    from arena_pipeline.serving.loading import base_sha256
    from arena_pipeline.sft.loading import load_dataset

    if experiment is None:
        raise ConfigError(
            f"--manifest {manifest}: sealed, and opens once for an experiment; name it with --experiment, or look at "
            "arena-dev"
        )
    if manifest != experiment.evaluation.sealed_manifest:
        raise ConfigError(
            f"--manifest {manifest}: {experiment.name} opens {experiment.evaluation.sealed_manifest}, all of it; "
            "look at arena-dev otherwise"
        )
    if options:
        raise ConfigError(
            f"{', '.join(options)}: an experiment's sealed manifest is played as the experiment says; leave it out"
        )
    base = project.root / experiment.base_model.path
    if (found := identity["base_sha256"]) != (expected := base_sha256(base)):
        raise ConfigError(f"{base}: expected sha256 {expected}, found {found}; the model changed while it was loaded")
    dataset = load_dataset(project.root / experiment.dataset.directory)
    seeds = (row.seed for row in dataset.rows("test"))
    project.export()
    opening = Ledger(ledger_address()).open(
        sealed_set_sha256(seeds, manifest_sha256(MANIFESTS[manifest])),
        experiment.identity,
        experiment.name,
        str(identity["adapter_sha256"]),
        f"arena-eval-{uuid4().hex}",
    )
    if opening.complete:
        raise SealedSetRefused(
            f"sealed set {opening.sealed_set} is complete for experiment {experiment.name} since "
            f"{opening.completed_at}, and is not asked again; see arena gates --experiment {experiment.name}"
        )
    return opening
