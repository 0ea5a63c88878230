"""The strict parser: the golden cases, what it must refuse, its flags, and the way back from every legal broadcast."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions, legal_actions, observe
from arena_pipeline.arena.parser import Verdict, parse_action, parse_broadcast
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.protocol import EMPTY_BROADCAST, encode_action, encode_broadcast
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.state import BLUE_AGENTS, Action, State, state_digest

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "protocol.json").read_text(encoding="utf-8"))
EMPTY = '{"facts":[],"intent":null,"request_resource":0}'


@cache
def _context(name: str) -> State:
    context = GOLDEN["contexts"][name]
    if context["start"] == "mechanics":
        state = generate_mechanics_state(context["seed"], context["skill"])
    else:
        state = generate_state(context["seed"], context["size"])
    for _ in range(context.get("turns", 0)):
        joint = scripted_policy("sequential_heuristic", state, "BLUE") | scripted_policy(
            "sequential_heuristic", state, "RED"
        )
        state = step(state, joint).state
    return state


def _displayed(name: str) -> tuple[Action, ...]:
    context = GOLDEN["contexts"][name]
    return displayed_actions(_context(name), context["agent_id"], context["permutation"])


def _parse(kind: str, name: str, raw: str) -> Verdict:
    if kind == "action":
        return parse_action(raw, _displayed(name))
    return parse_broadcast(raw, _context(name), GOLDEN["contexts"][name]["agent_id"])


def _broadcast(raw: str, context: str = "G") -> Verdict:
    return _parse("broadcast", context, raw)


def _with(**changes: str) -> str:
    """The text of an empty broadcast with some members' texts replaced."""
    members = {"facts": "[]", "intent": "null", "request_resource": "0"} | changes
    return "{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}"


def _fact(**changes: str) -> str:
    """The text of a fact that holds in context G, with some members' texts replaced."""
    members = {
        "node": '"V74"',
        "owner": '"BLUE"',
        "status": '"EXPOSED"',
        "value": "1",
        "critical": "false",
        "observed_turn": "0",
    } | changes
    return "{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}"


# --- golden cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN["contexts"])
def test_golden_contexts_are_rebuilt(name: str) -> None:
    context = GOLDEN["contexts"][name]
    state = _context(name)
    if "displayed" in context:
        assert [action.to_dict() for action in _displayed(name)] == context["displayed"]
    else:
        assert state_digest(state) == context["state_sha256"]
        assert [action.to_dict() for action in legal_actions(state, context["agent_id"])] == context["legal_actions"]
        assert observe(state, context["agent_id"])["known_nodes"] == context["known_nodes"]


def test_all_golden_cases_are_here() -> None:
    assert len(GOLDEN["cases"]) == 148
    assert sum("note" in case for case in GOLDEN["cases"]) == 25


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['id']}-{case['label'][:30]}")
def test_golden_case(case: dict[str, Any]) -> None:
    verdict = _parse(case["parser"], case["context"], case["raw"])
    if "note" in case:
        assert verdict.error == case["strict_error"]
    elif case["verdict"] == "valid":
        assert verdict.error is None
        value = verdict.value.to_dict() if case["parser"] == "action" else verdict.value
        assert value == case["value"]
        assert json.dumps(value, sort_keys=True) == json.dumps(case["value"], sort_keys=True)  # 1 is not True here
    else:
        assert [verdict.error] == case["error"]
    assert verdict.valid == (verdict.error is None) == (verdict.value is not None)
    assert verdict.valid == (verdict.schema_valid and verdict.supported and verdict.legal)


# --- what is no JSON, or too much of it -------------------------------------------------------------------------------

