"""What commands show: lines, tables and progress for a person, or one JSON value for a program."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arena_pipeline.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output, nothing else.")]

_WIDTH_OF_A_FILE = 132
"""Columns of output that goes to a file or pipe, where nobody can widen the window."""


class Stopped(Exception):
    """Ctrl-C, with a line that says how to go on."""


def printable(text: object) -> str:
    """A text with every control character but newlines spelt out, so that a file's or model's text cannot act."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in str(text)
    )


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 opening", "2 openings"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def complain(message: object) -> None:
    """Say on standard error what went wrong."""
    print(f"arena: {printable(message)}", file=sys.stderr)


class Screen:
    """Where one command's output goes. With ``as_json``, what is meant for a person goes to standard error."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _console(sys.stderr if as_json else sys.stdout)

    def line(self, text: object, style: str | None = None) -> None:
        """One line of text, shown as it is: brackets in it are no markup, and it is not wrapped."""
        self.console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """A table or another thing of rich; texts in it that come from files must be ``Text`` or escaped."""
        self.console.print(renderable, highlight=False)

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
        """A plain table; a column of numbers stands to the right."""
        from rich.table import Table
        from rich.text import Text

        cells = [[printable(cell) for cell in row] for row in rows]
        table = Table(title=title, title_justify="left")
        for index, heading in enumerate(headings):
            numbers = bool(cells) and all(_is_number(row[index]) for row in cells)
            table.add_column(heading, justify="right" if numbers else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        self.show(table)

    def json(self, value: Any) -> None:
        """The one JSON value on standard output, if the command was asked for it."""
        if self.as_json:
            print(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A bar for work that takes long; nothing where the output is no terminal."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            tasks: dict[str, Any] = {}

            def report(label: str, done: int, total: int) -> None:
                # Each label is a line of its own; the one before it is finished and leaves the screen.
                if label not in tasks:
                    for task in tasks.values():
                        bar.update(task, visible=False)
                    tasks[label] = bar.add_task(printable(label), total=total or None)
                bar.update(tasks[label], completed=done, total=total or None, visible=True)

            yield report


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Turn Ctrl-C inside the block into one line with ``advice`` and exit status 130."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; {advice}") from None


def _console(file: Any) -> Console:
    from rich.console import Console

    if file.isatty() or os.environ.get("COLUMNS"):
        return Console(file=file)
    return Console(file=file, width=_WIDTH_OF_A_FILE)


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).replace(",", "").isdigit() or text in ("", "-")
