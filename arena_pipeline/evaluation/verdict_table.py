"""The verdict as a person reads it in a terminal: gates, standing among the baselines, diagnoses, conclusion.

Source: evaluation specification, "Gates".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    parts: list[RenderableType] = [
        _gates_table(f"Gates of {verdict['experiment']} ({verdict['policy_version']})", verdict["gates"])
    ]
    figures, where = verdict, "the sealed manifest"
    if not verdict["standing"] and (development := verdict["development"]):
        # Nothing sealed was opened: what was seen on development cases is why, and all that there is.
        parts.append(_gates_table(f"Gates on {development['manifest']} and validation", development["gates"]))
        figures, where = development, f"the development manifest {development['manifest']}"
    if figures["standing"]:
        parts.append(_standing_table(where, figures["standing"]))
    if figures["arena_replies"]:
        parts += [
            Text(f"Arena replies, {player}: {_replies(rates)}") for player, rates in figures["arena_replies"].items()
        ]
    shown = verdict["gates"] if figures is verdict else [*verdict["gates"], *figures["gates"]]
    parts += [Text(line) for line in _diagnoses(shown)]
    parts += [Text(note) for note in verdict["notes"]]
    parts.append(Text(_openings(verdict)))
    color = "green" if verdict["promoted"] else "red"
    parts.append(Text.from_markup(f"[bold {color}]{escape(verdict['experiment'])}: {escape(verdict['conclusion'])}[/]"))
    return Group(*parts)


def _diagnoses(gates: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each diagnosis, with all gates that it is about: one that reads validation says the same twice."""
    about: dict[str, dict[str, None]] = {}
    for gate in gates:
        if gate["diagnosis"]:
            about.setdefault(gate["diagnosis"], {})[gate["name"]] = None
    return [f"{', '.join(names)}: {diagnosis}" for diagnosis, names in about.items()]


def _gates_table(title: str, gates: Sequence[Mapping[str, Any]]) -> RenderableType:
    from rich.table import Table

    table = Table(title=title)
    for heading in ("gate", "result", "count", "figure", "threshold", "interval", "n", "could have shown"):
        table.add_column(heading, justify="left" if heading in ("gate", "result") else "right")
    for gate in gates:
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
        for cells in _parts(gate):
            table.add_row(*cells)
    return table


def _parts(gate: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The rows below a gate that has several parts: each part's name, result and figures."""
    details = gate["details"]
    if not details:
        return
    if gate["name"] == "test_confirmation":
        for name, part in details.items():
            sign = f"{_COMPARED_AS[name]} {_number(part['threshold'])}"
            count, figure, n = _number(part["count"]), _number(part["figure"]), _number(part["n"])
            yield f"  {name}", _MARKS[part["status"]], count, figure, sign, _interval(part["interval"]), n
    elif gate["name"] == "order_robustness":
        marks = {name: _MARKS["passed" if holds else "failed"] for name, holds in details["holds"].items()}
        for play, paired in details["regret_increase"].items():
            interval, n = _interval(paired["interval"]), _number(paired["n"])
            yield f"  regret increase, {play}", marks["regret_increase"], "", _number(paired["mean"]), "", interval, n
        replies = _number(details["strict_replies"])
        for play, rate in details["strict_action_rate"].items():
            mark = marks["strict_actions"] if play == "generated" else ""
            yield f"  strict actions, {play}", mark, "", _number(rate), "", "", replies
        for play, fall in details["strict_action_fall"].items():
            yield f"  fall of strict actions, {play}", marks["strict_fall"], "", _number(fall), "", "", replies


def _standing_table(where: str, standing: Sequence[Mapping[str, Any]]) -> RenderableType:
    from rich.table import Table

    table = Table(title=f"Standing on {where}, messages generated")
    for heading in ("player", "mean reward", "mean regret"):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    for row in standing:
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
