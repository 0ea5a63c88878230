"""Prompts: the pack of texts and the two messages built from it for each phase (dataset spec, "Prompts").

The texts are data. Training and evaluation take them from the rows of the dataset in use (``pack_from_rows``), so that
the two can never drift apart; only building a dataset reads a pack file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from arena_pipeline.arena.observation import displayed_actions, observe
from arena_pipeline.arena.protocol import action_id, displayed_dicts, teammates
from arena_pipeline.arena.state import State
from arena_pipeline.errors import ArenaError, ConfigError, DatasetError
from arena_pipeline.provenance.hashing import canonical_json, sha256_json

Phase = Literal["BROADCAST", "ACT"]
PHASES: Final[tuple[Phase, ...]] = ("BROADCAST", "ACT")

_VERSION: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PromptPack:
    """The texts of one prompt version: two system prompts and the sentence that states the team's objective."""

    version: str
    broadcast_system: str
    action_system: str
    team_objective: str

    @classmethod
    def load(cls, path: Path) -> PromptPack:
        """Read a pack from TOML or JSON; ``ConfigError`` names the file and the key that is wrong."""
        body = _read(path)
        names = [field.name for field in fields(cls)]
        for key in body:
            if key not in names:
                raise ConfigError(f"{path}: unknown key {key!r}; a prompt pack has exactly {', '.join(names)}")
        for name in names:
            if name not in body:
                raise ConfigError(f"{path}: key {name!r} is missing; a prompt pack has exactly {', '.join(names)}")
            if problem := _text_problem(body[name]):
                raise ConfigError(f"{path}: key {name!r} is {problem}; it must be a text that is not empty")
        if not _VERSION.fullmatch(body["version"]):
            raise ConfigError(
                f"{path}: key 'version' is {body['version']!r}; allowed are letters, digits, '.', '_' and '-'"
            )
        return cls(**body)

    @property
    def sha256(self) -> str:
        """SHA-256 of the four texts' canonical JSON."""
        return sha256_json(asdict(self))


def broadcast_prompt(pack: PromptPack, state: State, agent_id: str, permutation: int) -> tuple[str, str]:
    """The (system, user) messages that ask a BLUE agent for its broadcast; ``permutation`` rotates the actions."""
    teammates(agent_id)
    return pack.broadcast_system, canonical_json(_body("BROADCAST", pack, state, agent_id, permutation))


def action_prompt(
    pack: PromptPack, state: State, agent_id: str, permutation: int, inbox: Mapping[str, Mapping[str, Any]] | None
) -> tuple[str, str]:
    """The (system, user) messages that ask a BLUE agent for its action.

    ``inbox`` maps each teammate to its broadcast (``EMPTY_BROADCAST`` where it was silent or invalid); other entries,
    such as the agent's own broadcast, are not shown. None is the empty inbox of targeted rows, in which no sender is
    listed. Raises ``ArenaError`` if a teammate is missing.
    """
    senders = teammates(agent_id)
    if inbox is None:
        senders, inbox = (), {}
    missing = [sender for sender in senders if sender not in inbox]
    if missing:
        raise ArenaError(
            f"inbox of {agent_id}: no broadcast from {', '.join(missing)}; a silent sender's is the empty one"
        )
    body = _body("ACT", pack, state, agent_id, permutation)
    body["inbox"] = [{"sender": sender, "broadcast": inbox[sender]} for sender in senders]
    return pack.action_system, canonical_json(body)


def displayed_from_user(user_text: str) -> list[dict[str, Any]]:
    """The displayed actions, each a dictionary with its ``id``, read back from a user message.

    Raises ``ArenaError`` for a text that is not a user message, or whose ids do not count A0, A1, ... in order.
    """
    displayed = _user_body(user_text).get("legal_actions")
    if not isinstance(displayed, list) or not displayed or not all(isinstance(entry, dict) for entry in displayed):
        raise ArenaError("user message: legal_actions is not a list of actions with at least one entry")
    for position, entry in enumerate(displayed):
        if entry.get("id") != action_id(position):
            raise ArenaError(
                f"user message: legal action {position} has id {entry.get('id')!r} instead of {action_id(position)!r}"
            )
    return displayed


