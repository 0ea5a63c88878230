"""Every gate of the promotion, each computed from figures that follow from saved responses.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from arena_pipeline.arena.state import BLUE_AGENTS
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.conditions import ROTATED_PLAYS
from arena_pipeline.evaluation.diagnosis import diagnose
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.rows import CaseRow
from arena_pipeline.evaluation.statistics import Z_95, wilson

Status = Literal["passed", "failed", "not_evaluated"]
Power = Literal["underpowered", "effect_below_delta"]

PROTOCOL_GATES: Final = ("action_schema", "broadcast_schema", "unsupported_facts", "legal_actions")
ARENA_GATES: Final = ("oracle_regret", "order_robustness")
COMMUNICATION_GATES: Final = ("communication_useful", "communication_semantic")
GATE_NAMES: Final = (*PROTOCOL_GATES, *ARENA_GATES, "test_confirmation", *COMMUNICATION_GATES)
_EFFECT_OF_GATE: Final = {
    "communication_useful": "generated_minus_dropped",
    "communication_semantic": "generated_minus_shuffled",
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate's outcome; ``count``, ``figure``, ``interval``, ``n`` and what follows are None where they do not apply.

    ``power`` says of a failed interval gate whether the cases were too few to show the smallest effect of interest
    (2.80 s / sqrt(n) > delta) or the effect is below it.
    """

    name: str
    status: Status
    threshold: float
    figure: float | None = None
    interval: tuple[float, float] | None = None
    n: int | None = None
    count: int | None = None
    smallest_detectable_effect: float | None = None
    delta: float | None = None
    power: Power | None = None
    diagnosis: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether the gate was evaluated and passed."""
        return self.status == "passed"

    def to_dict(self) -> dict[str, Any]:
        """The gate's object in ``verdict.json``."""
        interval = list(self.interval) if self.interval else None
        return {**asdict(self), "interval": interval, "passed": self.passed}


def not_evaluated(name: str, policy: GatePolicy, reason: str) -> Gate:
    """A gate that nothing was measured for; ``reason`` is a clause that says why."""
    return Gate(name, "not_evaluated", _threshold(name, policy), diagnosis=f"not_evaluated: {reason}")


def protocol_gates(summary: Mapping[str, Any], policy: GatePolicy, z: float = Z_95) -> list[Gate]:
    """The four protocol gates, from a split's ``summary.json``."""
    act, broadcast = summary["act"], summary["broadcast"]
    return [
        _rate_gate("action_schema", act, "schema_valid", policy, z),
        _rate_gate("broadcast_schema", broadcast, "schema_valid", policy, z),
        _facts_gate(broadcast, policy),
        _rate_gate("legal_actions", act, "legal", policy, z),
    ]


def confirmation_gate(summary: Mapping[str, Any], policy: GatePolicy, z: float) -> Gate:
    """Whether the protocol gates' thresholds are met on the test split too; the figure counts those that are."""
    gates = protocol_gates(summary, policy, z)
    missed = [gate.name for gate in gates if not gate.passed]
    return Gate(
        "test_confirmation",
        "failed" if missed else "passed",
        threshold=len(gates),
        figure=len(gates) - len(missed),
        n=summary["examples"],
        count=len(gates) - len(missed),
        diagnosis=diagnose("test_confirmation", missed=missed) if missed else "",
        details={gate.name: gate.to_dict() for gate in gates},
    )


def regret_gate(comparison: Mapping[str, Any], policy: GatePolicy) -> Gate:
    """Whether the regret under generated messages fell: mean difference below 0 and its whole interval below it."""
    paired = comparison["regret_difference"]["generated"]
    threshold = policy.thresholds["oracle_regret"]
    passed = paired["mean"] < 0 and paired["interval"][1] < threshold
    return _interval_gate("oracle_regret", passed, paired, threshold, policy, {"p": paired["p"]})


