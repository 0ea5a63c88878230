"""Which metadata a row of each kind carries, with which types (dataset specification, "Rows, ids, hash").

A kind is (phase, whether the row is targeted). Published copies fill the keys that a kind does not have with typed
defaults, so that every file has one Arrow schema; ``without_defaults`` takes them out again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from arena_pipeline.arena.state import BLUE_AGENTS
from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.splits import SPLITS

DATASET_VERSION: Final = "arena-sft-v2"
TARGETED_MODE: Final = "targeted_mechanics"
PHASES: Final = ("BROADCAST", "ACT")
SILENCE: Final = "SILENCE"
ACTION_SKILLS: Final = ("WAIT", "SCAN", "TRANSFER")
"""The skills that targeted ACT rows teach, in generation order."""

LABEL_SOURCES: Final[Mapping[tuple[str, bool], str]] = {
    ("BROADCAST", False): "deterministic_observation_policy",
    ("ACT", False): "exact_joint_solver_and_prompt_policy_agree",
    ("BROADCAST", True): "exact_empty_broadcast",
    ("ACT", True): "exact_joint_solver_and_unique_visible_mechanic",
}

_COMMON: Final[Mapping[str, type]] = {
    "dataset_version": str,
    "arena_version": str,
    "generator_version": str,
    "prompt_version": str,
    "seed": int,
    "split": str,
    "phase": str,
    "agent_id": str,
    "label_source": str,
}
_TARGETED: Final[Mapping[str, type]] = {"generator_mode": str, "targeted_skill": str}
_SOLVER: Final[Mapping[str, type]] = {
    "solver_reward": float,
    "solver_joint_actions_explored": int,
    "solver_optimal_count": int,
}
_POLICY: Final[Mapping[str, type]] = {"policy_reward": float}

TYPES_BY_KIND: Final[Mapping[tuple[str, bool], Mapping[str, type]]] = {
    ("BROADCAST", False): _COMMON,
    ("ACT", False): {**_COMMON, **_SOLVER, **_POLICY},
    ("BROADCAST", True): {**_COMMON, **_TARGETED},
    ("ACT", True): {**_COMMON, **_TARGETED, **_SOLVER},
}
_ALL_TYPES: Final[Mapping[str, type]] = {**_COMMON, **_TARGETED, **_SOLVER, **_POLICY}
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {"phase": PHASES, "split": SPLITS, "agent_id": BLUE_AGENTS}


def without_defaults(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A row's metadata with exactly the keys of its kind.

    Raises ``DatasetError`` naming the key if one is missing, of another type, outside its vocabulary, unknown, or of
    another kind of row without being that type's default ("", 0 or 0.0).
    """
    targeted = bool(metadata.get("targeted_skill"))
    phase = metadata.get("phase")
    if phase not in PHASES:
        raise DatasetError(f"metadata key 'phase' is {phase!r}; allowed are {', '.join(PHASES)}")
    wanted = TYPES_BY_KIND[phase, targeted]
    for key in wanted:
        if key not in metadata:
            raise DatasetError(f"metadata key {key!r} is missing from a {_kind_name(phase, targeted)} row")
    kept: dict[str, Any] = {}
    for key, value in metadata.items():
        kind = _ALL_TYPES.get(key)
        if kind is None:
            raise DatasetError(f"metadata key {key!r} is unknown; allowed are {', '.join(sorted(_ALL_TYPES))}")
        # bool is a subclass of int, and no metadata value is one.
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            raise DatasetError(f"metadata key {key!r} is {value!r}; allowed is a {kind.__name__}")
        if key in wanted:
            kept[key] = value
        elif value != kind():
            raise DatasetError(
                f"metadata key {key!r} is {value!r} in a {_kind_name(phase, targeted)} row, which has no such key; "
                f"only its default {kind()!r} may fill it"
            )
    for key, allowed in _ALLOWED.items():
        if kept[key] not in allowed:
            raise DatasetError(f"metadata key {key!r} is {kept[key]!r}; allowed are {', '.join(allowed)}")
    _check_skill(kept, phase, targeted)
    return kept


def _check_skill(metadata: Mapping[str, Any], phase: str, targeted: bool) -> None:
    if not targeted:
        return
    allowed = ACTION_SKILLS if phase == "ACT" else (SILENCE,)
    if metadata["targeted_skill"] not in allowed:
        raise DatasetError(
            f"metadata key 'targeted_skill' is {metadata['targeted_skill']!r} in an {phase} row; "
            f"allowed are {', '.join(allowed)}"
        )


def _kind_name(phase: str, targeted: bool) -> str:
    return f"targeted {phase}" if targeted else phase
