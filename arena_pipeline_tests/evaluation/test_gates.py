"""Each gate at the point where it just passes and where it just fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.diagnosis import diagnose
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.gates import (
    GATE_NAMES,
    communication_gates,
    confirmation_gate,
    not_evaluated,
    order_gate,
    protocol_gates,
    regret_gate,
)
from arena_pipeline.evaluation.statistics import mean_interval, sign_flip_p, wilson, z_of_opening
from arena_pipeline.evaluation.summary import effect
from arena_pipeline_tests.evaluation.players import ROOT

POLICY = GatePolicy.load(ROOT / "data" / "gates.toml")


def phase(n: int, schema_valid: int, supported: int, legal: int, **extra: Any) -> dict[str, Any]:
    counts = {"schema_valid": schema_valid, "supported": supported, "legal": legal, "exact": legal}
    rates = {key: count / n for key, count in counts.items()}
    rates["supported"] = supported / schema_valid if schema_valid else 0.0
    return {"examples": n, "counts": counts, **rates, **extra}


def summary(act: dict[str, Any] | None = None, broadcast: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "examples": 400,
        "act": act or phase(200, 200, 200, 200),
        "broadcast": broadcast or phase(200, 200, 200, 200, facts=450, unsupported_facts=0),
    }


def paired(values: Sequence[float]) -> dict[str, Any]:
    return effect(values) | {"p": sign_flip_p(values, trials=100)}


def by_name(gates: Sequence[Any]) -> dict[str, Any]:
    return {gate.name: gate for gate in gates}


@pytest.mark.parametrize(
    ("name", "passing", "failing"),
    [
        ("action_schema", summary(phase(200, 199, 199, 199)), summary(phase(200, 198, 198, 198))),
        (
            "broadcast_schema",
            summary(broadcast=phase(200, 198, 198, 198, facts=9, unsupported_facts=0)),
            summary(broadcast=phase(200, 197, 197, 197, facts=9, unsupported_facts=0)),
        ),
        (
            "unsupported_facts",
            summary(),
            summary(broadcast=phase(200, 200, 199, 200, facts=450, unsupported_facts=1)),
        ),
        ("legal_actions", summary(phase(200, 200, 190, 190)), summary(phase(200, 200, 189, 189))),
    ],
)
def test_protocol_gates(name: str, passing: dict[str, Any], failing: dict[str, Any]) -> None:
    assert all(gate.passed for gate in protocol_gates(passing, POLICY))
    gates = by_name(protocol_gates(failing, POLICY))
    assert [gate.name for gate in gates.values() if not gate.passed] == [name]
    assert (gates[name].status, gates[name].diagnosis) == ("failed", diagnose(name))


def test_rates_come_with_count_n_and_wilson_interval() -> None:
    gates = by_name(protocol_gates(summary(phase(200, 199, 190, 190)), POLICY, z=2.2))
    gate = gates["action_schema"]
    assert (gate.count, gate.n, gate.figure, gate.threshold) == (199, 200, 0.995, 0.995)
    assert gate.interval == wilson(199, 200, 2.2)
    assert gates["legal_actions"].interval == wilson(190, 200, 2.2)
    facts = gates["unsupported_facts"]
    assert (facts.figure, facts.count, facts.n, facts.interval, facts.threshold) == (0, 0, 450, None, 0)


def test_summaries_from_elsewhere_may_lack_counts() -> None:
    plain = {"examples": 200, "schema_valid": 0.995, "supported": 1.0, "legal": 0.95, "exact": 0.5}
    gates = by_name(protocol_gates({"act": plain, "broadcast": plain}, POLICY))
    assert all(gate.passed for gate in gates.values())
    assert (gates["action_schema"].count, gates["legal_actions"].count) == (199, 190)
    assert (gates["unsupported_facts"].figure, gates["unsupported_facts"].n) == (0, None)


def test_unsupported_facts_must_be_counted() -> None:
    for broadcast in (
        phase(200, 200, 199, 200),
        phase(200, 200, 199, 200, unsupported_facts=0),
        phase(200, 200, 200, 200, unsupported_facts=2),
    ):
        with pytest.raises(EvaluationError, match="unsupported_facts"):
            protocol_gates(summary(broadcast=broadcast), POLICY)


def test_rates_must_be_those_of_their_counts() -> None:
    with pytest.raises(EvaluationError, match=r"schema_valid is 1\.0, but 180 of 200"):
        protocol_gates(summary({**phase(200, 180, 180, 180), "schema_valid": 1.0}), POLICY)


def test_a_model_without_one_well_formed_broadcast_supports_nothing() -> None:
    gates = by_name(protocol_gates(summary(broadcast=phase(200, 0, 0, 0, facts=0, unsupported_facts=0)), POLICY))
    assert not gates["unsupported_facts"].passed


def regret(values: Sequence[float]) -> Any:
    return regret_gate({"regret_difference": {"generated": paired(values)}}, POLICY)


def test_regret_gate() -> None:
    assert regret([-0.05] * 60).passed
    assert not regret([0.0] * 60).passed
    assert not regret([0.05] * 60).passed
    # The mean alone is not enough: here it is below 0 and the interval reaches above.
    uncertain = [-1.0, 0.9] * 30
    assert mean_interval(uncertain)[1] > 0
    gate = regret(uncertain)
    assert not gate.passed
    assert gate.figure == pytest.approx(-0.05)
    assert (gate.interval, gate.n, gate.threshold) == (mean_interval(uncertain), 60, 0)
    # The upper end decides: moving all values down until it is below 0 makes it pass.
    shift = mean_interval(uncertain)[1] + 1e-9
    assert regret([value - shift for value in uncertain]).passed
    assert not regret([value - shift + 2e-9 for value in uncertain]).passed


def test_failed_interval_gates_say_whether_there_were_enough_cases() -> None:
    few = regret([-3.0, 2.9] * 5)
    assert few.smallest_detectable_effect > few.delta == 0.5
    assert few.power == "underpowered"
    assert "underpowered" in few.diagnosis
    assert "larger manifest" in few.diagnosis
    many = regret([-1.0, 1.0] * 300)
    assert many.smallest_detectable_effect < 0.5
    assert many.power == "effect_below_delta"
    assert "below the delta" in many.diagnosis
    passed = regret([-3.0, -2.9] * 5)
    assert (passed.power, passed.diagnosis) == (None, "")
    assert passed.smallest_detectable_effect is not None


def rows(p0: int, p1: int, p2: int, cases: int = 100) -> list[dict[str, Any]]:
    """Rows whose valid replies in the three display orders sum up to the given numbers of 4 * cases."""

    def spread(total: int) -> list[int]:
        return [total // cases + (index < total % cases) for index in range(cases)]

    names = ("generated", "generated-p1", "generated-p2")
    columns = [spread(total) for total in (p0, p1, p2)]
    return [
        {"plays": {name: {"valid_replies": column[index]} for name, column in zip(names, columns, strict=True)}}
        for index in range(cases)
    ]


def order(p1: Sequence[float], p2: Sequence[float], valid: tuple[int, int, int] = (400, 400, 400)) -> Any:
    increases = {"generated-p1": paired(p1), "generated-p2": paired(p2)}
    return order_gate({"rotation_regret_increase": increases}, rows(*valid), POLICY)


def test_order_gate_regret() -> None:
    still, limit, above = [0.0] * 100, [0.5] * 100, [0.55] * 100
    assert order(still, still).passed
    assert order(limit, still).passed
    assert order(still, limit).passed
    for failed in (order(above, still), order(still, above)):
        assert not failed.passed
        assert failed.figure == 0.55
        assert (failed.threshold, failed.n) == (0.5, 100)
        assert failed.power == "effect_below_delta"
        assert "missed: regret_increase" in failed.diagnosis
    wide = [-4.0, 4.4] * 50
    assert mean_interval(wide)[1] > 0.5
    assert order(still, wide).power == "underpowered"


def test_order_gate_strict_actions() -> None:
    still = [0.0] * 100
    assert order(still, still, (380, 380, 380)).passed
    low = order(still, still, (379, 379, 379))
    assert not low.passed
    assert "missed: strict_actions" in low.diagnosis
    assert low.power is None
    assert low.details["strict_action_rate"]["generated"] == 379 / 400


def test_order_gate_strict_fall() -> None:
    still = [0.0] * 100
    assert order(still, still, (400, 396, 396)).passed
    assert order(still, still, (390, 400, 400)).passed
    for valid in ((400, 395, 400), (400, 400, 395)):
        failed = order(still, still, valid)
        assert not failed.passed
        assert "missed: strict_fall" in failed.diagnosis


def test_confirmation_gate() -> None:
    passed = confirmation_gate(summary(phase(200, 199, 190, 190)), POLICY, 1.96)
    assert (passed.passed, passed.figure, passed.threshold, passed.n, passed.interval) == (True, 4, 4, 400, None)
    failed = confirmation_gate(summary(phase(200, 198, 189, 189)), POLICY, z_of_opening(2))
    assert (failed.status, failed.figure) == ("failed", 2)
    assert "missed: action_schema, legal_actions" in failed.diagnosis
    assert failed.details["action_schema"]["interval"] == list(wilson(198, 200, z_of_opening(2)))


def test_communication_gates() -> None:
    def gates(useful: Sequence[float], semantic: Sequence[float]) -> dict[str, bool]:
        comparison = {
            "effects": {"generated_minus_dropped": paired(useful), "generated_minus_shuffled": paired(semantic)}
        }
        return {gate.name: gate.passed for gate in communication_gates(comparison, POLICY)}

    some, none = [0.05] * 60, [0.0] * 60
    assert gates(some, none) == {"communication_useful": True, "communication_semantic": False}
    assert gates(none, some) == {"communication_useful": False, "communication_semantic": True}
    uncertain = [1.0, -0.9] * 30
    assert gates(uncertain, [value + 0.5 for value in uncertain]) == {
        "communication_useful": False,
        "communication_semantic": True,
    }


def test_a_stricter_policy_is_the_one_that_counts(tmp_path: Any) -> None:
    path = tmp_path / "gates.toml"
    text = (ROOT / "data" / "gates.toml").read_text()
    path.write_text(
        text.replace("legal_actions = 0.95 ", "legal_actions = 0.96 ").replace("regret = 0.0 ", "regret = -0.1 ")
    )
    strict = GatePolicy.load(path)
    assert not by_name(protocol_gates(summary(phase(200, 200, 190, 190)), strict))["legal_actions"].passed
    for value, passed in ((-0.05, False), (-0.1, False), (-0.15, True)):
        assert regret_gate({"regret_difference": {"generated": paired([value] * 60)}}, strict).passed is passed


@pytest.mark.parametrize("name", GATE_NAMES)
def test_gates_that_nothing_was_measured_for(name: str) -> None:
    gate = not_evaluated(name, POLICY, "no checkpoint is eligible").to_dict()
    assert (gate["passed"], gate["status"], gate["figure"]) == (False, "not_evaluated", None)
    assert gate["diagnosis"] == "not_evaluated: no checkpoint is eligible"
    assert (gate["interval"], gate["n"]) == (None, None)


@pytest.mark.parametrize("name", GATE_NAMES)
@pytest.mark.parametrize("power", [None, "underpowered", "effect_below_delta"])
def test_diagnoses_call_for_data_or_prompts_alone(name: str, power: str | None) -> None:
    text = diagnose(name, power, 0.6, 0.5, ["legal_actions"])
    assert text.startswith(("data: ", "prompt: "))
    for forbidden in ("open", "again", "scorer", "parser", "threshold", "lenient", "relax", "lower the", "test set"):
        assert forbidden not in text.lower()
