"""Questions about what a prompt shows, each with the one answer that reading it gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arena_pipeline.arena.state import ACTION_KINDS, Action, Observation
from arena_pipeline.base_models.corpus.criteria import random_clause
from arena_pipeline.provenance.hashing import canonical_json

NONE: Final = "none"


@dataclass(frozen=True)
class Shown:
    """What a prompt shows: observations by node (in shown order), displayed actions, and each sender's intent."""

    memory: dict[str, Observation]
    displayed: tuple[Action, ...]
    intents: dict[str, object]

    def id_of(self, action: Action) -> str:
        """The id under which an action is displayed."""
        return f"A{self.displayed.index(action)}"


Question = tuple[str, str]


def random_question(rng: random.Random, shown: Shown) -> Question:
    """A question and its answer."""
    return rng.choices(_ASKERS, weights=_WEIGHTS)[0](rng, shown)


def _facts(rng: random.Random, shown: Shown) -> Question:
    chosen = rng.sample(list(shown.memory), rng.randint(1, min(3, len(shown.memory))))
    return f"facts of {' '.join(chosen)}?", canonical_json([shown.memory[node].to_dict() for node in chosen])


def _field(rng: random.Random, shown: Shown) -> Question:
    node = rng.choice(list(shown.memory))
    field = rng.choice(("owner", "status", "value", "critical", "observed_turn"))
    value = shown.memory[node].to_dict()[field]
    return f"{field} of {node}?", value if isinstance(value, str) else canonical_json(value)


def _spell(rng: random.Random, shown: Shown) -> Question:
    action = rng.choice(shown.displayed)
    return f"spell {shown.id_of(action)}?", canonical_json(action.to_dict())


def _name(rng: random.Random, shown: Shown) -> Question:
    action = rng.choice(shown.displayed)
    if rng.random() < 0.25:
        action = Action(rng.choice(ACTION_KINDS), rng.choice(list(shown.memory)))
    answer = canonical_json({"action_id": shown.id_of(action)}) if action in shown.displayed else NONE
    return f"id of {action.kind} {action.target or ''}".rstrip() + "?", answer


def _actions_on(rng: random.Random, shown: Shown) -> Question:
    node = rng.choice(list(shown.memory))
    ids = [
        f"{shown.id_of(action)} {action.kind}"
        for action in sorted(shown.displayed, key=lambda action: action.sort_key)
        if action.target == node
    ]
    return f"actions on {node}?", ", ".join(ids) or NONE


def _nodes(rng: random.Random, shown: Shown) -> Question:
    clause = random_clause(rng, 0.0)
    nodes = [node for node, seen in shown.memory.items() if clause.holds(seen)]
    return f"nodes {clause.words}?", " ".join(nodes) or NONE


def _kind(rng: random.Random, shown: Shown) -> Question:
    clause, kind = random_clause(rng, 0.0), rng.choice(("CAPTURE", "PROBE", "FORTIFY", "RECOVER"))
    ids = [
        f"{shown.id_of(action)} {action.target}"
        for action in sorted(shown.displayed, key=lambda action: action.sort_key)
        if action.kind == kind and action.target in shown.memory and clause.holds(shown.memory[action.target])
    ]
    return f"{kind} {clause.words}?", ", ".join(ids) or NONE


def _order(rng: random.Random, shown: Shown) -> Question:
    nodes = list(shown.memory)
    rng.shuffle(nodes)
    return f"order {' '.join(nodes)}?", " ".join(sorted(nodes, reverse=True))


def _intent(rng: random.Random, shown: Shown) -> Question:
    if not shown.intents:
        return _field(rng, shown)
    sender = rng.choice(list(shown.intents))
    return f"intent of {sender}?", canonical_json(shown.intents[sender])


_ASKERS: Final[tuple[Callable[[random.Random, Shown], Question], ...]] = (
    _facts,
    _field,
    _spell,
    _name,
    _actions_on,
    _nodes,
    _kind,
    _order,
    _intent,
)
_WEIGHTS: Final = (5, 2, 2, 3, 3, 2, 3, 1, 1)
