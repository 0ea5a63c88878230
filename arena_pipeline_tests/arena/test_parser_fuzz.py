"""Mutated replies: no exception, no false accept, and the same findings as a slow reading of the specification."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import pytest

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions, legal_actions, observe
from arena_pipeline.arena.parser import ErrorCode, Verdict, parse_action, parse_broadcast
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.protocol import encode_action, encode_broadcast
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.state import BLUE_AGENTS, TEAMS, State
from arena_pipeline_tests.arena.parser_reference import Reading, action_reading, broadcast_reading

FRAGMENTS = [
    *'{}[]":,\\ \t\r\n\v\f\0-+.0123456789eEAVabcnu/_',
    *("null", "true", "false", "NaN", "Infinity", "-Infinity", "-0", "1.0", "1e0", "00", "\\u0041", "\\ud800", '\\"'),
    *(
        "\u00a0",
        "\ufeff",
        "\u2028",
        "\u0661",
        "\uff11",
        "\u00b2",
        "\u2460",
        "\uff21",
        "\u017f",
        "\ud800",
        "\udc00",
        "é",
    ),
    *('"type":"WAIT",', '"action_id":"A0",', '"facts":[],', '"amount":1,', "[]", "{}", '""', "//", "```", "9" * 30),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 4, -1, 0.0, 1.0, 10**20, float("nan"), float("inf"), "", "BLUE", "RED", "NEUTRAL"),
    *("SECURE", "EXPOSED", "COMPROMISED", "WAIT", "SCAN", "TRANSFER", "scan", "blue-1", "blue-0", "A0", "A3", "A01"),
    *("A12", "A99", "V10", "\ud800", [], {}, [[]], [None], {"type": "WAIT"}, {"type": None}, {"a": {"a": 1}}),
]
KEYS = ["facts", "intent", "request_resource", "node", "type", "target", "amount", "action_id", "id", "", "Facts"]


@dataclass(frozen=True)
class Case:
    """A right reply, the parser's and the reference's views of replies in its place, and the way back to text."""

    right: str
    parse: Callable[[str], Verdict]
    reference: Callable[[str], Reading]
    encode: Callable[[Any], str]


def _states() -> Iterator[State]:
    for seed in range(8):
        state = generate_state(seed, 10 + seed)
        yield state
        for _ in range(2):  # later turns: larger memories, other stamps
            moves = [scripted_policy("sequential_heuristic", state, team) for team in TEAMS]
            state = step(state, moves[0] | moves[1]).state
        yield state
    for skill in ("WAIT", "SCAN", "TRANSFER", "SILENCE"):
        yield generate_mechanics_state(5_000_000, skill)


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for state in _states():
        for agent_id in BLUE_AGENTS:
            known = observe(state, agent_id)["known_nodes"]
            intent = rng.choice([None, *(action.to_dict() for action in legal_actions(state, agent_id))])
            broadcast = {
                "facts": rng.sample(known, rng.randint(0, min(3, len(known)))),
                "intent": intent,
                "request_resource": rng.randint(0, 1),
            }
            displayed = displayed_actions(state, agent_id, rng.randrange(100))
            cases += [
                Case(
                    encode_broadcast(broadcast),
                    partial(parse_broadcast, state=state, agent_id=agent_id),
                    partial(broadcast_reading, state=state, agent_id=agent_id),
                    encode_broadcast,
                ),
                Case(
                    encode_action(rng.choice(displayed), displayed),
                    partial(parse_action, displayed=displayed),
                    partial(action_reading, displayed=displayed),
                    partial(encode_action, displayed=displayed),
                ),
            ]
    return cases


def _mutate_text(rng: random.Random, text: str) -> str:
    """One edit of the characters."""
    left, right = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    near = min(len(text), left + rng.randint(0, 3))
    edited: str = rng.choice(
        [
            text[:left] + rng.choice(FRAGMENTS) + text[left:],
            text[:left] + text[near:],
            text[:left] + rng.choice(FRAGMENTS) + text[near:],
            text[:left] + text[left:right] * 2 + text[right:],
            text[:left] + text[right:],
            text[:right],
            rng.choice(FRAGMENTS) + text,
            text + rng.choice(FRAGMENTS),
        ]
    )
    return edited


class _Twice(dict[str, Any]):
    """Serialises one of its keys twice."""

    def items(self) -> Any:
        pairs = list(super().items())
        return [*pairs, *pairs[:1]]


def _mutate_value(rng: random.Random, text: str) -> str:
    """One edit of the value the text stands for, written back in another order and spacing."""

    def places(value: Any) -> Iterator[tuple[Any, Any]]:
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            yield value, key
            yield from places(child)

    root = [json.loads(text)]
    holder, key = rng.choice(list(places(root)))
    edit = rng.randrange(7)
    if edit <= 1:
        holder[key] = rng.choice(VALUES)
    elif edit == 2:
        del holder[key]
    elif edit == 3 and isinstance(holder, dict):
        holder[rng.choice(KEYS)] = rng.choice(VALUES)
    elif edit == 4 and isinstance(holder, dict):
        holder[rng.choice(KEYS)] = holder.pop(key)
    elif edit == 5 and isinstance(holder[key], dict):
        holder[key] = _Twice(holder[key])
    elif isinstance(holder, list):
        holder.append(rng.choice(holder))
    else:
        holder.update(reversed(list(holder.items())))
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,\t", "\r\n:\n")])
    return json.dumps(root[0] if root else rng.choice(VALUES), separators=separators, ensure_ascii=rng.random() < 0.5)


@pytest.mark.parametrize("replies", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_mutated_replies_are_judged_as_the_specification_says(replies: int) -> None:
    rng = random.Random(f"mutated replies: {replies}")
    cases = _cases(rng)
    errors: Counter[ErrorCode | None] = Counter()
    for _ in range(replies):
        case = rng.choice(cases)
        raw = rng.choice(cases).right if rng.random() < 0.03 else case.right
        if rng.random() < 0.8:
            raw = _mutate_value(rng, raw)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 3))):
            raw = _mutate_text(rng, raw)

        verdict = case.parse(raw)
        error, *_ = expected = case.reference(raw)
        assert expected == (
            verdict.error,
            verdict.schema_valid,
            verdict.supported,
            verdict.legal,
            verdict.facts,
            verdict.unsupported_facts,
        ), raw
        errors[verdict.error] += 1
        if error is None:
            again = case.parse(case.encode(verdict.value))
            assert again.value == verdict.value
            assert case.encode(again.value) == case.encode(verdict.value)
        else:
            assert verdict.value is None
    # The fuzz is worth something only if it reaches every rule, and acceptance.
    assert set(errors) == {None, *get_args(ErrorCode)}
    assert min(errors.values()) >= replies // 1_000
    assert errors[None] >= replies // 20
