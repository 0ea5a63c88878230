"""How long work reports how far it is: one callable, no library."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called as ``progress(label, done, total)``; ``total`` is 0 while it is unknown."""


def silent(label: str, done: int, total: int) -> None:
    """Report nothing."""
