"""Base versus fine-tuned model on one manifest, paired by case.

Source: evaluation specification, "Frozen-arena evaluation of a model", *Comparison*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from arena_pipeline.arena.manifests import Case
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.cases import reward_difference
from arena_pipeline.evaluation.conditions import CONDITIONS, ROTATED_PLAYS, case_name
from arena_pipeline.evaluation.rows import EFFECTS, CaseRow, regrets_of, rewards_of
from arena_pipeline.evaluation.statistics import ALPHA, sign_flip_p, z_of_opening
from arena_pipeline.evaluation.summary import HEADER_FIELDS, effect

ADAPTER_PREFIX: Final = "adapter_"
"""How the only parts of a model's identity begin in which base and fine-tuned model may differ."""


def compare(
    base: Sequence[CaseRow], tuned: Sequence[CaseRow], opening: int = 1, alpha: float = ALPHA
) -> dict[str, Any]:
    """Paired figures of a fine-tuned model against its base, from both evaluations' rows.

    ``opening`` counts the openings of a sealed manifest: intervals are at level 1 - alpha / opening. Returns a JSON
    object: per condition the regret and reward differences (tuned - base), the tuned model's communication effects,
    and the regret increase of its rotated display orders over p = 0, each with mean, interval and p.

    Raises ``EvaluationError`` unless manifest, versions, cases, prompts, base weights, decoding, back end and dtype
    agree.
    """
    require_comparable(base, tuned)
    z = z_of_opening(opening, alpha)

    def paired(left: Sequence[float], right: Sequence[float]) -> dict[str, Any]:
        return _tested([reward_difference(one, other) for one, other in zip(left, right, strict=True)], z)

    return {
        **{field: tuned[0][field] for field in HEADER_FIELDS if field != "model"},
        "base_model": base[0]["model"],
        "tuned_model": tuned[0]["model"],
        "cases": len(tuned),
        "opening": opening,
        "interval_z": z,
        "regret_difference": {
            condition: paired(regrets_of(tuned, condition), regrets_of(base, condition)) for condition in CONDITIONS
        },
        "reward_difference": {
            condition: paired(rewards_of(tuned, condition), rewards_of(base, condition)) for condition in CONDITIONS
        },
        "effects": {name: _tested([row["effects"][name] for row in tuned], z) for name in EFFECTS},
        "rotation_regret_increase": {
            play.name: paired(regrets_of(tuned, play.name), regrets_of(tuned, play.condition)) for play in ROTATED_PLAYS
        },
    }


def require_comparable(base: Sequence[CaseRow], tuned: Sequence[CaseRow]) -> None:
    """Raise ``EvaluationError`` naming what differs, unless two evaluations differ in nothing but the tuned adapter."""
    if not base or not tuned:
        raise EvaluationError("a comparison needs the rows of two evaluations; one of them has none")
    for field in HEADER_FIELDS:
        if field != "model" and base[0][field] != tuned[0][field]:
            raise EvaluationError(
                f"not comparable: {field} is {base[0][field]!r} for the base and {tuned[0][field]!r} for the tuned "
                "model; evaluate both alike"
            )
    if cases_of(base) != cases_of(tuned):
        only_one = set(cases_of(base)) ^ set(cases_of(tuned))
        example = f", for example {case_name(min(only_one))}" if only_one else " or their order"
        raise EvaluationError(f"not comparable: the two evaluations differ in their cases{example}")
    if adapter := base[0]["model"].get("adapter_sha256"):
        raise EvaluationError(
            f"not comparable: the base carries the adapter {adapter}; the first one must be the base model's alone"
        )
    differing = _differing(base[0]["model"], tuned[0]["model"])
    if differing:
        raise EvaluationError(
            f"not comparable: the models differ in {', '.join(differing)}; base weights, decoding settings, back end, "
            "dtype and batches must be the same, and only the adapter may differ"
        )


def cases_of(rows: Sequence[CaseRow]) -> list[Case]:
    """The cases of an evaluation's rows, in their order."""
    return [Case(row["seed"], row["size"], row["style"]) for row in rows]


def _differing(base: Mapping[str, Any], tuned: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name in sorted(base.keys() | tuned.keys())
        if not name.startswith(ADAPTER_PREFIX) and base.get(name) != tuned.get(name)
    ]


def _tested(values: Sequence[float], z: float) -> dict[str, Any]:
    return effect(values, z) | {"p": sign_flip_p(values)}
