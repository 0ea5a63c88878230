"""The gates' policy file: thresholds, smallest effects of interest and the interval level.

A policy may be stricter than the specification's, never looser: the specification's values are built in as the floor.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from arena_pipeline.errors import ConfigError
from arena_pipeline.provenance.hashing import sha256_bytes

Stricter = Literal["higher", "lower"]

FLOOR: Final[Mapping[str, tuple[float, Stricter]]] = MappingProxyType(
    {
        "action_schema": (0.995, "higher"),
        "broadcast_schema": (0.99, "higher"),
        "unsupported_facts": (0.0, "lower"),
        "legal_actions": (0.95, "higher"),
        "oracle_regret": (0.0, "lower"),
        "order_regret_increase": (0.5, "lower"),
        "order_strict_actions": (0.95, "higher"),
        "order_strict_fall": (0.01, "lower"),
        "communication_useful": (0.0, "higher"),
        "communication_semantic": (0.0, "higher"),
    }
)
"""Threshold -> (the specification's value, the direction in which it is stricter)."""

DELTA_GATES: Final = ("oracle_regret", "order_robustness", "communication_useful", "communication_semantic")
_HIGHEST_ALPHA: Final = 0.05
_SECTIONS: Final = ("version", "thresholds", "deltas", "levels")


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
        """Read a policy; ``ConfigError`` names the file and the key that is missing, unknown or too loose."""
        try:
            data = path.read_bytes()
            body = tomllib.loads(data.decode("utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError as error:
            raise ConfigError(f"{path}: not a TOML file ({error})") from None
        _require_keys(path, "", body, _SECTIONS)
        if not isinstance(body["version"], str) or not body["version"]:
            raise ConfigError(f"{path}: version is {body['version']!r}; it must be a name")
        thresholds = _numbers(path, "thresholds", body["thresholds"], tuple(FLOOR))
        for name, value in thresholds.items():
            floor, stricter = FLOOR[name]
            if (value < floor) if stricter == "higher" else (value > floor):
                least = "at least" if stricter == "higher" else "at most"
                raise ConfigError(
                    f"{path}: thresholds.{name} is {value}, looser than {least} {floor}; it may only tighten"
                )
        deltas = _numbers(path, "deltas", body["deltas"], DELTA_GATES)
        alpha = _numbers(path, "levels", body["levels"], ("alpha",))["alpha"]
        for name, value in (*((f"deltas.{name}", delta) for name, delta in deltas.items()), ("levels.alpha", alpha)):
            if value <= 0:
                raise ConfigError(f"{path}: {name} is {value}; it must be above 0")
        if alpha > _HIGHEST_ALPHA:
            raise ConfigError(
                f"{path}: levels.alpha is {alpha}, looser than at most {_HIGHEST_ALPHA}; it may only tighten"
            )
        return cls(body["version"], thresholds, deltas, alpha, sha256_bytes(data))


def _numbers(path: Path, section: str, body: Any, names: tuple[str, ...]) -> Mapping[str, float]:
    if not isinstance(body, dict):
        raise ConfigError(f"{path}: {section} is {body!r}; it must be a table of numbers")
    _require_keys(path, f"{section}.", body, names)
    for name, value in body.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ConfigError(f"{path}: {section}.{name} is {value!r}; it must be a number")
    return MappingProxyType({name: float(body[name]) for name in names})


def _require_keys(path: Path, prefix: str, body: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for key in body:
        if key not in names:
            raise ConfigError(f"{path}: unknown key {prefix}{key}; allowed are {', '.join(names)}")
    for name in names:
        if name not in body:
            raise ConfigError(f"{path}: key {prefix}{name} is missing; a policy names every one")