NO_JSON = {
    "byte-order mark after a space": " \ufeff" + EMPTY,
    "vertical tab": "\v" + EMPTY,
    "form feed": EMPTY + "\f",
    "no-break space inside": EMPTY.replace(":", ":\u00a0"),
    "line separator": EMPTY + "\u2028",
    "comment": EMPTY + "//",
    "trailing comma": EMPTY.replace("0}", "0,}"),
    "unescaped newline in a key": EMPTY.replace("facts", "fac\nts"),
    "control character in a string": _with(intent='"\x01"'),
    "bad escape": _with(intent=r'"\x41"'),
    "escape with a sign": _with(intent=r'"\u+041"'),
    "escape with an underscore": _with(intent=r'"\u0_41"'),
    "escape with other digits": _with(intent='"\\u004\u0661"'),
    "leading zero": _with(request_resource="00"),
    "plus": _with(request_resource="+0"),
    "bare fraction": _with(request_resource=".5"),
    "open fraction": _with(request_resource="1."),
    "non-ASCII digit": _with(request_resource="\u0661"),
    "hexadecimal": _with(request_resource="0x1"),
    "lower-case nan": _with(request_resource="nan"),
    "negative NaN": _with(request_resource="-NaN"),
    "Python's None": _with(intent="None"),
    "lone surrogate, raw": _with(intent='"\ud800"'),
    "lone surrogate, raw, alone": "\udfff",
    "lone surrogate after the object": EMPTY + "\udc00",
}


@pytest.mark.parametrize("raw", NO_JSON.values(), ids=list(NO_JSON))
def test_what_is_no_json(raw: str) -> None:
    assert _broadcast(raw).error == "invalid_json"
    assert parse_action(raw, _displayed("disp")).error == "invalid_json"


def test_white_space_is_space_tab_carriage_return_and_line_feed() -> None:
    spaced = " \t\r\n".join(["", "{", '"facts"', ":", "[", "]", ",", '"intent"', ":", "null", ",", ""])
    assert _broadcast(spaced + '"request_resource" : 0\r\n}\t \r\n').value == EMPTY_BROADCAST


