"""The verdict: every gate, promoted or not, and whether a coordination improvement may be claimed.

A pure function of the evidence, so that ``arena gates`` and a check compute a saved ``verdict.json`` again.

Source: evaluation specification, "Gates" and "The sealed sets open once".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from arena_pipeline.evaluation.baselines import ORACLE_POLICY, RANDOM_POLICY
from arena_pipeline.evaluation.comparison import cases_of, compare
from arena_pipeline.evaluation.evidence import ArenaEvidence, Evidence, openings_so_far, require_consistent
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.gates import (
    COMMUNICATION_GATES,
    GATE_NAMES,
    Gate,
    communication_gates,
    confirmation_gate,
    not_evaluated,
    order_gate,
    protocol_gates,
    regret_gate,
)
from arena_pipeline.evaluation.statistics import z_of_opening
from arena_pipeline.evaluation.summary import summarize

OPENING_FIELDS: Final = (
    "sealed_set",
    "experiment_identity",
    "experiment_name",
    "adapter_sha256",
    "run_id",
    "opened_at",
    "ordinal",
)
"""What a verdict says of an opening: what was fixed when it happened, not what its completion added."""

IMITATION_DATASET: Final = "arena-sft-v2"
IMITATION_LIMIT: Final = (
    "With arena-sft-v2 the two communication gates cannot be won: every ACT label equals the independent_local "
    "action, so the inbox never decides a label, and perfect imitation has a generated - dropped effect of exactly 0."
)
_WORSE_THAN_RANDOM: Final = (
    "The base plays worse than random_legal on this manifest, so a regret below the base's says little: read the "
    "figures beside the baselines."
)


def build_verdict(evidence: Evidence) -> dict[str, Any]:
    """The content of ``verdict.json``.

    Raises ``EvaluationError`` where the pieces of evidence are not of one base, adapter, split, manifest or opening.
    """
    require_consistent(evidence)
    gates = _gates(evidence)
    promoted = evidence.result and all(gate.passed for gate in gates if gate.name not in COMMUNICATION_GATES)
    claim = promoted and all(gate.passed for gate in gates)
    sealed = evidence.sealed
    return {
        "experiment": evidence.experiment,
        "result": evidence.result,
        "promoted": promoted,
        "coordination_claim": claim,
        "conclusion": _conclusion(evidence, gates, promoted, claim),
        "gates": [gate.to_dict() for gate in gates],
        "selected_step": evidence.selection["selected_step"],
        "judged_step": evidence.validation["step"],
        "opening": sealed.opening if sealed else None,
        "interval_level": 1 - evidence.policy.alpha / sealed.opening if sealed else None,
        "test_openings": [_listed(opening) for opening in openings_so_far(evidence)],
        "openings_elsewhere": [_listed(opening) for opening in evidence.openings_elsewhere],
        "standing": _standing(sealed.arena) if sealed else None,
        "arena_replies": _arena_replies(sealed.arena) if sealed else None,
        "development": _development(evidence),
        "notes": _notes(evidence),
        "base_sha256": evidence.base_sha256,
        "adapter_sha256": evidence.adapter_sha256,
        "dataset_sha256": evidence.dataset_sha256,
        "manifest_sha256": evidence.manifest_sha256,
        "policy_version": evidence.policy.version,
        "policy_sha256": evidence.policy.sha256,
        "code_version": evidence.code_version,
    }


def development_gates(validation: Mapping[str, Any], development: ArenaEvidence, policy: GatePolicy) -> list[Gate]:
    """The gates that can be looked at before any sealed set opens: protocol on validation, regret and order on dev.

    An experiment opens the sealed sets when all of them pass.
    """
    comparison = compare(development.base_rows, development.tuned_rows, alpha=policy.alpha)
    return [
        *protocol_gates(validation, policy),
        regret_gate(comparison, policy),
        order_gate(comparison, development.tuned_rows, policy),
    ]


def _gates(evidence: Evidence) -> list[Gate]:
    policy, sealed = evidence.policy, evidence.sealed
    found = {gate.name: gate for gate in protocol_gates(evidence.validation, policy)}
    if sealed:
        comparison = compare(sealed.arena.base_rows, sealed.arena.tuned_rows, sealed.opening, policy.alpha)
        for gate in (
            regret_gate(comparison, policy),
            order_gate(comparison, sealed.arena.tuned_rows, policy),
            confirmation_gate(sealed.test, policy, z_of_opening(sealed.opening, policy.alpha)),
            *communication_gates(comparison, policy),
        ):
            found[gate.name] = gate
    return [found.get(name) or not_evaluated(name, policy, evidence.closed_because) for name in GATE_NAMES]


def _conclusion(evidence: Evidence, gates: Sequence[Gate], promoted: bool, claim: bool) -> str:
    if not evidence.result:
        return "a rehearsal, whose figures mean nothing: nothing is promoted"
    if claim:
        return "promoted as a warm start, and a coordination improvement may be claimed"
    if promoted:
        return "promoted as a warm start, no coordination claim"
    if evidence.selection["selected_step"] is None:
        return "not promoted: no checkpoint is eligible"
    failed = [gate.name for gate in gates if gate.status == "failed" and gate.name not in COMMUNICATION_GATES]
    return f"not promoted: {', '.join(failed) + ' failed' if failed else evidence.closed_because}"


def _standing(arena: ArenaEvidence) -> list[dict[str, Any]]:
    """Base and tuned model among the baselines, so that a crippled base cannot flatter: mean reward and regret."""
    wanted = (ORACLE_POLICY, "independent_local", RANDOM_POLICY)
    policies = {figures["policy"]: figures for figures in arena.baselines["policies"]}
    rows = [
        {
            "player": name,
            "mean_reward": policies[name]["mean_reward"],
            "mean_regret": policies[name]["mean_oracle_regret"],
        }
        for name in wanted
    ]
    for player, summary in _summaries(arena).items():
        generated = summary["conditions"]["generated"]
        rows.append(
            {"player": player, "mean_reward": generated["mean_reward"], "mean_regret": generated["mean_regret"]}
        )
    return sorted(rows, key=lambda row: (row["mean_regret"], row["player"]))


def _arena_replies(arena: ArenaEvidence) -> dict[str, Any]:
    """The strict rates on the arena's replies, which show how a model does on states it was not scored on before."""
    return {
        player: {
            "strict_message_rate": summary["messages"]["strict_message_rate"],
            "strict_message_interval": summary["messages"]["strict_message_interval"],
            "empty_message_share": summary["messages"]["empty_share"],
            "strict_action_rate": {
                condition: figures["strict_action_rate"] for condition, figures in summary["conditions"].items()
            },
            "order_consistency": summary["order_consistency"],
        }
        for player, summary in _summaries(arena).items()
    }