def order_gate(comparison: Mapping[str, Any], tuned: Sequence[CaseRow], policy: GatePolicy) -> Gate:
    """Whether other display orders do no material harm; the figure is the regret increase of the worse rotation."""
    limits = policy.thresholds
    increases = comparison["rotation_regret_increase"]
    replies = len(tuned) * len(BLUE_AGENTS)
    valid = {
        name: sum(row["plays"][name]["valid_replies"] for row in tuned)
        for name in ("generated", *(play.name for play in ROTATED_PLAYS))
    }
    strict_rate = valid["generated"] / replies
    falls = {play.name: (valid["generated"] - valid[play.name]) / replies for play in ROTATED_PLAYS}
    worst = max(increases.values(), key=lambda paired: float(paired["interval"][1]))
    regret_holds = worst["interval"][1] <= limits["order_regret_increase"]
    strict_holds = strict_rate >= limits["order_strict_actions"]
    fall_holds = max(falls.values()) <= limits["order_strict_fall"]
    details: dict[str, Any] = {
        "regret_increase": increases,
        "strict_action_rate": {name: count / replies for name, count in valid.items()},
        "strict_action_fall": falls,
        "strict_replies": replies,
        "holds": {"regret_increase": regret_holds, "strict_actions": strict_holds, "strict_fall": fall_holds},
    }
    return _interval_gate(
        "order_robustness",
        regret_holds and strict_holds and fall_holds,
        worst,
        limits["order_regret_increase"],
        policy,
        details,
        missed=[name for name, holds in details["holds"].items() if not holds],
        by_interval=not regret_holds,
    )


def communication_gates(comparison: Mapping[str, Any], policy: GatePolicy) -> list[Gate]:
    """Whether real messages beat silence, and beat another case's messages: each whole interval above the threshold."""
    gates = []
    for name, effect in _EFFECT_OF_GATE.items():
        paired = comparison["effects"][effect]
        threshold = policy.thresholds[name]
        passed = paired["interval"][0] > threshold
        gates.append(_interval_gate(name, passed, paired, threshold, policy, {"p": paired["p"]}))
    return gates


def _threshold(name: str, policy: GatePolicy) -> float:
    if name == "order_robustness":
        return policy.thresholds["order_regret_increase"]
    if name == "test_confirmation":
        return len(PROTOCOL_GATES)
    return policy.thresholds[name]


def _rate_gate(name: str, figures: Mapping[str, Any], rate: str, policy: GatePolicy, z: float) -> Gate:
    n = figures["examples"]
    count = _count_of(figures, rate)
    threshold = policy.thresholds[name]
    passed = figures[rate] >= threshold
    return Gate(
        name,
        "passed" if passed else "failed",
        threshold,
        figure=figures[rate],
        interval=wilson(count, n, z),
        n=n,
        count=count,
        diagnosis="" if passed else diagnose(name),
    )


def _count_of(figures: Mapping[str, Any], rate: str) -> int:
    """The count behind a rate; summaries made elsewhere may name the rate alone."""
    if "counts" not in figures:
        return round(float(figures[rate]) * int(figures["examples"]))
    count = int(figures["counts"][rate])
    if figures[rate] != count / figures["examples"]:
        raise EvaluationError(f"{rate} is {figures[rate]!r}, but {count} of {figures['examples']} are counted")
    return count


def _facts_gate(broadcast: Mapping[str, Any], policy: GatePolicy) -> Gate:
    found = broadcast.get("unsupported_facts", 0 if broadcast["supported"] == 1 else None)
    if found is None or (found == 0) != (broadcast["supported"] == 1 or broadcast["schema_valid"] == 0):
        raise EvaluationError(
            f"broadcast.unsupported_facts is {found!r} where broadcast.supported is {broadcast['supported']!r}; a "
            "summary whose broadcasts are not all supported counts their unsupported facts"
        )
    threshold = policy.thresholds["unsupported_facts"]
    # Without a single well-formed broadcast nothing was shown to be supported.
    passed = found <= threshold and broadcast["schema_valid"] > 0
    return Gate(
        "unsupported_facts",
        "passed" if passed else "failed",
        threshold,
        figure=found,
        n=broadcast.get("facts"),
        count=found,
        diagnosis="" if passed else diagnose("unsupported_facts"),
    )


def _interval_gate(
    name: str,
    passed: bool,
    paired: Mapping[str, Any],
    threshold: float,
    policy: GatePolicy,
    details: Mapping[str, Any],
    *,
    missed: Sequence[str] = (),
    by_interval: bool = True,
) -> Gate:
    """A gate on a paired effect; ``by_interval`` says whether a failure is the interval's and not another part's."""
    detectable, delta = paired["smallest_detectable_effect"], policy.deltas[name]
    power: Power | None = None
    if not passed and by_interval:
        power = "underpowered" if detectable > delta else "effect_below_delta"
    return Gate(
        name,
        "passed" if passed else "failed",
        threshold,
        figure=paired["mean"],
        interval=(paired["interval"][0], paired["interval"][1]),
        n=paired["n"],
        smallest_detectable_effect=detectable,
        delta=delta,
        power=power,
        diagnosis="" if passed else diagnose(name, power, detectable, delta, missed),
        details=details,
    )
