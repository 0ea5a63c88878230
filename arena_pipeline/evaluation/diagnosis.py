"""What a failed gate calls for, in data or prompts; a sealed set's result stands, and the scorer stays as it is.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_CALLS_FOR: Final[Mapping[str, str]] = {
    "action_schema": (
        'prompt: ACT replies are not strictly {"action_id":"A<k>"}; state the schema more plainly in the action '
        "prompt, and check template and loss mask on the overfit set"
    ),
    "broadcast_schema": (
        "prompt: broadcasts break the schema; state the exact keys in the broadcast prompt, and look up in the "
        "verdicts which error code leads"
    ),
    "unsupported_facts": (
        "data: broadcasts state facts that their sender does not observe; add rows in which facts of every status, "
        "value and turn are copied, or train more steps on broadcasts"
    ),
    "legal_actions": (
        "data: ACT replies choose ids that are not displayed; add rows with few legal actions, and raise the share of "
        "ACT rows in the mixture"
    ),
    "oracle_regret": (
        "data: choices are not shown to be better than the base's; add ACT rows, weight their one decisive token, or "
        "use labels nearer the joint optimum than the local policy's"
    ),
    "order_robustness": (
        "data: choices depend on the display order; train each ACT row under several display permutations"
    ),
    "test_confirmation": (
        "data: the checkpoint fits validation better than unseen seeds; the result stands, and the next experiment "
        "needs more "
        "training seeds"
    ),
    "communication_useful": ("data: messages do not help; add ACT rows whose label depends on what the inbox says"),
    "communication_semantic": (
        "data: another case's messages do as well as the real ones; add pairs of ACT rows that differ in the inbox "
        "alone and have different labels"
    ),
}


def diagnose(
    gate: str,
    power: str | None = None,
    detectable: float = 0.0,
    delta: float = 0.0,
    missed: Sequence[str] = (),
) -> str:
    """One sentence for a failed gate: what it calls for, then how strong its evidence is.

    ``power`` is an interval gate's ``underpowered`` or ``effect_below_delta``, with the smallest effect that its
    cases could have shown and the smallest of interest; ``missed`` names the parts that failed, of a gate that has
    several.
    """
    text = _CALLS_FOR[gate]
    if missed:
        text += f" (missed: {', '.join(missed)})"
    if power == "underpowered":
        text += (
            f" (underpowered: these cases can show effects from {detectable:.3f} on, and the smallest of interest is"
            f" {delta:.3f}; declare a larger manifest for the next experiment)"
        )
    elif power == "effect_below_delta":
        text += f" (these cases can show effects from {detectable:.3f} on: this one is below the delta of {delta:.3f})"
    return text
