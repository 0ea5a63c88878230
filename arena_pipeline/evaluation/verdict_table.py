"""The verdict as a person reads it in a terminal: gates, standing among the baselines, diagnoses, conclusion.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

_MARKS: Final = {"passed": "[green]pass[/]", "failed": "[red]FAIL[/]", "not_evaluated": "[yellow]not evaluated[/]"}
_COMPARED_AS: Final = {
    "action_schema": ">=",
    "broadcast_schema": ">=",
    "unsupported_facts": "<=",
    "legal_actions": ">=",
    "oracle_regret": "upper end <",
    "order_robustness": "upper end <=",
    "test_confirmation": "parts >=",
    "communication_useful": "lower end >",
    "communication_semantic": "lower end >",
}


def render_verdict(verdict: Mapping[str, Any]) -> RenderableType:
    """A rich renderable of a ``verdict.json``'s content."""
    from rich.console import Group
    from rich.markup import escape
    from rich.text import Text

    parts: list[RenderableType] = [_gates_table(verdict)]
    if verdict["standing"]:
        parts.append(_standing_table(verdict))
    if verdict["arena_replies"]:
        parts += [
            Text(f"Arena replies, {player}: {_replies(rates)}") for player, rates in verdict["arena_replies"].items()
        ]
    for gate in verdict["gates"]:
        if gate["diagnosis"]:
            parts.append(Text(f"{gate['name']}: {gate['diagnosis']}"))
    parts += [Text(note) for note in verdict["notes"]]
    parts.append(Text(_openings(verdict)))
    color = "green" if verdict["promoted"] else "red"
    parts.append(Text.from_markup(f"[bold {color}]{escape(verdict['experiment'])}: {escape(verdict['conclusion'])}[/]"))
    return Group(*parts)


def _gates_table(verdict: Mapping[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(title=f"Gates of {verdict['experiment']} ({verdict['policy_version']})")
    for heading in ("gate", "result", "count", "figure", "threshold", "interval", "n", "could have shown"):
        table.add_column(heading, justify="left" if heading in ("gate", "result") else "right")
    for gate in verdict["gates"]:
        detectable = gate["smallest_detectable_effect"]
        table.add_row(
            gate["name"],
            _MARKS[gate["status"]] + (f" ({gate['power'].replace('_', ' ')})" if gate["power"] else ""),
            _number(gate["count"]),
            _number(gate["figure"]),
            f"{_COMPARED_AS[gate['name']]} {_number(gate['threshold'])}",
            _interval(gate["interval"]),
            _number(gate["n"]),
            "" if detectable is None else f"{_number(detectable)} of {_number(gate['delta'])}",
        )
    return table


def _standing_table(verdict: Mapping[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(title="Standing on the sealed manifest, messages generated")
    for heading in ("player", "mean reward", "mean regret"):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    for row in verdict["standing"]:
        table.add_row(row["player"], f"{row['mean_reward']:.3f}", f"{row['mean_regret']:.3f}")
    return table


def _replies(rates: Mapping[str, Any]) -> str:
    actions = ", ".join(f"{condition} {rate:.1%}" for condition, rate in rates["strict_action_rate"].items())
    return (
        f"strict messages {rates['strict_message_rate']:.1%} ({rates['empty_message_share']:.1%} empty), "
        f"strict actions {actions}, same choice in three display orders {rates['order_consistency']:.1%}"
    )


def _openings(verdict: Mapping[str, Any]) -> str:
    opened, elsewhere = len(verdict["test_openings"]), len(verdict["openings_elsewhere"])
    text = f"Sealed sets: opened by {opened} experiment{'' if opened == 1 else 's'} of this instance"
    if elsewhere:
        text += f", {elsewhere} elsewhere"
    if verdict["opening"]:
        text += f"; this is opening {verdict['opening']}, intervals at {verdict['interval_level']:.2%}"
    return text + "."


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _interval(interval: list[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} .. {interval[1]:.3f}"