def _summaries(arena: ArenaEvidence) -> dict[str, dict[str, Any]]:
    pairs = {"base": arena.base_rows, "sft": arena.tuned_rows}
    return {player: summarize(rows, cases_of(rows)) for player, rows in pairs.items()}


def _development(evidence: Evidence) -> dict[str, Any] | None:
    development = evidence.development
    if development is None:
        return None
    header = development.tuned_rows[0]
    return {
        "manifest": header["manifest"],
        "manifest_sha256": header["manifest_sha256"],
        "gates": [gate.to_dict() for gate in development_gates(evidence.validation, development, evidence.policy)],
        "standing": _standing(development),
        "arena_replies": _arena_replies(development),
    }


def _notes(evidence: Evidence) -> list[str]:
    notes = []
    if evidence.dataset_version == IMITATION_DATASET:
        notes.append(IMITATION_LIMIT)
    if arena := evidence.sealed.arena if evidence.sealed else evidence.development:
        regret = {row["player"]: row["mean_regret"] for row in _standing(arena)}
        if regret["base"] > regret[RANDOM_POLICY]:
            notes.append(_WORSE_THAN_RANDOM)
    return notes


def _listed(opening: Mapping[str, Any]) -> dict[str, Any]:
    return {field: opening[field] for field in OPENING_FIELDS}
