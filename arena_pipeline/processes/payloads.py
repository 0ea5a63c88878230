"""What each task is told, checked before it does anything; every input is a place and the hash expected there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from arena_pipeline.errors import IntegrityError
from arena_pipeline.experiments import Recipe, Serving
from arena_pipeline.provenance.config_files import Config, Sha256
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.serving.loading import base_sha256
from arena_pipeline.sft.loading import Dataset, load_dataset

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$")]


class BaseModelInput(Config):
    """The base model."""

    path: str
    """Its directory."""
    sha256: Sha256
    """Hash of its tree of files."""

    def verified(self) -> Path:
        """Its directory, after hashing all of it; ``IntegrityError`` if it is another model."""
        return _verified(Path(self.path), self.sha256, base_sha256(Path(self.path)))


class AdapterInput(Config):
    """A LoRA adapter."""

    path: str
    """Its directory."""
    sha256: Sha256
    """Hash of its tree of files."""

    def verified(self) -> Path:
        """Its directory, after hashing all of it; ``IntegrityError`` if it is another adapter."""
        return _verified(Path(self.path), self.sha256, adapter_sha256(Path(self.path)))


class DatasetInput(Config):
    """The dataset."""

    directory: str
    """Its directory."""
    content_sha256: Sha256
    """Its content hash."""

    def loaded(self) -> Dataset:
        """The dataset with every id verified; ``IntegrityError`` if it is another one."""
        dataset = load_dataset(Path(self.directory))
        _verified(Path(self.directory), self.content_sha256, dataset.content_sha256)
        return dataset


class TrainPayload(Config):
    """``train``: rows of train in a drawn order, a recipe, checkpoints out."""

    base: BaseModelInput
    dataset: DatasetInput
    row_ids: Annotated[tuple[Sha256, ...], Field(strict=False, min_length=1)]
    """The drawn list: a mixture's ``row_ids``, or the overfit set's ids in cycles."""
    recipe: Recipe
    device: Literal["cpu", "cuda", "auto"]
    measure_validation: bool = True
    """Whether each checkpoint's loss on the validation split is measured."""


class ScoredModel(Config):
    """One model of a ``score_rows`` task; the untouched base model where ``adapter`` is null."""

    name: Name
    """Directory of its scores."""
    step: int | None = None
    """Optimizer step of a checkpoint."""
    adapter: AdapterInput | None = None


class ScorePayload(Config):
    """``score_rows``: replies of models to rows of a split, and their scores."""

    base: BaseModelInput
    dataset: DatasetInput
    split: Literal["train", "validation", "test"]
    row_ids: Annotated[tuple[Sha256, ...], Field(strict=False, min_length=1)] | None = None
    """Which rows of the split, in this order; all of them where it is null."""
    models: Annotated[tuple[ScoredModel, ...], Field(strict=False, min_length=1)]
    serving: Serving
    opened_for_adapter: Sha256 | None = None
    """Adapter of the ledger's opening, for the test split."""


class EvaluatePayload(Config):
    """``evaluate_arena``: the cases of a manifest played by one model."""

    base: BaseModelInput
    adapter: AdapterInput | None = None
    manifest: str
    """Name of the manifest, or NAME:N for its first N cases."""
    prompts: Mapping[str, str]
    """The prompt pack: version, broadcast_system, action_system, team_objective."""
    serving: Serving
    opened_for_adapter: Sha256 | None = None
    """Adapter of the ledger's opening, for a sealed manifest."""


def _verified(path: Path, expected: str, found: str) -> Path:
    if found != expected:
        raise IntegrityError(path, expected, found)
    return path
