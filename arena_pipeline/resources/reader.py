"""What steps and checks read: upstream artifacts through the event log, and pinned inputs from their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from dagster import DagsterInstance

from arena_pipeline.arena.manifests import MANIFESTS, Case, manifest_sha256
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import ConfigError, DatasetError, EvaluationError, IntegrityError, PinMismatch
from arena_pipeline.evaluation.cases import manifest_cases
from arena_pipeline.experiments import Experiment
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.artifacts import Artifact, ArtifactStore
from arena_pipeline.provenance.files import read_json
from arena_pipeline.provenance.hashing import sha256_file, tree_sha256
from arena_pipeline.provenance.trees import NO_FILE, hash_tree, verify_tree
from arena_pipeline.resources.history import latest_materialization
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource
from arena_pipeline.sft.loading import Dataset, load_dataset
from arena_pipeline.sft.pinned import expect_pinned, expect_pinned_manifest, pinned_name

BASE_MODEL_FILE = "base-model.json"
MANIFESTS_FILE = "manifests.json"
PROMPTS_FILE = "prompts.json"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The untouched model: its directory, whose files were just hashed, and the hash that names it."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as this experiment plays it: its name as ``manifest_cases`` takes it, its cases and their hash."""

    name: str
    cases: tuple[Case, ...]
    sha256: str


@dataclass(frozen=True)
class Reader:
    """Access to an experiment's inputs and artifacts; whatever is returned was verified from its bytes just now."""

    project: ProjectResource
    artifacts: ArtifactStoreResource
    ledger: LedgerResource
    instance: DagsterInstance
    partition: str
    progress: Progress = silent

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, from its file."""
        return self.project.experiment(self.partition)

    @property
    def store(self) -> ArtifactStore:
        """The artifact store."""
        return self.artifacts.store

    def artifact(self, asset: str) -> Artifact:
        """The artifact of an asset's latest materialization in this partition, every byte hashed again."""
        return self.store.open(latest_materialization(self.instance, asset, self.partition).artifact_sha256)

    def source_dataset(self) -> Dataset:
        """The dataset directory that the experiment names, loaded and held to pins and to its first load."""
        place = self.experiment.dataset.directory
        directory = self.project.root / place
        try:
            dataset = load_dataset(directory)
        except (DatasetError, IntegrityError):
            self._compare_recorded_files(place, directory)
            raise
        name = dataset_name(dataset, self.experiment)
        expect_pinned(self.project.pins, name, dataset, directory)
        expect_pinned_manifest(self.project.pins, name, dataset, directory)
        self.project.recorded_pins.expect(
            "datasets", place, name, dataset.content_sha256, dataset.file_hashes, directory
        )
        return dataset

    def dataset(self, artifact: Artifact) -> Dataset:
        """The dataset of an artifact, its rows' ids computed again; pinned, and the source must still be equal."""
        dataset = _parsed_dataset(artifact.path, artifact.sha256)
        directory = self.project.root / self.experiment.dataset.directory
        for name, expected in artifact.files.items():
            source = directory / name
            found = sha256_file(source) if source.is_file() else NO_FILE
            if found != expected:
                raise PinMismatch(source, expected, found, "materialize arena_sft_dataset again if this is meant")
        expect_pinned(self.project.pins, dataset_name(dataset, self.experiment), dataset, directory)
        return dataset

    def base_model(self, artifact: Artifact) -> BaseModel:
        """The base model that an artifact lists, every file in its directory hashed again; pinned if it has a pin."""
        record = artifact.read_json(BASE_MODEL_FILE)
        directory = self.project.root / self.experiment.base_model.path
        verify_tree(directory, record["files"], "materialize base_model again if this is meant")
        self.project.pins.expect("base_models", record["name"], record["sha256"], directory, allow_new=True)
        return BaseModel(directory, record["sha256"])

    def source_base_model(self) -> tuple[dict[str, str], str]:
        """The files of the experiment's base model and their hash, held to pins and to the first load."""
        choice = self.experiment.base_model
        directory = self.project.root / choice.path
        if not directory.is_dir():
            raise ConfigError(f"{choice.path}: no base model there; put {choice.name} into this folder of the project")
        files = hash_tree(directory)
        sha256, pins = tree_sha256(files), self.project.pins
        pins.expect_files("base_models", choice.name, files, directory)
        if not pins.expect("base_models", choice.name, sha256, directory, allow_new=True):
            self.project.recorded_pins.expect("base_models", choice.path, choice.name, sha256, files, directory)
        return files, sha256

    def manifest(self, which: str) -> Manifest:
        """The "sealed" or "development" manifest: its cases generated again, the whole manifest held to its pin."""
        settings = self.experiment.evaluation
        name = {"sealed": settings.sealed_manifest, "development": settings.dev_manifest}[which]
        whole = manifest_sha256(MANIFESTS[name])
        self.project.pins.expect("manifests", name, whole, f"manifest {name}")
        played = name if settings.limit is None else f"{name}:{settings.limit}"
        cases = manifest_cases(played)
        return Manifest(played, cases, manifest_sha256(cases))

    def recorded_manifest(self, artifact: Artifact, which: str) -> Manifest:
        """``manifest``, and equal to what an artifact of frozen_manifest recorded."""
        manifest = self.manifest(which)
        recorded = artifact.read_json(MANIFESTS_FILE)[which]
        if recorded != manifest_record(manifest):
            raise EvaluationError(
                f"frozen_manifest: {which} is {recorded['name']} of {recorded['sha256']}, but the experiment now names "
                f"{manifest.name} of {manifest.sha256}; materialize frozen_manifest again"
            )
        return manifest

    def prompts(self, artifact: Artifact) -> PromptPack:
        """The prompts that an artifact holds, held to the pin of their version if that is pinned."""
        pack = PromptPack(**artifact.read_json(PROMPTS_FILE))
        path = artifact.file(PROMPTS_FILE)
        self.project.pins.expect("prompt_packs", pack.version, pack.sha256, path, allow_new=True)
        return pack

    def _compare_recorded_files(self, place: str, directory: Path) -> None:
        """Say of a broken dataset which file is not the one that was first loaded, if it was loaded before."""
        recorded = self.project.recorded_pins.path
        entries: Mapping[str, Any] = read_json(recorded).get("datasets", {}).get(place, {}) if recorded.exists() else {}
        for entry in entries.values():
            for name, expected in sorted(entry["files"].items()):
                path = directory / name
                found = sha256_file(path) if path.is_file() else NO_FILE
                if found != expected:
                    raise PinMismatch(path, expected, found, f"recorded on {entry['recorded_at']} in {recorded}")


@lru_cache(maxsize=2)
def _parsed_dataset(path: Path, sha256: str) -> Dataset:
    """A stored dataset. Kept, because its bytes were hashed just now and equal bytes are read alike."""
    return load_dataset(path)


def dataset_name(dataset: Dataset, experiment: Experiment) -> str:
    """The name that a dataset is pinned under; a copy without a manifest is of the seeds that the experiment states."""
    return pinned_name(dataset, experiment.dataset.num_seeds, experiment.dataset.start_seed)


def manifest_record(manifest: Manifest) -> dict[str, Any]:
    """A manifest as frozen_manifest's artifact holds it."""
    return {"name": manifest.name, "sha256": manifest.sha256, "cases": [list(case) for case in manifest.cases]}
