"""The resources of every step: the project's files, the artifact store and the ledger."""

from __future__ import annotations

from pathlib import Path

from dagster import ConfigurableResource

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import ConfigError, PinMismatch
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.experiments import Experiment, load_experiment
from arena_pipeline.provenance.artifacts import ArtifactStore
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.provenance.ledger import Ledger, Opening
from arena_pipeline.provenance.ledger_export import verify_export
from arena_pipeline.provenance.pins import Pins, RecordedPins
from arena_pipeline.resources.locations import (
    ARTIFACTS,
    GATES_FILE,
    PINS_FILE,
    RECORDED_PINS,
    ledger_address,
    project_root,
    storage_directory,
)

EXPORTED_OPENINGS = "docs/**/*ledger*.jsonl"
"""Exports of other instances' ledgers, committed for everyone to see."""


class ProjectResource(ConfigurableResource):  # type: ignore[type-arg]
    """The project's files: experiments, pins and the gate policy."""

    @property
    def root(self) -> Path:
        """The folder that experiment files name their paths below."""
        return project_root()

    @property
    def pins(self) -> Pins:
        """``data/pins.toml``."""
        return Pins.load(self.root / PINS_FILE)

    @property
    def recorded_pins(self) -> RecordedPins:
        """The hashes of inputs that the user brought, recorded when they were first loaded."""
        return RecordedPins(storage_directory() / RECORDED_PINS)

    def experiment(self, name: str) -> Experiment:
        """The experiment of a partition, read from its file now."""
        return load_experiment(name, self.root)

    def gate_policy(self) -> GatePolicy:
        """``data/gates.toml``, held to its pin; ``PinMismatch`` or ``ConfigError`` names the file."""
        path, pinned = self.root / GATES_FILE, self.pins.gates
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; restore the committed one")
        # The bytes come first: a file that was changed may be anything, and the message is to name hashes.
        if (found := sha256_file(path)) not in pinned.values():
            raise PinMismatch(path, " or ".join(pinned.values()) or "a pin", found, f"pinned as gates in {PINS_FILE}")
        policy = GatePolicy.load(path)
        self.pins.expect("gates", policy.version, policy.sha256, path)
        return policy

    def prompt_pack(self, place: str) -> PromptPack:
        """The prompt pack file that datasets are built with, held to the pin of its version if that is pinned.

        A file that is named after a pinned version must hold that version, whatever it says that it holds.
        """
        path, pins = self.root / place, self.pins
        expected = pins.prompt_packs.get(path.stem)
        try:
            pack = PromptPack.load(path)
        except ConfigError as error:
            if expected is None or not path.is_file():
                raise
            raise PinMismatch(path, expected, f"no prompt pack ({error})", "restore the committed file") from None
        if expected is not None and pack.sha256 != expected:
            raise PinMismatch(path, expected, pack.sha256, f"pinned as prompt_packs.{path.stem} in {PINS_FILE}")
        pins.expect("prompt_packs", pack.version, pack.sha256, path, allow_new=True)
        return pack


class ArtifactStoreResource(ConfigurableResource):  # type: ignore[type-arg]
    """The content-addressed store below the storage directory."""

    @property
    def store(self) -> ArtifactStore:
        """The store; every artifact that it hands out was re-hashed."""
        return ArtifactStore(storage_directory() / ARTIFACTS)


class LedgerResource(ConfigurableResource):  # type: ignore[type-arg]
    """The ledger of sealed-set openings, in a table that Dagster never touches."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of this instance, created if absent."""
        return Ledger(ledger_address())

    def elsewhere(self, sealed_set: str) -> list[Opening]:
        """Openings of a sealed set in committed exports that this instance's own ledger does not hold."""
        own = {(opening.experiment_identity, opening.opened_at) for opening in self.ledger.openings(sealed_set)}
        exported = [
            opening
            for path in sorted(project_root().glob(EXPORTED_OPENINGS))
            for opening in verify_export(path)
            if opening.sealed_set == sealed_set
        ]
        return [opening for opening in exported if (opening.experiment_identity, opening.opened_at) not in own]