def test_the_longest_reply_has_65536_utf8_bytes() -> None:
    assert _broadcast(EMPTY + " " * (65_536 - len(EMPTY))).valid
    assert _broadcast(EMPTY + " " * (65_537 - len(EMPTY))).error == "invalid_json"
    padding = "é" * ((65_536 - len(_with(intent='""'))) // 2)  # two bytes each
    assert _broadcast(_with(intent=f'"{padding}"')).error == "illegal_intent"
    assert _broadcast(_with(intent=f'"{padding}é"')).error == "invalid_json"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_deepest_reply_nests_64_levels(opening: str, closing: str) -> None:
    def nested(levels: int) -> str:
        return _with(intent=opening * levels + "1" + closing * levels)

    assert _broadcast(nested(63)).error == "illegal_intent"  # the broadcast itself is the first level
    assert _broadcast(nested(64)).error == "invalid_json"


def test_brackets_inside_strings_are_no_nesting() -> None:
    for text in ("[" * 200, r"\"" + "[" * 200, r"\\", "{" * 200 + r"\\\""):
        assert _broadcast(_with(intent=f'"{text}"')).error == "illegal_intent"
    deep = "[" * 64 + "]" * 64
    assert _broadcast(_with(intent=f'["\\\\",{deep}]')).error == "invalid_json"


HOSTILE = {
    "1 MB of text": "x" * 1_000_000,
    "1 MB of facts": '{"facts":[' + "{}," * 330_000,
    "100,000 open lists": "[" * 100_000,
    "100,000 open objects": '{"a":' * 100_000,
    "60,000 open lists": "[" * 60_000,
    "60,000 levels closed": "[" * 30_000 + "]" * 30_000,
    "1 MB of lone surrogates": "\ud800" * 1_000_000,
    "60,000 lone surrogates": "\udfff" * 60_000,
    "escaped lone surrogates": '"' + r"\ud800" * 10_900 + '"',
    "quotes": '"' * 65_536,
    "escaped quotes never closed": '"' + r"\"" * 32_767,
    "backslashes": "\\" * 65_536,
    "many lists": "[" + "[]," * 21_000 + "[]]",
    "many keys": "{" + ",".join(f'"{number}":1' for number in range(5_000)) + "}",
    "one key many times": "{" + ",".join(['"facts":1'] * 6_000) + "}",
    "one long integer": "1" * 65_536,
    "many long integers": "[" + ",".join(["1" * 4_299] * 15) + "]",
    "a long fraction": "1" * 65_000 + ".5",
    "a long exponent": "1e" + "9" * 65_000,
    "many NaN": "[" + "NaN," * 16_000 + "1]",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_replies_are_refused_in_under_50_ms(raw: str) -> None:
    displayed = _displayed("disp")
    state = _context("G")
    durations = []
    for _ in range(3):  # the best of three: other work on the machine must not fail the test
        start = time.perf_counter()
        verdicts = (parse_broadcast(raw, state, "blue-0"), parse_action(raw, displayed))
        durations.append(time.perf_counter() - start)
        assert not any(verdict.valid for verdict in verdicts)
    assert min(durations) < 0.05


# --- values that fit nowhere ------------------------------------------------------------------------------------------

EVERYWHERE_WRONG = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1.0",
    "1e0",
    "0.0",
    "-0.0",
    "1E400",
    "9" * 5_000,
    "-" + "9" * 5_000,
]
PLACES: dict[str, Callable[[str], str]] = {
    "facts_schema": lambda text: _with(facts=text),
    "fact_schema": lambda text: _with(facts=f"[{text}]"),
    "fact_node": lambda text: _with(facts=f"[{_fact(node=text)}]"),
    "fact_value": lambda text: _with(facts=f"[{_fact(owner=text)}]"),
    "fact_value ": lambda text: _with(facts=f"[{_fact(status=text)}]"),
    "fact_priority": lambda text: _with(facts=f"[{_fact(value=text)}]"),
    "fact_priority ": lambda text: _with(facts=f"[{_fact(critical=text)}]"),
    "fact_turn": lambda text: _with(facts=f"[{_fact(observed_turn=text)}]"),
    "illegal_intent": lambda text: _with(intent=text),
    "illegal_intent ": lambda text: _with(intent=f'{{"type":{text}}}'),
    "illegal_intent  ": lambda text: _with(intent=f'{{"type":"SCAN","target":{text}}}'),
    "illegal_intent   ": lambda text: _with(intent=f'{{"type":"TRANSFER","target":"blue-1","amount":{text}}}'),
    "request_schema": lambda text: _with(request_resource=text),
    "not_object": lambda text: text,
}


@pytest.mark.parametrize("text", EVERYWHERE_WRONG, ids=lambda text: text[:12])
@pytest.mark.parametrize("place", PLACES)
def test_numbers_that_fit_nowhere_get_the_code_of_their_place(place: str, text: str) -> None:
    verdict = _broadcast(PLACES[place](text), "G" if "amount" not in PLACES[place]("0") else "T")
    assert verdict == Verdict(None, place.strip(), False, False, False)  # type: ignore[arg-type]


OTHERWISE = {
    ("facts_schema", "[]"): None,
    ("facts_schema", '[{"a":1,"a":1}]'): "fact_schema",
    ("fact_node", '"\\ud800"'): "unsupported_fact",
    ("fact_priority ", "true"): "unsupported_fact",
    ("illegal_intent", "null"): None,
    ("not_object", "{}"): "broadcast_schema",
    ("not_object", '{"a":1,"a":1}'): "broadcast_schema",
}


@pytest.mark.parametrize("text", ["null", "true", "[]", "{}", '"\\ud800"', '[{"a":1,"a":1}]', '{"a":1,"a":1}'])
@pytest.mark.parametrize("place", PLACES)
def test_wrong_values_get_the_code_of_their_place(place: str, text: str) -> None:
    assert _broadcast(PLACES[place](text)).error == OTHERWISE.get((place, text), place.strip())


def test_integers_beyond_the_interpreters_limit_are_refused_whatever_that_limit_is() -> None:
    usual = sys.get_int_max_str_digits()
    try:
        for limit in (640, 0):
            sys.set_int_max_str_digits(limit)
            assert _broadcast(_with(request_resource="1" * 4_000)).error == "request_schema"
            assert _broadcast(_with(facts=f"[{_fact(observed_turn='1' * 4_301)}]")).error == "fact_turn"
    finally:
        sys.set_int_max_str_digits(usual)


def test_a_long_integer_is_a_turn_that_was_never_observed() -> None:
    assert _broadcast(_with(facts=f"[{_fact(observed_turn='9' * 300)}]")).error == "unsupported_fact"


def test_minus_zero_is_zero() -> None:
    verdict = _broadcast(_with(facts=f"[{_fact(observed_turn='-0')}]", request_resource="-0"))
    assert verdict.valid
    assert "-0" not in encode_broadcast(verdict.value)
    assert _broadcast(_with(request_resource="-0")).empty
    assert _broadcast(_with(facts=f"[{_fact(observed_turn='-1')}]")).error == "fact_turn"


# --- repeated keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["facts", "intent", "request_resource"])
def test_a_key_repeated_in_a_broadcast(key: str) -> None:
    assert _broadcast(EMPTY[:-1] + f',"{key}":0}}').error == "broadcast_schema"
    escaped = f"\\u{ord(key[0]):04x}{key[1:]}"
    assert _broadcast(EMPTY[:-1] + f',"{escaped}":0}}').error == "broadcast_schema"


@pytest.mark.parametrize("key", ["node", "owner", "status", "value", "critical", "observed_turn"])
def test_a_key_repeated_in_a_fact(key: str) -> None:
    member = json.loads(_fact())[key]
    repeated = _fact()[:-1] + f',"{key}":{json.dumps(member)}}}'
    assert _broadcast(_with(facts=f"[{repeated}]")).error == "fact_schema"


def test_a_key_repeated_in_an_intent() -> None:
    assert _broadcast(_with(intent='{"type":"WAIT","type":"WAIT"}')).error == "illegal_intent"
    assert _broadcast(_with(intent='{"type":"SCAN","target":"V44","target":"V44"}')).error == "illegal_intent"


def test_a_key_repeated_in_an_action() -> None:
    assert parse_action('{"action_id":"A0","action_id":"A0"}', _displayed("disp")).error == "action_schema"


# --- order of the checks, and flags -----------------------------------------------------------------------------------

UNSUPPORTED = _fact(owner='"RED"')
ORDERED = [
    ("fact_schema", f"[{{}},{UNSUPPORTED}]", "5", "5"),
    ("unsupported_fact", f"[{UNSUPPORTED},{{}}]", "5", "5"),
    ("unsupported_fact", f"[{UNSUPPORTED},{_fact()}]", "5", "5"),  # the second names a node again
    ("fact_node", f"[{_fact()},{_fact(owner='5')}]", "5", "5"),
    ("fact_node", f"[{_fact(node='5', owner='5')}]", "5", "5"),
    ("fact_value", f"[{_fact(owner='5', value='5')}]", "5", "5"),
    ("fact_value", f"[{_fact(status='5', critical='5')}]", "5", "5"),
    ("fact_priority", f"[{_fact(value='5', observed_turn='true')}]", "5", "5"),
    ("fact_priority", f"[{_fact(critical='0', observed_turn='-1')}]", "5", "5"),
    ("fact_turn", f"[{_fact(node='%ZZ%', observed_turn='-1')}]".replace("%", '"'), "5", "5"),
    ("illegal_intent", f"[{_fact()}]", "5", "5"),
    ("request_schema", f"[{_fact()}]", "null", "5"),
]


@pytest.mark.parametrize(("error", "facts", "intent", "request_text"), ORDERED)
def test_the_first_broken_rule_in_order_gives_the_code(error: str, facts: str, intent: str, request_text: str) -> None:
    assert _broadcast(_with(facts=facts, intent=intent, request_resource=request_text)).error == error


LEGAL = '{"type":"SCAN","target":"V44"}'
ILLEGAL = '{"type":"SCAN","target":"V10"}'
FLAGS = [
    # Texts of facts, intent and request; the error; schema_valid, supported and legal; facts and unsupported facts.
    (f"[{_fact()}]", LEGAL, "1", None, (True, True, True), (1, 0)),
    (f"[{UNSUPPORTED}]", LEGAL, "0", "unsupported_fact", (True, False, True), (1, 1)),
    (f"[{UNSUPPORTED}]", "null", "0", "unsupported_fact", (True, False, True), (1, 1)),
    (f"[{_fact()}]", ILLEGAL, "0", "illegal_intent", (True, True, False), (1, 0)),
    (f"[{UNSUPPORTED}]", ILLEGAL, "0", "unsupported_fact", (True, False, False), (1, 1)),
    (f"[{_fact(node='%A%')},{_fact()},{_fact(node='%B%')}]".replace("%", '"'), "null", "0", "unsupported_fact",
     (True, False, True), (3, 2)),
    ("[]", '{"type":"TRANSFER","target":"blue-1","amount":-7}', "0", "illegal_intent", (True, True, False), (0, 0)),
    ("[]", '{"type":"CAPTURE","target":""}', "0", "illegal_intent", (True, True, False), (0, 0)),
    ("[]", '{"type":"SCAN","target":"V44","amount":1}', "0", "illegal_intent", (False, False, False), (0, 0)),
    ("[]", '{"type":"WAIT","target":null}', "0", "illegal_intent", (False, False, False), (0, 0)),
    ("[]", '{"type":"HACK","target":"V44"}', "0", "illegal_intent", (False, False, False), (0, 0)),
    (f"[{UNSUPPORTED}]", LEGAL, "2", "unsupported_fact", (False, False, False), (0, 0)),
    (f"[{_fact()}]", ILLEGAL, "2", "illegal_intent", (False, False, False), (0, 0)),
    (f"[{UNSUPPORTED},{{}}]", LEGAL, "0", "unsupported_fact", (False, False, False), (0, 0)),
    (f"[{_fact(value='4')}]", LEGAL, "0", "fact_priority", (False, False, False), (0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "intent", "request_text", "error", "flags", "counts"), FLAGS)
def test_flags_and_counts_are_independent_of_the_first_error(
    facts: str, intent: str, request_text: str, error: str | None, flags: tuple[bool, ...], counts: tuple[int, int]
) -> None:
    verdict = _broadcast(_with(facts=facts, intent=intent, request_resource=request_text))
    assert verdict.error == error
    assert (verdict.schema_valid, verdict.supported, verdict.legal) == flags
    assert (verdict.facts, verdict.unsupported_facts) == counts
    assert (verdict.value is None) == (error is not None)


def test_only_the_empty_broadcast_is_empty() -> None:
    assert _broadcast(f" {EMPTY} ").empty
    for other in (_with(request_resource="1"), _with(intent='{"type":"WAIT"}'), _with(facts=f"[{_fact()}]"), "{}", ""):
        assert not _broadcast(other).empty


@pytest.mark.parametrize(
    ("raw", "error", "schema_valid"),
    [
        ('{"action_id":"A1"}', None, True),
        ('{"action_id":"A4"}', "action_id_range", True),
        ('{"action_id":"A' + "9" * 5_000 + '"}', "action_id_range", True),
        ('{"action_id":"A01"}', "action_id", False),
        ('{"action_id":"A\\ud835\\udfcf"}', "action_id", False),
        ('{"action_id":"A1\\u0000"}', "action_id", False),
        ('{"action_id":1}', "action_schema", False),
        ('{"action_id":{"a":1,"a":1}}', "action_schema", False),
        ('{"action_id":"\\udc00"}', "action_id", False),
    ],
)
def test_flags_of_actions(raw: str, error: str | None, schema_valid: bool) -> None:
    displayed = _displayed("disp")
    value = displayed[1] if error is None else None
    assert parse_action(raw, displayed) == Verdict(value, error, schema_valid, error is None, error is None)  # type: ignore[arg-type]


# --- there and back ---------------------------------------------------------------------------------------------------


def _state(seed: int, skill: str | None) -> State:
    return generate_state(seed, 10 + seed % 7) if skill is None else generate_mechanics_state(seed, skill)


states = st.builds(_state, st.integers(0, 10**6), st.sampled_from([None, None, "WAIT", "SCAN", "TRANSFER", "SILENCE"]))


@settings(max_examples=300, deadline=None)
@given(state=states, agent_id=st.sampled_from(BLUE_AGENTS), data=st.data())
def test_every_supported_legal_broadcast_comes_back_as_it_was(state: State, agent_id: str, data: st.DataObject) -> None:
    known = observe(state, agent_id)["known_nodes"]
    facts = data.draw(st.lists(st.sampled_from(known), max_size=3, unique_by=lambda fact: fact["node"]))
    request = data.draw(st.sampled_from([0, 1]))
    for intent in (None, *(action.to_dict() for action in legal_actions(state, agent_id))):
        broadcast = {"facts": facts, "intent": intent, "request_resource": request}
        verdict = parse_broadcast(encode_broadcast(broadcast), state, agent_id)
        assert verdict.value == broadcast
        assert verdict == Verdict(
            broadcast, None, True, True, True, len(facts), 0, empty=not facts and intent is None and not request
        )
        assert encode_broadcast(verdict.value) == encode_broadcast(broadcast)


@settings(max_examples=200, deadline=None)
@given(state=states, agent_id=st.sampled_from(BLUE_AGENTS), permutation=st.integers(0, 10**7))
def test_every_displayed_action_comes_back_as_it_was(state: State, agent_id: str, permutation: int) -> None:
    displayed = displayed_actions(state, agent_id, permutation)
    for action in displayed:
        assert parse_action(encode_action(action, displayed), displayed) == Verdict(action, None, True, True, True)


@settings(max_examples=200, deadline=None)
@given(state=states, agent_id=st.sampled_from(BLUE_AGENTS), data=st.data())
def test_a_fact_that_differs_in_any_field_is_unsupported(state: State, agent_id: str, data: st.DataObject) -> None:
    fact = dict(data.draw(st.sampled_from(observe(state, agent_id)["known_nodes"])))
    changes: dict[str, Callable[[], Any]] = {
        "node": lambda: "V00",
        "owner": lambda: data.draw(st.sampled_from(["BLUE", "RED", "NEUTRAL"])),
        "status": lambda: data.draw(st.sampled_from(["COMPROMISED", "EXPOSED", "FORTIFIED", "SECURE"])),
        "value": lambda: data.draw(st.integers(1, 3)),
        "critical": lambda: not fact["critical"],
        "observed_turn": lambda: data.draw(st.integers(0, 9)),
    }
    for key, change in changes.items():
        changed = {**fact, key: change()}
        verdict = parse_broadcast(encode_broadcast({**EMPTY_BROADCAST, "facts": [changed]}), state, agent_id)
        assert verdict.error == (None if changed == fact else "unsupported_fact")


@settings(max_examples=300, deadline=None)
@given(
    raw=st.text(st.characters(), max_size=80)
    | st.text(st.sampled_from('{}[]":,\\ \n0123-.eEnultrAVN\ud800é'), max_size=80)
)
def test_no_text_raises(raw: str) -> None:
    assert not _broadcast(raw).valid
    parse_action(raw, _displayed("disp"))
