"""The gates' policy file: thresholds, smallest effects of interest and the interval level.

A policy may be stricter than the specification's, never looser: the specification's values are built in as the floor.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from arena_pipeline.provenance.config_files import Config, check_config, parse_toml, read_file
from arena_pipeline.provenance.hashing import sha256_bytes


def _at_least(specified: float) -> AfterValidator:
    def check(value: float) -> float:
        if value < specified:
            raise ValueError(f"found {value}; allowed: {specified} or more, since a policy may only tighten")
        return value

    return AfterValidator(check)


def _at_most(specified: float) -> AfterValidator:
    def check(value: float) -> float:
        if value > specified:
            raise ValueError(f"found {value}; allowed: {specified} or less, since a policy may only tighten")
        return value

    return AfterValidator(check)


class Thresholds(Config):
    """What each gate asks for."""

    action_schema: Annotated[float, _at_least(0.995)]
    """Least share of schema-valid ACT replies."""
    broadcast_schema: Annotated[float, _at_least(0.99)]
    """Least share of schema-valid BROADCAST replies."""
    unsupported_facts: Annotated[float, _at_most(0.0)]
    """Most facts that the sender's own observation does not hold."""
    legal_actions: Annotated[float, _at_least(0.95)]
    """Least share of legal ACT replies."""
    oracle_regret: Annotated[float, _at_most(0.0)]
    """The interval of the regret difference lies below this."""
    order_regret_increase: Annotated[float, _at_most(0.5)]
    """The interval of the regret increase under another display order reaches at most this."""
    order_strict_actions: Annotated[float, _at_least(0.95)]
    """Least strict action rate in the first display order."""
    order_strict_fall: Annotated[float, _at_most(0.01)]
    """Most that the strict action rate falls under another display order."""
    communication_useful: Annotated[float, _at_least(0.0)]
    """The interval of generated - dropped reward lies above this."""
    communication_semantic: Annotated[float, _at_least(0.0)]
    """The interval of generated - shuffled reward lies above this."""


class Deltas(Config):
    """The smallest effects of interest, by gate."""

    oracle_regret: float = Field(gt=0)
    """Smallest fall in regret that matters."""
    order_robustness: float = Field(gt=0)
    """Smallest regret increase under another display order that matters."""
    communication_useful: float = Field(gt=0)
    """Smallest generated - dropped reward that matters."""
    communication_semantic: float = Field(gt=0)
    """Smallest generated - shuffled reward that matters."""


class Levels(Config):
    """Levels of the intervals."""

    alpha: Annotated[float, Field(gt=0), _at_most(0.05)]
    """Intervals are at 1 - alpha / k for the k-th opening of a sealed set."""


class PolicyFile(Config):
    """The content of ``data/gates.toml``."""

    version: str = Field(min_length=1)
    """Name that the policy is pinned under."""
    thresholds: Thresholds
    """What each gate asks for."""
    deltas: Deltas
    """The smallest effects of interest, by gate."""
    levels: Levels
    """Levels of the intervals."""


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """A loaded policy; ``sha256`` is of the file's bytes."""

    version: str
    thresholds: Mapping[str, float]
    deltas: Mapping[str, float]
    alpha: float
    sha256: str

    @classmethod
    def load(cls, path: Path) -> GatePolicy:
        """Read a policy; ``ConfigError`` names the file and each key that is missing, unknown or too loose."""
        data = read_file(path, path)
        body = check_config(PolicyFile, parse_toml(data, path), path)
        return cls(
            version=body.version,
            thresholds=body.thresholds.model_dump(),
            deltas=body.deltas.model_dump(),
            alpha=body.levels.alpha,
            sha256=sha256_bytes(data),
        )
