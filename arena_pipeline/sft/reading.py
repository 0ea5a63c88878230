"""Reads dataset files: their layout, their lines, and lines as rows (dataset specification, "Rows, ids, hash").

A published copy may hold other files too (a README, an overfit set copied out of train): they are no part of the
dataset and are not read.

Nothing here raises for what a line holds: a line that is not a row carries the problem, so that loading can stop at the
first and the audit can list all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import sha256_bytes
from arena_pipeline.sft.manifest import MANIFEST_FILE
from arena_pipeline.sft.metadata import without_defaults
from arena_pipeline.sft.rows import ROLES, Row
from arena_pipeline.sft.splits import SPLITS

_ROW_KEYS: Final = {"id", "messages", "metadata"}
_MESSAGE_KEYS: Final = {"role", "content"}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of rows: its name, the split it holds and, where train is in three files, the stratum."""

    name: str
    split: str
    stratum: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Which files a dataset directory is made of; ``manifest`` is None where a published copy has none."""

    name: str
    files: tuple[DataFile, ...]
    manifest: str | None


OWN: Final = "own"
PUBLISHED: Final = "published"

# Published copies name the common actions' file either way.
_PUBLISHED_TRAIN: Final = {
    "broadcast": ("train_broadcast.jsonl",),
    "action_common": ("train_action.jsonl", "train_action_common.jsonl"),
    "action_rare": ("train_action_rare.jsonl",),
}


def find_layout(directory: Path) -> Layout:
    """The layout of a dataset directory; ``DatasetError`` says which file is missing or one too many."""
    if not directory.is_dir():
        raise DatasetError(f"{directory}: no such directory")
    published = [name for names in _PUBLISHED_TRAIN.values() for name in names if (directory / name).is_file()]
    manifest = MANIFEST_FILE if (directory / MANIFEST_FILE).is_file() else None
    held_out = [DataFile(f"{split}.jsonl", split) for split in SPLITS if split != "train"]
    if (directory / "train.jsonl").is_file():
        if published:
            raise DatasetError(
                f"{directory}: holds train.jsonl and {published[0]}; train is in one file or in three, not both"
            )
        layout = Layout(OWN, (DataFile("train.jsonl", "train"), *held_out), MANIFEST_FILE)
    elif published:
        parts = [DataFile(_one_of(directory, names), "train", stratum) for stratum, names in _PUBLISHED_TRAIN.items()]
        layout = Layout(PUBLISHED, (*parts, *held_out), manifest)
    else:
        raise DatasetError(
            f"{directory}: holds neither train.jsonl nor train_broadcast.jsonl; it is not a dataset directory"
        )
    for name in (*(file.name for file in layout.files), *([layout.manifest] if layout.manifest else [])):
        if not (directory / name).is_file():
            raise DatasetError(f"{directory}: {name} is missing from the dataset's {layout.name} layout")
    return layout


def _one_of(directory: Path, names: tuple[str, ...]) -> str:
    found = [name for name in names if (directory / name).is_file()]
    if len(found) > 1:
        raise DatasetError(f"{directory}: holds both {' and '.join(found)}; only one of them may be there")
    return found[0] if found else names[0]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: where it stands, its text, and the row it holds or why it holds none.

    ``body`` is the JSON object as the line has it, with defaults; ``row`` is the row without them, under the id that
    the line states, whether or not it is the right one. A line without a row has a ``problem`` and names the ``rule``
    it breaks: json, chat_shape or metadata.
    """

    file: DataFile
    number: int
    text: str
    body: dict[str, Any] | None
    row: Row | None
    rule: str = ""
    problem: str = ""

    @property
    def place(self) -> str:
        """The file's name and the line's number."""
        return f"{self.file.name}:{self.number}"


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's lines and the SHA-256 of its bytes."""

    file: DataFile
    sha256: str
    lines: list[Line]


def read_file(directory: Path, file: DataFile) -> FileContent:
    """Read one file of rows; ``DatasetError`` only if it cannot be read at all."""
    try:
        data = (directory / file.name).read_bytes()
    except OSError as error:
        raise DatasetError(f"{directory / file.name}: cannot be read ({error.strerror})") from None
    return FileContent(file, sha256_bytes(data), list(_lines(file, data)))


def _lines(file: DataFile, data: bytes) -> Iterator[Line]:
    *whole, rest = data.split(b"\n")
    for number, raw in enumerate(whole, 1):
        yield read_line(file, number, raw)
    if rest:
        text = rest.decode("utf-8", "backslashreplace")
        yield Line(file, len(whole) + 1, text, None, None, "json", "the last line has no newline: the file is cut off")


def read_line(file: DataFile, number: int, raw: bytes) -> Line:
    """One line, given without its newline."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = raw.decode("utf-8", "backslashreplace")
        return Line(file, number, text, None, None, "json", f"not UTF-8 ({error.reason})")
    body = None
    rule = "json"
    try:
        body = parse_object(text)
        rule = "chat_shape"
        check_chat(body)
        rule = "metadata"
        row = Row(body["messages"], without_defaults(body["metadata"]), body["id"])
    except DatasetError as error:
        return Line(file, number, text, body, None, rule, str(error))
    return Line(file, number, text, body, row)


def parse_object(text: str) -> dict[str, Any]:
    """A JSON object, strictly: ``DatasetError`` for duplicate keys, NaN, infinities and anything that is not JSON."""
    try:
        body = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise DatasetError(f"not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"not JSON that can be read ({error})") from None
    if not isinstance(body, dict):
        raise DatasetError(f"a JSON object was expected, found {type(body).__name__}")
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) < len(pairs):
        keys = [key for key, _ in pairs]
        raise DatasetError(f"key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice in one object")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise DatasetError(f"{name} is not a JSON number")


def check_chat(body: dict[str, Any]) -> None:
    """Check a line's object but for its metadata's content; ``DatasetError`` names the key that is wrong."""
    _check_keys("row", body, _ROW_KEYS)
    if not isinstance(body["id"], str):
        raise DatasetError(f"key 'id' is {body['id']!r}; allowed is a text")
    if not isinstance(body["metadata"], dict):
        raise DatasetError(f"key 'metadata' is a {type(body['metadata']).__name__}; allowed is an object")
    messages = body["messages"]
    if not isinstance(messages, list) or len(messages) != len(ROLES):
        raise DatasetError(f"key 'messages' must be a list of {len(ROLES)}: {', '.join(ROLES)}")
    for position, (message, role) in enumerate(zip(messages, ROLES, strict=True)):
        if not isinstance(message, dict):
            raise DatasetError(f"message {position} is a {type(message).__name__}; allowed is an object")
        _check_keys(f"message {position}", message, _MESSAGE_KEYS)
        if message["role"] != role:
            raise DatasetError(f"message {position} has role {message['role']!r} instead of {role!r}")
        if not isinstance(message["content"], str):
            raise DatasetError(f"message {position}: key 'content' is {message['content']!r}; allowed is a text")


def _check_keys(what: str, body: dict[str, Any], wanted: set[str]) -> None:
    for key in sorted(set(body) ^ wanted):
        problem = "is unknown" if key in body else "is missing"
        raise DatasetError(f"{what}: key {key!r} {problem}; allowed are exactly {', '.join(sorted(wanted))}")


def read_manifest_text(directory: Path, name: str) -> str:
    """A manifest's text; ``DatasetError`` names the file if it is not UTF-8 or cannot be read."""
    try:
        return (directory / name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{directory / name}: cannot be read as UTF-8 text ({error})") from None
