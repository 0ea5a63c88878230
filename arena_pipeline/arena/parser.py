"""The one strict parser of replies, for labels, audit, validation scoring and evaluation (dataset spec, "Protocol").

It never raises, whatever the text. The first broken rule gives the error code; the three flags are evaluated
independently, so that the first error hides no later one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from arena_pipeline.arena._strict_json import RepeatedKeys, decode
from arena_pipeline.arena.observation import legal_actions
from arena_pipeline.arena.protocol import ACTION_KEYS, BROADCAST_KEYS, EMPTY_BROADCAST, MAX_FACTS, action_id
from arena_pipeline.arena.state import ACTION_KINDS, OWNERS, STATUSES, Action, State

ErrorCode = Literal[
    "invalid_json",
    "not_object",
    "broadcast_schema",
    "facts_schema",
    "fact_schema",
    "fact_node",
    "fact_value",
    "fact_priority",
    "fact_turn",
    "unsupported_fact",
    "illegal_intent",
    "request_schema",
    "action_schema",
    "action_id",
    "action_id_range",
]

_FACT_KEYS: Final = frozenset({"node", "owner", "status", "value", "critical", "observed_turn"})
_ACTION_ID: Final = re.compile(r"A(?:0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the parser found in one reply.

    ``value`` is the broadcast's dictionary or the chosen ``Action`` of a valid reply, else None; ``error`` is the code
    of the first broken rule, None iff valid. ``facts`` and ``unsupported_facts`` count the facts of a schema-valid
    broadcast and are 0 for every other reply; ``supported`` and ``legal`` hold only where ``schema_valid`` does.
    ``empty`` says that a valid broadcast is the empty one.
    """

    value: Any
    error: ErrorCode | None
    schema_valid: bool
    supported: bool
    legal: bool
    facts: int = 0
    unsupported_facts: int = 0
    empty: bool = False

    @property
    def valid(self) -> bool:
        """Whether the reply breaks no rule: schema-valid, supported and legal."""
        return self.error is None


def parse_broadcast(raw: str, state: State, agent_id: str) -> Verdict:
    """Parse a broadcast: its facts against ``agent_id``'s own memory, its intent against its legal actions."""
    body = _top_level(raw, BROADCAST_KEYS, "broadcast_schema")
    if isinstance(body, str):
        return _malformed(body)
    errors: list[ErrorCode] = []
    schema_valid = True
    unsupported_facts = 0

    facts = body["facts"]
    if not isinstance(facts, list) or len(facts) > MAX_FACTS:
        errors.append("facts_schema")
        schema_valid = False
        facts = []
    memory = state.knowledge[agent_id]
    named: set[str] = set()
    for fact in facts:
        if code := _fact_schema_error(fact, named):
            errors.append(code)
            schema_valid = False
        elif fact["node"] not in memory or fact != memory[fact["node"]].to_dict():
            errors.append("unsupported_fact")
            unsupported_facts += 1

    intent = body["intent"]
    action = _well_formed_action(intent)
    legal = intent is None or action in legal_actions(state, agent_id)
    if not legal:
        errors.append("illegal_intent")
        schema_valid = schema_valid and action is not None
    if type(body["request_resource"]) is not int or body["request_resource"] not in (0, 1):
        errors.append("request_schema")
        schema_valid = False

    if not schema_valid:
        return _malformed(errors[0])
    return Verdict(
        value=None if errors else body,
        error=errors[0] if errors else None,
        schema_valid=True,
        supported=unsupported_facts == 0,
        legal=legal,
        facts=len(facts),
        unsupported_facts=unsupported_facts,
        empty=body == EMPTY_BROADCAST,
    )


def parse_action(raw: str, displayed: Sequence[Action]) -> Verdict:
    """Parse an action reply against the displayed actions, which are in display order."""
    body = _top_level(raw, ACTION_KEYS, "action_schema")
    if isinstance(body, str):
        return _malformed(body)
    chosen = body["action_id"]
    if not isinstance(chosen, str):
        return _malformed("action_schema")
    if not _ACTION_ID.fullmatch(chosen):
        return _malformed("action_id")
    for position, action in enumerate(displayed):
        if chosen == action_id(position):
            return Verdict(action, None, schema_valid=True, supported=True, legal=True)
    return Verdict(None, "action_id_range", schema_valid=True, supported=False, legal=False)


def _malformed(error: ErrorCode) -> Verdict:
    return Verdict(None, error, schema_valid=False, supported=False, legal=False)


def _top_level(raw: str, keys: frozenset[str], schema_error: ErrorCode) -> dict[str, Any] | ErrorCode:
    """The reply's object if it has exactly the keys, else the code of the rule it breaks."""
    try:
        body = decode(raw)
    except ValueError:
        return "invalid_json"
    if isinstance(body, RepeatedKeys):
        return schema_error
    if not isinstance(body, dict):
        return "not_object"
    return body if body.keys() == keys else schema_error


def _fact_schema_error(fact: Any, named: set[str]) -> ErrorCode | None:
    """The first rule of form that a fact breaks; ``named`` collects the nodes of the facts before it."""
    if not isinstance(fact, dict) or fact.keys() != _FACT_KEYS:
        return "fact_schema"
    node = fact["node"]
    if not isinstance(node, str) or node in named:
        return "fact_node"
    named.add(node)
    if fact["owner"] not in OWNERS or fact["status"] not in STATUSES:
        return "fact_value"
    if type(fact["value"]) is not int or not 1 <= fact["value"] <= 3 or type(fact["critical"]) is not bool:
        return "fact_priority"
    if type(fact["observed_turn"]) is not int or fact["observed_turn"] < 0:
        return "fact_turn"
    return None


def _well_formed_action(intent: Any) -> Action | None:
    """The action that an intent spells out, legal or not; None if it is not exactly an ``Action.to_dict`` form."""
    if not isinstance(intent, dict) or intent.get("type") not in ACTION_KINDS:
        return None
    kind, target, amount = intent["type"], intent.get("target"), intent.get("amount")
    if kind == "WAIT":
        return Action(kind) if intent.keys() == {"type"} else None
    if not isinstance(target, str):
        return None
    if kind == "TRANSFER":
        exact = intent.keys() == {"type", "target", "amount"} and type(amount) is int
        return Action(kind, target, amount) if exact else None
    return Action(kind, target) if intent.keys() == {"type", "target"} else None
