"""A summary of an evaluation, computed from its rows alone; the denominator is always the manifest's cases.

Source: evaluation specification, "Frozen-arena evaluation of a model".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from arena_pipeline.arena.manifests import Case, manifest_sha256
from arena_pipeline.arena.state import BLUE_AGENTS
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.conditions import CONDITIONS, PLAYS, ROTATED_PLAYS, case_name
from arena_pipeline.evaluation.rows import EFFECTS, CaseRow, regrets_of, rewards_of
from arena_pipeline.evaluation.statistics import (
    Z_95,
    mean,
    mean_interval,
    smallest_detectable_effect,
    stdev,
    wilson,
)
from arena_pipeline.provenance.hashing import sha256_json

HEADER_FIELDS: Final = (
    "evaluator_version",
    "arena_version",
    "generator_version",
    "manifest",
    "manifest_sha256",
    "prompt_version",
    "prompt_sha256",
    "model",
)
_SLICES: Final[Mapping[str, Callable[[CaseRow], str]]] = {
    "size": lambda row: str(row["size"]),
    "style": lambda row: str(row["style"]),
}


def summarize(rows: Sequence[CaseRow], cases: Sequence[Case]) -> dict[str, Any]:
    """All figures of an evaluation, as a JSON object.

    Raises ``EvaluationError`` unless the rows are those of exactly these cases, in order, of one model and one
    manifest.
    """
    require_rows_of(rows, cases)
    return {
        **{field: rows[0][field] for field in HEADER_FIELDS},
        "rows_sha256": sha256_json(list(rows)),
        **_figures(rows),
        "order_consistency": _share(rows, lambda row: row["order_consistent"]),
        "order_consistency_interval": _wilson_of(rows, lambda row: row["order_consistent"]),
        "rotations": {play.name: _play_figures(rows, play.name) for play in ROTATED_PLAYS},
        "messages": _message_figures(rows),
        "replies_cut_at_token_limit": _cut_replies(rows),
        "slices": {
            name: {
                value: _figures([row for row in rows if key(row) == value])
                for value in sorted({key(row) for row in rows})
            }
            for name, key in _SLICES.items()
        },
    }


def require_rows_of(rows: Sequence[CaseRow], cases: Sequence[Case]) -> None:
    """Raise ``EvaluationError`` unless there is exactly one row per case, in manifest order, all with one header."""
    if not cases:
        raise EvaluationError("a manifest without cases cannot be evaluated")
    found = [Case(row["seed"], row["size"], row["style"]) for row in rows]
    missing = [case for case in cases if case not in found]
    if missing:
        raise EvaluationError(
            f"{len(missing)} of the manifest's {len(cases)} cases have no row, first {case_name(missing[0])}: "
            "the denominator is always the manifest's cases; resume the evaluation"
        )
    if found != list(cases):
        raise EvaluationError(f"{len(found)} rows are not the manifest's {len(cases)} cases, each once and in order")
    if rows[0]["manifest_sha256"] != (expected := manifest_sha256(cases)):
        raise EvaluationError(f"rows are of manifest {rows[0]['manifest_sha256']}, but these cases are of {expected}")
    for field in HEADER_FIELDS:
        for row, case in zip(rows, cases, strict=True):
            if row[field] != rows[0][field]:
                raise EvaluationError(
                    f"row of case {case_name(case)}: {field} differs from that of {case_name(cases[0])}; "
                    "all rows of an evaluation are of one model, one manifest and one set of prompts"
                )


def _figures(rows: Sequence[CaseRow]) -> dict[str, Any]:
    return {
        "cases": len(rows),
        "conditions": {condition: _play_figures(rows, condition) for condition in CONDITIONS},
        "effects": {name: effect([row["effects"][name] for row in rows]) for name in EFFECTS},
    }


def _play_figures(rows: Sequence[CaseRow], play: str) -> dict[str, Any]:
    replies = len(rows) * len(BLUE_AGENTS)
    valid_replies = sum(row["plays"][play]["valid_replies"] for row in rows)
    optimal = sum(row["plays"][play]["optimal"] for row in rows)
    rewards, regrets = rewards_of(rows, play), regrets_of(rows, play)
    return {
        "replies": replies,
        "valid_replies": valid_replies,
        "strict_action_rate": valid_replies / replies,
        "strict_action_interval": list(wilson(valid_replies, replies)),
        "optimal_rate": optimal / len(rows),
        "optimal_interval": list(wilson(optimal, len(rows))),
        "mean_reward": mean(rewards),
        "reward_interval": list(mean_interval(rewards)),
        "mean_regret": mean(regrets),
        "regret_interval": list(mean_interval(regrets)),
        "non_redundant_rate": _share(rows, lambda row: not row["plays"][play]["redundant_agents"]),
        "redundant_agents_per_case": mean([len(row["plays"][play]["redundant_agents"]) for row in rows]),
    }


def effect(values: Sequence[float], z: float = Z_95) -> dict[str, Any]:
    """A paired effect's figures: n, mean, interval, s, share of positive and of zero values, detectable effect."""
    return {
        "n": len(values),
        "mean": mean(values),
        "interval": list(mean_interval(values, z)),
        "stdev": stdev(values),
        "share_positive": sum(value > 0 for value in values) / len(values),
        "share_zero": sum(value == 0 for value in values) / len(values),
        "smallest_detectable_effect": smallest_detectable_effect(values),
    }


def _message_figures(rows: Sequence[CaseRow]) -> dict[str, Any]:
    messages = [row["broadcasts"][agent] for row in rows for agent in BLUE_AGENTS]
    n = len(messages)
    counts = {name: sum(message[name] for message in messages) for name in ("valid", "schema_valid", "legal", "empty")}
    well_formed = [message for message in messages if message["schema_valid"]]
    supported = sum(message["supported"] for message in well_formed)
    return {
        "messages": n,
        "valid_messages": counts["valid"],
        "strict_message_rate": counts["valid"] / n,
        "strict_message_interval": list(wilson(counts["valid"], n)),
        "schema_valid": counts["schema_valid"] / n,
        "supported": supported / len(well_formed) if well_formed else 0.0,
        "legal": counts["legal"] / n,
        "empty_share": counts["empty"] / n,
        "facts": sum(message["facts"] for message in well_formed),
        "unsupported_facts": sum(message["unsupported_facts"] for message in well_formed),
    }


def _cut_replies(rows: Sequence[CaseRow]) -> dict[str, int]:
    """How many replies of each phase ended at the token limit and not with an end of turn."""
    broadcasts = [row["broadcasts"][agent] for row in rows for agent in BLUE_AGENTS]
    actions = [row["plays"][play.name]["replies"][agent] for row in rows for play in PLAYS for agent in BLUE_AGENTS]
    return {
        "broadcasts": sum(reply["finish_reason"] == "length" for reply in broadcasts),
        "actions": sum(reply["finish_reason"] == "length" for reply in actions),
    }


def _share(rows: Sequence[CaseRow], holds: Callable[[CaseRow], bool]) -> float:
    return sum(map(holds, rows)) / len(rows)


def _wilson_of(rows: Sequence[CaseRow], holds: Callable[[CaseRow], bool]) -> list[float]:
    return list(wilson(sum(map(holds, rows)), len(rows)))
