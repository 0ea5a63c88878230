"""How the embedded base model is made, as its `build.toml` states it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from arena_pipeline.base_models.corpus.documents import CorpusMixture
from arena_pipeline.errors import ConfigError


@dataclass(frozen=True)
class Architecture:
    """Sizes of the Qwen3 model; embeddings are tied."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_dimension: int
    feed_forward: int
    rope_theta: float


@dataclass(frozen=True)
class Optimisation:
    """AdamW with linear warm-up and cosine decay to a tenth, over batches of about ``tokens_per_batch`` tokens.

    ``prompt_weight`` is the loss weight of a token outside the replies; a reply's token weighs 1.
    """

    seed: int
    corpus_seed: int
    documents: int
    steps: int
    tokens_per_batch: int
    learning_rate: float
    weight_decay: float
    warmup_steps: int
    prompt_weight: float


@dataclass(frozen=True)
class Phase:
    """One stretch of pre-training on a corpus of its own."""

    corpus: CorpusMixture
    optimisation: Optimisation


@dataclass(frozen=True)
class BaseModelRecipe:
    """The whole of a `build.toml`.

    Each phase goes on from the weights of the one before. The model is the last phase's, or, with ``average`` below 1,
    the average of the last two phases' weights in which the last one weighs ``average``.
    """

    vocabulary: int
    tokenizer_seed: int
    tokenizer_documents: int
    prompts: str
    average: float
    architecture: Architecture
    phases: tuple[Phase, ...]


def load_recipe(path: Path) -> BaseModelRecipe:
    """Read a `build.toml`; ``ConfigError`` names the file and the key that is missing, unknown or of the wrong type."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file ({error})") from None
    phases = body.pop("phases", None)
    if not isinstance(phases, list) or not phases:
        raise ConfigError(f"{path}: [[phases]] is missing; a recipe has at least one phase")
    return _section(
        str(path),
        BaseModelRecipe,
        {
            **body,
            "architecture": _section(f"{path}: [architecture]", Architecture, body.pop("architecture", {})),
            "phases": tuple(_phase(path, number, phase) for number, phase in enumerate(phases, start=1)),
        },
    )


def _phase(path: Path, number: int, body: dict[str, Any]) -> Phase:
    parts = {"corpus": CorpusMixture, "optimisation": Optimisation}
    read = {
        name: _section(f"{path}: phase {number} [{name}]", kind, body.pop(name))
        for name, kind in parts.items()
        if name in body
    }
    return _section(f"{path}: phase {number}", Phase, {**body, **read})


def _section(where: str, kind: type[Any], body: dict[str, Any]) -> Any:
    allowed = {field.name: field for field in fields(kind)}
    for key in body:
        if key not in allowed:
            raise ConfigError(f"{where}: unknown key {key!r}; allowed are {', '.join(allowed)}")
    try:
        return kind(**body)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
