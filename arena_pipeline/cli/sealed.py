"""Who may play sealed cases in `arena eval`: known base models, and adapters for which `arena run` opened them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena_pipeline.cli.project import Project
from arena_pipeline.errors import ConfigError, SealedSetRefused

if TYPE_CHECKING:
    from arena_pipeline.experiments import Experiment
    from arena_pipeline.provenance.ledger import Opening
    from arena_pipeline.sft.loading import Dataset


def known_bases(project: Project) -> frozenset[str]:
    """The hashes of all base models that are pinned, or that this project recorded when it first loaded them."""
    from arena_pipeline.provenance.pins import Pins, RecordedPins

    pinned = (pin.sha256 for pin in Pins.load(project.pins_file).base_models.values())
    return RecordedPins(project.recorded_pins).hashes("base_models") | frozenset(pinned)


def require_opened(
    project: Project, experiment: Experiment | None, manifest: str, identity: Mapping[str, Any], options: Sequence[str]
) -> Opening:
    """The ledger's row by which `arena run` opened a sealed set for this very adapter; this never opens one itself.

    ``options`` names the command's options that would change what the experiment asks of the model. Raises
    ``ConfigError`` unless all is as the experiment says, and ``SealedSetRefused`` where `arena run` has not opened the
    set for this adapter, or where this opening is through: what it was asked is recorded, and is not asked again.
    """
    from arena_pipeline.arena.manifests import manifest_sha256
    from arena_pipeline.evaluation.cases import manifest_cases
    from arena_pipeline.provenance.ledger import Ledger, sealed_set_sha256
    from arena_pipeline.resources.locations import ledger_address
    from arena_pipeline.serving.loading import base_sha256

    if experiment is None:
        raise ConfigError(
            f"--manifest {manifest}: sealed, and opens once for an experiment; name it with --experiment, or look at "
            "arena-dev"
        )
    settings = experiment.evaluation
    whole = settings.sealed_manifest
    opened = whole if settings.limit is None else f"{whole}:{settings.limit}"
    if manifest != opened:
        raise ConfigError(
            f"--manifest {manifest}: {experiment.name} opens {opened}, all of it; look at arena-dev otherwise"
        )
    if options:
        raise ConfigError(
            f"{', '.join(options)}: an experiment's sealed manifest is played as the experiment says; leave it out"
        )
    base = project.root / experiment.base_model.path
    if (found := identity["base_sha256"]) != (expected := base_sha256(base)):
        raise ConfigError(f"{base}: expected sha256 {expected}, found {found}; the model changed while it was loaded")
    seeds = [row.seed for row in _known_dataset(project, experiment).rows("test")]
    project.export()
    ledger = Ledger(ledger_address())
    named = sealed_set_sha256(seeds, manifest_sha256(manifest_cases(manifest)))
    run = f"arena run --experiment {experiment.name}"
    if not any(opening.experiment_identity == experiment.identity for opening in ledger.openings(named)):
        raise SealedSetRefused(
            f"--manifest {manifest}: sealed set {named} was not opened for experiment {experiment.name} as it is now; "
            f"{run} opens it, once its gates pass on validation and development cases"
        )
    opening = ledger.require(named, experiment.identity, str(identity["adapter_sha256"]))
    if opening.complete:
        raise SealedSetRefused(
            f"sealed set {opening.sealed_set} is complete for experiment {experiment.name} since "
            f"{opening.completed_at}, and is not asked again; see arena gates --experiment {experiment.name}"
        )
    return opening


def _known_dataset(project: Project, experiment: Experiment) -> Dataset:
    """The experiment's dataset, held to its pin or to its first load: its test split names the sealed set."""
    from arena_pipeline.provenance.pins import Pins, RecordedPins
    from arena_pipeline.sft.loading import load_dataset
    from arena_pipeline.sft.pinned import expect_pinned, pinned_name

    choice = experiment.dataset
    directory = project.root / choice.directory
    dataset = load_dataset(directory)
    name = pinned_name(dataset, choice.num_seeds, choice.start_seed)
    pinned = expect_pinned(Pins.load(project.pins_file), name, dataset, directory)
    recorded = RecordedPins(project.recorded_pins).compare(
        "datasets", choice.directory, name, dataset.content_sha256, dataset.file_hashes, directory
    )
    if not pinned and not recorded:
        raise SealedSetRefused(
            f"{choice.directory}: neither pinned nor recorded as datasets.{name}, so its test split names no sealed "
            f"set; arena run --experiment {experiment.name} first"
        )
    return dataset
