"""Rows of the supervised set: their form, ids, lines, order and content hash (dataset spec, "Rows, ids, hash")."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, cast

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.prompts import Phase, displayed_from_user
from arena_pipeline.arena.state import BLUE_AGENTS, State
from arena_pipeline.errors import ArenaError, DatasetError
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.serving.requests import ChatPrompt, Request
from arena_pipeline.sft.metadata import ACTION_SKILLS, SILENCE

ROLES: Final = ("system", "user", "assistant")

_SKILL_ORDER: Final[Mapping[str, int]] = {
    skill: position for position, skill in enumerate(("", *ACTION_SKILLS, SILENCE))
}


@dataclass(frozen=True, slots=True)
class Row:
    """One example: messages [system, user, assistant], what it comes from, and the hash of both."""

    messages: Sequence[Mapping[str, str]]
    metadata: Mapping[str, Any]
    id: str

    @classmethod
    def of(cls, system: str, user: str, label: str, metadata: Mapping[str, Any]) -> Row:
        """The row of three texts and its metadata, under the id that they hash to."""
        texts = (system, user, label)
        messages = tuple({"role": role, "content": text} for role, text in zip(ROLES, texts, strict=True))
        return cls(messages, metadata, row_id(messages, metadata))

    @property
    def system(self) -> str:
        """The system text."""
        return self.messages[0]["content"]

    @property
    def user(self) -> str:
        """The user message: compact JSON."""
        return self.messages[1]["content"]

    @property
    def label(self) -> str:
        """The assistant text: what a model should reply."""
        return self.messages[2]["content"]

    @property
    def phase(self) -> Phase:
        """BROADCAST or ACT."""
        return cast(Phase, self.metadata["phase"])

    @property
    def seed(self) -> int:
        """The seed of the row's state."""
        return int(self.metadata["seed"])

    @property
    def split(self) -> str:
        """train, validation or test."""
        return str(self.metadata["split"])

    @property
    def agent_id(self) -> str:
        """The BLUE agent that is asked."""
        return str(self.metadata["agent_id"])

    @property
    def skill(self) -> str:
        """The skill of a targeted row, "" for a plain one."""
        return str(self.metadata.get("targeted_skill", ""))

    @property
    def permutation(self) -> int:
        """The display permutation: the seed plus the agent's index."""
        return self.seed + BLUE_AGENTS.index(self.agent_id)

    def to_dict(self) -> dict[str, Any]:
        """The row as its line holds it."""
        return {
            "id": self.id,
            "messages": [dict(message) for message in self.messages],
            "metadata": dict(self.metadata),
        }

    def line(self) -> str:
        """The row's canonical line, newline included: key-sorted JSON with Python's default separators."""
        return json_line(self.to_dict())


def json_line(body: Mapping[str, Any]) -> str:
    """The canonical line of a row's dictionary form; NaN and infinities raise ``ValueError``."""
    return json.dumps(body, sort_keys=True, allow_nan=False) + "\n"


def row_id(messages: Sequence[Mapping[str, str]], metadata: Mapping[str, Any]) -> str:
    """SHA-256 of the compact key-sorted JSON of the messages and metadata."""
    return sha256_json({"messages": list(messages), "metadata": metadata})


def content_sha256(ids: Iterable[str]) -> str:
    """SHA-256 of all ids, sorted and concatenated; the same for any order of rows."""
    return merged_content_sha256([sorted(ids)])


def merged_content_sha256(shards: Iterable[Iterable[str]]) -> str:
    """The content hash of the union of shards, each given as its sorted ids."""
    digest = sha256()
    for identifier in heapq.merge(*shards):
        digest.update(identifier.encode("ascii"))
    return digest.hexdigest()


def generation_key(metadata: Mapping[str, Any]) -> tuple[int, int, bool, int]:
    """Sorts rows into generation order.

    Plain rows by seed, each seed's broadcasts before its actions, agents in order; then the targeted rows of WAIT,
    SCAN, TRANSFER and SILENCE, each by seed.
    """
    return (
        _SKILL_ORDER[metadata.get("targeted_skill", "")],
        metadata["seed"],
        metadata["phase"] == "ACT",
        BLUE_AGENTS.index(metadata["agent_id"]),
    )


def row_state(metadata: Mapping[str, Any]) -> State:
    """The state that a row's metadata names, built again from its seed."""
    skill = metadata.get("targeted_skill", "")
    return generate_mechanics_state(metadata["seed"], skill) if skill else generate_state(metadata["seed"])


def action_kind(row: Row) -> str:
    """The kind of the action that an ACT row's label chooses; raises ``DatasetError`` if its prompt has no such id."""
    try:
        chosen = json.loads(row.label)["action_id"]
        return str(next(entry["type"] for entry in displayed_from_user(row.user) if entry["id"] == chosen))
    except (ArenaError, ValueError, KeyError, TypeError, StopIteration):
        raise DatasetError(f"row {row.id}: its label {row.label!r} names no action that its prompt displays") from None


def row_requests(rows: Iterable[Row]) -> list[Request]:
    """The rows' prompts as requests to a provider, keyed by row id; ``condition`` is the row's split."""
    return [
        Request(
            key=row.id,
            phase=row.phase,
            prompt=ChatPrompt(row.system, row.user),
            agent_id=row.agent_id,
            case=dict(row.metadata),
            permutation=row.permutation,
            condition=row.split,
        )
        for row in rows
    ]
