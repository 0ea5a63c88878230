"""The golden vectors of the environment, and the states that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from arena_pipeline.arena import Action, State, action_from_dict, generate_mechanics_state, generate_state

GOLDEN = Path(__file__).parent.parent / "golden"


@cache
def golden(name: str) -> Any:
    """The parsed content of ``golden/<name>.json``; shared, so not to be changed."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def start_state(record: Mapping[str, Any]) -> State:
    """The initial state that a record names by its keys ``start`` or ``kind``, ``seed`` and ``size`` or ``skill``."""
    if record.get("start", record.get("kind")) == "mechanics":
        return generate_mechanics_state(record["seed"], record["skill"])
    return generate_state(record["seed"], record["size"])


def actions(bodies: Mapping[str, Mapping[str, Any]]) -> dict[str, Action]:
    """A joint action in dictionary form as actions."""
    return {agent_id: action_from_dict(body) for agent_id, body in bodies.items()}


def bodies(joint: Mapping[str, Action]) -> dict[str, dict[str, Any]]:
    """The dictionary form of a joint action."""
    return {agent_id: action.to_dict() for agent_id, action in joint.items()}
