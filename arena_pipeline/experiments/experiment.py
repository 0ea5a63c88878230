"""An experiment: dataset, base model, recipe, serving, evaluation and machine needs, with the rules between them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from arena_pipeline.arena.manifests import MANIFESTS, SEALED_MANIFESTS
from arena_pipeline.experiments.recipe import OVERFIT_ROWS, Recipe, Smoke
from arena_pipeline.provenance.config_files import Config
from arena_pipeline.provenance.hashing import sha256_json

RESULT_CHECKPOINTS = 8
"""The fewest checkpoints that a result selects from."""
RESULT_SCHEMA_VALID = 0.99
RESULT_RANDOM_REPEATS = 32
STANDARD_SEEDS = (range(1024), range(5_000_000, 5_006_000), range(6_000_000, 6_000_512))
"""Seeds of the rows of the standard dataset build, plain, targeted and silence: those of its test split are sealed."""
DEVELOPMENT_MANIFESTS = tuple(name for name in MANIFESTS if name not in SEALED_MANIFESTS)


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or value != str(path) or value == ".":
        raise ValueError(f"found {value!r}; allowed: a path inside the project, such as data/base_models/arena-tiny")
    return value


def _manifest(value: str) -> str:
    if value not in MANIFESTS:
        raise ValueError(f"found {value!r}; allowed: {', '.join(MANIFESTS)}")
    return value


RelativePath = Annotated[str, AfterValidator(_relative)]
ManifestName = Annotated[str, AfterValidator(_manifest)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class DatasetChoice(Config):
    """Which dataset: the one in the directory if it is there, else one built into it."""

    directory: RelativePath
    """Directory of the dataset, below the project."""
    prompts: RelativePath
    """Prompt pack to build it with; a dataset that is there already keeps its own sentences."""
    num_seeds: int = Field(default=1024, ge=1)
    """States to build plain rows from."""
    start_seed: int = Field(default=0, ge=0)
    """Seed of the first state."""


class BaseModelChoice(Config):
    """Which base model."""

    path: RelativePath
    """Directory of the model, below the project."""
    name: str = Field(min_length=1, max_length=100)
    """Its name in data/pins.toml."""


class Serving(Config):
    """How replies are generated: greedily, in batches that depend on the requests alone."""

    backend: Literal["transformers"]
    """What generates."""
    batch_size: int = Field(ge=1, le=4096)
    """Requests in a batch, the unit that is stored."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of weights and arithmetic; replies that are compared need float32."""
    device: Literal["cpu", "cuda", "auto"]
    """Where; auto takes a GPU if there is one."""
    max_new_tokens: int = Field(default=224, ge=1, le=224)
    """Longest reply in tokens (evaluation spec)."""


class Evaluation(Config):
    """What is played."""

    sealed_manifest: ManifestName
    """Manifest of the verdict; a sealed one for a result, a development one for a rehearsal."""
    dev_manifest: ManifestName
    """Manifest to look at during development, and before the sealed sets open."""
    limit: int | None = Field(default=None, ge=2)
    """First cases of each manifest that are played, for a rehearsal only; a result plays all."""
    random_repeats: int = Field(default=RESULT_RANDOM_REPEATS, ge=1)
    """Repeats of the random_legal baseline for each case."""


class Machine(Config):
    """What the machine must have. 1 GiB is 2**30 bytes."""

    gpu: bool
    """Whether an NVIDIA GPU is needed; it is then used by one process at a time."""
    minimum_gpu_memory_gib: float = Field(default=0, ge=0)
    """Memory of that GPU."""
    minimum_memory_gib: float = Field(ge=0)
    """Memory of the machine."""
    minimum_disk_gib: float = Field(ge=0)
    """Free disk space where the storage directory lies."""