def pack_from_rows(rows: Iterable[Mapping[str, Any]]) -> PromptPack:
    """The pack whose texts a dataset's rows carry.

    A row is a mapping with ``messages`` [system, user, ...], ``metadata`` (phase, prompt_version) and ``id``. Raises
    ``DatasetError`` naming the two rows if two of a phase have other system texts, or any two have another objective
    or version, and if a phase has no row.
    """
    found: dict[str, tuple[str, str]] = {}

    def agree(name: str, text: Any, row: str) -> None:
        if problem := _text_problem(text):
            raise DatasetError(f"{row}: its {name} is {problem}; it must be a text that is not empty")
        first_text, first_row = found.setdefault(name, (text, row))
        if text != first_text:
            raise DatasetError(
                f"{row} and {first_row} differ in their {name}: {_excerpt(text, first_text)} and "
                f"{_excerpt(first_text, text)}; all rows of a dataset must carry one wording"
            )

    for index, row in enumerate(rows):
        place = f"row {index} (id {row.get('id')})"
        phase, version, system, objective = _row_texts(row, place)
        agree("prompt_version", version, place)
        agree(f"{phase} system text", system, place)
        agree("team_objective", objective, place)
    for phase in PHASES:
        if f"{phase} system text" not in found:
            raise DatasetError(f"no {phase} row among the rows: their {phase} system text cannot be read")
    return PromptPack(
        version=found["prompt_version"][0],
        broadcast_system=found["BROADCAST system text"][0],
        action_system=found["ACT system text"][0],
        team_objective=found["team_objective"][0],
    )


def _body(phase: Phase, pack: PromptPack, state: State, agent_id: str, permutation: int) -> dict[str, Any]:
    return {
        "phase": phase,
        "team_objective": pack.team_objective,
        "observation": observe(state, agent_id),
        "legal_actions": displayed_dicts(displayed_actions(state, agent_id, permutation)),
    }


def _user_body(user_text: str) -> dict[str, Any]:
    try:
        body = json.loads(user_text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ArenaError(f"user message {user_text[:60]!r}: not a JSON object")
    return body


def _row_texts(row: Mapping[str, Any], place: str) -> tuple[Phase, Any, Any, Any]:
    """A row's phase, prompt version, system text and objective; ``DatasetError`` names a row of another shape."""
    try:
        system, user = row["messages"][0]["content"], row["messages"][1]["content"]
        phase, version = row["metadata"]["phase"], row["metadata"]["prompt_version"]
        objective = _user_body(user)["team_objective"]
    except (KeyError, IndexError, TypeError, ArenaError) as error:
        raise DatasetError(
            f"{place}: not a row with messages, phase, prompt_version and team_objective ({error})"
        ) from None
    if phase not in PHASES:
        raise DatasetError(f"{place}: phase {phase!r}; allowed are {', '.join(PHASES)}")
    return phase, version, system, objective


def _excerpt(text: str, other: str) -> str:
    """The part of a text where it starts to differ from the other one."""
    same = next((index for index, (left, right) in enumerate(zip(text, other, strict=False)) if left != right), None)
    start = max(0, (min(len(text), len(other)) if same is None else same) - 10)
    return repr(text[start : start + 40])


def _text_problem(value: Any) -> str | None:
    """Why a value cannot be one of a pack's texts, or None if it can."""
    if not isinstance(value, str):
        return f"of type {type(value).__name__}"
    if not value.strip():
        return "empty"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "not valid Unicode (it holds half a surrogate pair)"
    return None


def _read(path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        body = dict(pairs)
        if len(body) < len(pairs):
            raise ValueError("a key occurs twice")
        return body

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == ".json":
            body = json.loads(text, object_pairs_hook=unique)
            if isinstance(body, dict):
                return body
            raise ValueError("its top level is not an object")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a prompt pack ({error})") from None
    raise ConfigError(f"{path}: a prompt pack is a .toml or a .json file")
