"""Tables and plots as Dagster metadata, capped in size: megabytes of it freeze the UI (known trouble 48)."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dagster import MarkdownMetadataValue, MetadataValue, TableMetadataValue, TableRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS: Final = 200
MOST_BYTES: Final = 300_000
_SIZE_INCHES: Final = (7.0, 3.2)
_DOTS_PER_INCH: Final = 96

COLORS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#dd8844")
"""Told apart by most colour-blind people, on a dark page and on a light one."""


def table(rows: Sequence[Mapping[str, Any]]) -> TableMetadataValue:
    """A table of the first 200 rows; a cell that is no plain value is shown as text, a missing one is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["rows"]
    shown = [{name: _cell(row.get(name)) for name in names} for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        shown.append(dict.fromkeys(names) | {names[0]: f"... {len(rows) - MOST_ROWS} more rows"})
    return MetadataValue.table(records=[TableRecord(record) for record in shown or [{names[0]: "none"}]])


def markdown(text: str) -> MarkdownMetadataValue:
    """Markdown, cut where it is longer than a page of the UI can take."""
    data = text.encode("utf-8")
    if len(data) > MOST_BYTES:
        text = data[:MOST_BYTES].decode("utf-8", errors="ignore") + "\n\n(cut: too long to show)"
    return MetadataValue.md(text)


def fenced(text: str) -> str:
    """A brought text as a Markdown code block, which shows it as it is; no text ends the block from within."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def plot(title: str, draw: Callable[[Axes], None], size: tuple[float, float] = _SIZE_INCHES) -> MarkdownMetadataValue:
    """A picture as Markdown, readable on black and on white; ``draw`` gets the axes to draw on."""
    # A figure of its own, not pyplot's: no display, no global state, and safe beside other threads.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    figure.patch.set_facecolor("white")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    draw(axes)
    axes.set_title(title, fontsize=10)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    if len(stream.getvalue()) > MOST_BYTES:
        return MetadataValue.md(f"({title}: the picture has {len(stream.getvalue())} bytes, too many to show)")
    encoded = base64.b64encode(stream.getvalue()).decode("ascii")
    return MetadataValue.md(f"![{title}](data:image/png;base64,{encoded})")


def _cell(value: Any) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