class Experiment(Config):
    """One experiment. Its name is the name of its file."""

    name: Name
    """Name, also that of its partition."""
    description: str = Field(min_length=1)
    """What it is for, in one sentence."""
    result: bool = True
    """Whether its verdict is a result; false for a rehearsal, which is never called one and looks at no sealed case."""
    dataset: DatasetChoice
    """Training, validation and test rows."""
    base_model: BaseModelChoice
    """The untouched model."""
    recipe: Recipe
    """How the adapter is trained."""
    smoke: Smoke
    """The overfit smoke before it."""
    serving: Serving
    """How replies are generated."""
    evaluation: Evaluation
    """What is played."""
    machine: Machine
    """What the machine must have."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        problems = [*self._conflicts(), *(self._result_conflicts() if self.result else self._rehearsal_conflicts())]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _conflicts(self) -> list[str]:
        problems = []
        if self.evaluation.dev_manifest in SEALED_MANIFESTS:
            allowed = ", ".join(DEVELOPMENT_MANIFESTS)
            problems.append(f"evaluation.dev_manifest: found {self.evaluation.dev_manifest}; allowed: {allowed}")
        if (self.recipe.warmup_steps or 0) >= self.smoke.steps:
            allowed = f"more than recipe.warmup_steps {self.recipe.warmup_steps}"
            problems.append(f"smoke.steps: found {self.smoke.steps}; allowed: {allowed}")
        if self.serving.device == "cuda" and not self.machine.gpu:
            problems.append("machine.gpu: found false; allowed: true where serving.device is cuda")
        if self.machine.gpu != (self.machine.minimum_gpu_memory_gib > 0):
            found = f"{self.machine.minimum_gpu_memory_gib:g}"
            problems.append(
                f"machine.minimum_gpu_memory_gib: found {found}; allowed: above 0 where gpu is true, else 0"
            )
        return problems

    def _result_conflicts(self) -> list[str]:
        rules = (
            ("recipe.checkpoints", self.recipe.checkpoints, RESULT_CHECKPOINTS),
            ("smoke.rows", self.smoke.rows, OVERFIT_ROWS),
            ("smoke.minimum_schema_valid", self.smoke.minimum_schema_valid, RESULT_SCHEMA_VALID),
            ("evaluation.random_repeats", self.evaluation.random_repeats, RESULT_RANDOM_REPEATS),
        )
        problems = [
            f"{key}: found {found}; allowed for a result: {least} or more"
            for key, found, least in rules
            if found < least
        ]
        if self.evaluation.sealed_manifest not in SEALED_MANIFESTS:
            allowed = ", ".join(SEALED_MANIFESTS)
            found = self.evaluation.sealed_manifest
            problems.append(f"evaluation.sealed_manifest: found {found}; allowed for a result: {allowed}")
        if self.evaluation.limit is not None:
            problems.append(f"evaluation.limit: found {self.evaluation.limit}; a result plays all cases: leave it out")
        return problems

    def _rehearsal_conflicts(self) -> list[str]:
        problems = []
        if self.evaluation.sealed_manifest in SEALED_MANIFESTS:
            allowed = ", ".join(DEVELOPMENT_MANIFESTS)
            found = self.evaluation.sealed_manifest
            problems.append(f"evaluation.sealed_manifest: found {found}; allowed where result is false: {allowed}")
        first, behind = self.dataset.start_seed, self.dataset.start_seed + self.dataset.num_seeds
        for standard in STANDARD_SEEDS:
            if first < standard.stop and standard.start < behind:
                problems.append(
                    f"dataset.start_seed: found seeds {first} to {behind - 1}; allowed where result is false: none of "
                    f"{standard.start} to {standard[-1]}, whose test rows are sealed for results"
                )
        return problems

    def resolved(self) -> dict[str, Any]:
        """Everything that holds for this experiment, defaults included, as JSON values."""
        return self.model_dump(mode="json")

    @property
    def identity(self) -> str:
        """Experiment identity (evaluation spec): SHA-256 of all of it but its name and description."""
        content = self.resolved()
        del content["name"], content["description"]
        return sha256_json(content)

    def slice(self, *keys: str) -> dict[str, Any]:
        """The parts of the configuration that a stage reads, for its key: sections ("recipe") or values ("result",
        "serving.dtype"), by the name asked for. Raises ``KeyError`` for a part that there is not.
        """
        parts = {}
        for key in keys:
            value: Any = self.resolved()
            for part in key.split("."):
                value = value[part]
            parts[key] = value
        return parts
