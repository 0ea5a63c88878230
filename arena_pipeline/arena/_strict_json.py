"""JSON decoding for replies of a model: strict, bounded in size and depth, and telling repeated keys from unique ones.

The standard decoder reads the text; what it is lax about becomes values that no rule of the protocol accepts.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

MAX_BYTES: Final = 65_536
MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 4_300

# Matches a string that is never closed, too: such a text is refused anyway, and one pass stays linear.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


class RepeatedKeys:
    """Stands for an object one of whose keys occurs twice, at the level where it does."""


def decode(raw: str) -> Any:
    """The value of a JSON text; ``ValueError`` if it is none, or exceeds 65,536 UTF-8 bytes or 64 levels of nesting.

    An object with a repeated key becomes ``RepeatedKeys``. NaN, the infinities and integers of more than
    ``MAX_DIGITS`` digits become floats, as fractions do.
    """
    if len(raw) > MAX_BYTES or len(raw.encode("utf-8")) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    if _depth_exceeds(raw, MAX_DEPTH):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return _DECODER.decode(raw)


def _depth_exceeds(raw: str, limit: int) -> bool:
    """Whether brackets outside strings nest deeper than ``limit``; exact up to the text's first syntax error."""
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", raw)):
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            return True
    return False


def _integer(text: str) -> int | float:
    """The integer, or infinity for one too long for the machine: no float fits anywhere in the protocol."""
    if len(text.removeprefix("-")) > MAX_DIGITS:
        return math.inf
    try:
        return int(text)
    except ValueError:  # the interpreter was started with a lower limit than its usual one, which is MAX_DIGITS
        return math.inf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | RepeatedKeys:
    body = dict(pairs)
    return body if len(body) == len(pairs) else RepeatedKeys()


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)
