"""Prompt packs and the messages built from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions, observe
from arena_pipeline.arena.prompts import (
    PromptPack,
    action_prompt,
    broadcast_prompt,
    displayed_from_user,
    pack_from_rows,
)
from arena_pipeline.arena.protocol import EMPTY_BROADCAST
from arena_pipeline.arena.state import BLUE_AGENTS, Action, State
from arena_pipeline.errors import ArenaError, ConfigError, DatasetError
from arena_pipeline.provenance.hashing import sha256_text

OWN_PACK = Path(__file__).parents[2] / "data" / "prompts" / "arena-v2-open.toml"
PACK = PromptPack("test-1", "Say what you see.", "Choose.", "Win.")


def _inbox(state: State, agent_id: str) -> dict[str, Any]:
    return {
        other: {"facts": [observe(state, other)["known_nodes"][0]], "intent": None, "request_resource": index % 2}
        for index, other in enumerate(BLUE_AGENTS)
        if other != agent_id
    }


# --- the project's own pack -------------------------------------------------------------------------------------------


def test_no_byte_of_the_pinned_file_can_change_unseen(tmp_path: Path) -> None:
    """A pack's hash is that of its texts, so its file holds no comment, whose change would go unnoticed."""
    content, sha256 = OWN_PACK.read_bytes(), PromptPack.load(OWN_PACK).sha256
    changed = tmp_path / OWN_PACK.name
    for position in range(len(content)):
        changed.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with suppress(ConfigError):
            assert PromptPack.load(changed).sha256 != sha256, f"byte {position}"


def test_own_pack_is_short_and_says_what_the_specification_lists() -> None:
    pack = PromptPack.load(OWN_PACK)
    assert pack.version == OWN_PACK.stem == "arena-v2-open"
    assert len(pack.broadcast_system.split()) <= 150
    assert len(pack.action_system.split()) <= 130
    assert pack.team_objective.count(".") == 1
    assert pack.team_objective.endswith(".")
    for text in (pack.broadcast_system, pack.action_system):
        assert text == text.strip()
        assert text.isascii()
        for needed in ("one of four", "WAIT", "SCAN", "PROBE", "CAPTURE", "FORTIFY", "RECOVER", "TRANSFER", "private"):
            assert needed in text
        for needed in (
            "newer direct observations beat older reports",
            "Never invent",
            "complete interface",
            "JSON only",
        ):
            assert needed in text
    for needed in (
        "at most three",
        "copied exactly",
        "one legal action without its id",
        '{"type":"WAIT"}',
        '{"amount":1,"target":AGENT,"type":"TRANSFER"}',
        "Empty fields are fine",
    ):
        assert needed in pack.broadcast_system
    for needed in ("at once", "evidence, not a command", "fresh facts and declared intents", "redundant targets"):
        assert needed in pack.action_system
    assert '{"action_id":"A<k>"}' in pack.action_system


def test_own_packs_texts_are_the_ones_the_pinned_dataset_was_built_with() -> None:
    """Another wording is another pack under another version: the dataset's content hash depends on every character."""
    assert PromptPack.load(OWN_PACK).sha256 == "657eddc9e22ab3241dd6bdec76f6a360346b445d54e5c8ec8300eb0747f75472"


# --- pack files -------------------------------------------------------------------------------------------------------


def _toml(body: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in body.items())


WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {"toml": _toml, "json": json.dumps}
formats = pytest.mark.parametrize("suffix", ["toml", "json"])


def _load(tmp_path: Path, suffix: str, text: str) -> PromptPack:
    path = tmp_path / f"pack.{suffix}"
    path.write_text(text, encoding="utf-8")
    return PromptPack.load(path)


@formats
def test_a_pack_loads_verbatim_from_either_format(tmp_path: Path, suffix: str) -> None:
    pack = PromptPack("arena-v2-structured-priority", " two\nlines, é ", "\tb\n", "One.")
    assert _load(tmp_path, suffix, WRITERS[suffix](asdict(pack))) == pack


def test_the_hash_is_of_the_four_texts_and_nothing_else(tmp_path: Path) -> None:
    expected = sha256_text(
        '{"action_system":"Choose.","broadcast_system":"Say what you see.","team_objective":"Win.","version":"test-1"}'
    )
    assert PACK.sha256 == expected
    assert _load(tmp_path, "toml", "# a comment\n" + _toml(asdict(PACK))).sha256 == expected
    for key in asdict(PACK):
        assert PromptPack(**{**asdict(PACK), key: "other"}).sha256 != expected


@formats
@pytest.mark.parametrize("key", ["version", "broadcast_system", "action_system", "team_objective"])
@pytest.mark.parametrize(
    ("value", "found"), [(7, "of type int"), (["x"], "of type list"), ("", "empty"), (" \n", "empty")]
)
def test_a_key_that_is_no_text_is_named(tmp_path: Path, suffix: str, key: str, value: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"pack\.{suffix}: key '{key}' is {found}"):
        _load(tmp_path, suffix, WRITERS[suffix]({**asdict(PACK), key: value}))


@formats
@pytest.mark.parametrize("key", ["version", "broadcast_system", "action_system", "team_objective"])
def test_a_missing_key_is_named(tmp_path: Path, suffix: str, key: str) -> None:
    body = asdict(PACK)
    del body[key]
    with pytest.raises(ConfigError, match=rf"pack\.{suffix}: key '{key}' is missing"):
        _load(tmp_path, suffix, WRITERS[suffix](body))


@formats
def test_an_unknown_key_is_named(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ConfigError, match=rf"pack\.{suffix}: unknown key 'note'"):
        _load(tmp_path, suffix, WRITERS[suffix]({**asdict(PACK), "note": "x"}))


@formats
@pytest.mark.parametrize("version", ["a b", "a/b", "../a", "é", "a\n", "v1\u0661"])
def test_a_version_is_a_plain_name(tmp_path: Path, suffix: str, version: str) -> None:
    with pytest.raises(ConfigError, match=r"key 'version' is .*allowed are letters, digits"):
        _load(tmp_path, suffix, WRITERS[suffix]({**asdict(PACK), "version": version}))


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("toml", "version = "),
        ("toml", _toml(asdict(PACK)) + 'version = "twice"\n'),
        ("json", "{"),
        ("json", "[]"),
        ("json", "[" * 100_000),
        ("json", '{"version":"a",' + json.dumps(asdict(PACK))[1:]),
        ("json", "\ufeff" + json.dumps(asdict(PACK))),
        ("yaml", "version: a"),
    ],
)
def test_a_file_that_is_no_pack_is_named(tmp_path: Path, suffix: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"pack\.{suffix}: "):
        _load(tmp_path, suffix, text)


def test_bytes_that_are_no_utf8_and_halves_of_surrogate_pairs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pack.json"
    path.write_bytes(b'{"version":"\xff"}')
    with pytest.raises(ConfigError, match=r"pack\.json: not a prompt pack"):
        PromptPack.load(path)
    with pytest.raises(ConfigError, match=r"'team_objective' is not valid Unicode"):
        _load(tmp_path, "json", json.dumps({**asdict(PACK), "team_objective": "\ud800"}))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read \(No such file"):
        PromptPack.load(tmp_path / "absent.toml")


# --- messages ---------------------------------------------------------------------------------------------------------


def test_broadcast_prompt_to_the_letter() -> None:
    state = generate_state(0)
    system, user = broadcast_prompt(PACK, state, "blue-0", 1)
    assert system == "Say what you see."
    assert user == (
        '{"legal_actions":[{"id":"A0","target":"V71","type":"FORTIFY"},{"id":"A1","target":"V48","type":"PROBE"},'
        '{"id":"A2","target":"V55","type":"SCAN"},{"id":"A3","type":"WAIT"},'
        '{"id":"A4","target":"V48","type":"CAPTURE"}],"observation":{"adjacent_teammates":[],"known_nodes":['
        '{"critical":false,"node":"V48","observed_turn":0,"owner":"NEUTRAL","status":"SECURE","value":2},'
        '{"critical":false,"node":"V71","observed_turn":0,"owner":"BLUE","status":"SECURE","value":2}],'
        '"self":{"id":"blue-0","position":"V71","resource":3,"team":"BLUE"},"turn":0,"unknown_neighbors":["V55"]},'
        '"phase":"BROADCAST","team_objective":"Win."}'
    )


@pytest.mark.parametrize("agent_id", BLUE_AGENTS)
@pytest.mark.parametrize("permutation", [0, 1, 17, 1_000_003])
def test_action_prompt_adds_the_inbox_of_the_others_in_order(agent_id: str, permutation: int) -> None:
    state = generate_state(3)
    inbox = _inbox(state, agent_id)
    system, user = action_prompt(PACK, state, agent_id, permutation, dict(reversed(inbox.items())))
    assert system == "Choose."
    displayed = displayed_actions(state, agent_id, permutation)
    body = {
        "phase": "ACT",
        "team_objective": "Win.",
        "observation": observe(state, agent_id),
        "legal_actions": [{**action.to_dict(), "id": f"A{k}"} for k, action in enumerate(displayed)],
        "inbox": [{"sender": other, "broadcast": inbox[other]} for other in BLUE_AGENTS if other != agent_id],
    }
    assert user == json.dumps(body, sort_keys=True, separators=(",", ":"))


def test_texts_that_are_not_ascii_are_escaped_in_the_user_message() -> None:
    pack = PromptPack("test-1", "é", "é", "Gagné.")
    system, user = broadcast_prompt(pack, generate_state(0), "blue-0", 0)
    assert system == "é"
    assert user.isascii()
    assert "Gagn\\u00e9." in user


def test_an_inbox_lacking_a_teammate_is_refused() -> None:
    inbox = {"blue-1": EMPTY_BROADCAST, "blue-0": EMPTY_BROADCAST}
    with pytest.raises(ArenaError, match="inbox of blue-0: no broadcast from blue-2, blue-3"):
        action_prompt(PACK, generate_state(0), "blue-0", 0, inbox)


def test_the_agents_own_broadcast_is_not_shown_to_it() -> None:
    state = generate_state(3)
    inbox = _inbox(state, "blue-1")
    assert action_prompt(PACK, state, "blue-1", 0, {**inbox, "blue-1": EMPTY_BROADCAST}) == action_prompt(
        PACK, state, "blue-1", 0, inbox
    )


@pytest.mark.parametrize("agent_id", ["red-0", "blue-9"])
def test_prompts_are_for_blue_agents(agent_id: str) -> None:
    everyone = dict.fromkeys(BLUE_AGENTS, EMPTY_BROADCAST)
    with pytest.raises(ArenaError, match="BLUE agents"):
        broadcast_prompt(PACK, generate_state(0), agent_id, 0)
    with pytest.raises(ArenaError, match="BLUE agents"):
        action_prompt(PACK, generate_state(0), agent_id, 0, everyone)


def test_displayed_actions_are_read_back_from_either_message() -> None:
    for state in (generate_state(5), generate_mechanics_state(5_004_000, "TRANSFER")):
        for permutation in (0, 3):
            displayed = displayed_actions(state, "blue-0", permutation)
            for _, user in (
                broadcast_prompt(PACK, state, "blue-0", permutation),
                action_prompt(PACK, state, "blue-0", permutation, _inbox(state, "blue-0")),
            ):
                shown = displayed_from_user(user)
                assert [entry.pop("id") for entry in shown] == [f"A{k}" for k in range(len(displayed))]
                assert [Action(entry["type"], entry.get("target"), entry.get("amount")) for entry in shown] == list(
                    displayed
                )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "{}",
        '{"legal_actions":[]}',
        '{"legal_actions":["A0"]}',
        '{"legal_actions":[{"type":"WAIT"}]}',
        '{"legal_actions":[{"id":"A1","type":"WAIT"}]}',
    ],
)
def test_a_text_that_is_no_user_message_is_refused(text: str) -> None:
    with pytest.raises(ArenaError, match="user message"):
        displayed_from_user(text)


# --- the pack that rows carry -----------------------------------------------------------------------------------------


def _rows(pack: PromptPack = PACK) -> list[dict[str, Any]]:
    rows = []
    for seed in range(3):
        state = generate_state(seed)
        for phase, (system, user) in (
            ("BROADCAST", broadcast_prompt(pack, state, "blue-0", seed)),
            ("ACT", action_prompt(pack, state, "blue-0", seed, _inbox(state, "blue-0"))),
        ):
            messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
            metadata = {"phase": phase, "prompt_version": pack.version}
            rows.append({"messages": messages, "metadata": metadata, "id": f"{phase}-{seed}"})
    return rows


def test_the_pack_is_read_from_rows_to_the_letter() -> None:
    for pack in (PACK, PromptPack.load(OWN_PACK), PromptPack("v", " é\n", "\tb", "ü \u2028.")):
        assert pack_from_rows(_rows(pack)) == pack


def _edit_system(row: dict[str, Any]) -> None:
    row["messages"][0]["content"] += " Now."


def _edit_objective(row: dict[str, Any]) -> None:
    row["messages"][1]["content"] = row["messages"][1]["content"].replace("Win.", "Lose.")


def _edit_version(row: dict[str, Any]) -> None:
    row["metadata"]["prompt_version"] = "test-2"


@pytest.mark.parametrize(
    ("edit", "changed", "against", "name"),
    [
        (_edit_system, "ACT-2", "ACT-0", "ACT system text"),
        (_edit_system, "BROADCAST-1", "BROADCAST-0", "BROADCAST system text"),
        (_edit_objective, "ACT-1", "BROADCAST-0", "team_objective"),
        (_edit_objective, "BROADCAST-2", "BROADCAST-0", "team_objective"),
        (_edit_version, "ACT-0", "BROADCAST-0", "prompt_version"),
    ],
)
def test_rows_that_disagree_are_both_named(
    edit: Callable[[dict[str, Any]], None], changed: str, against: str, name: str
) -> None:
    rows = _rows()
    edit(next(row for row in rows if row["id"] == changed))
    with pytest.raises(DatasetError, match=rf"\(id {changed}\) and row \d \(id {against}\) differ in their {name}"):
        pack_from_rows(rows)


@pytest.mark.parametrize("phase", ["BROADCAST", "ACT"])
def test_rows_of_one_phase_make_no_pack(phase: str) -> None:
    with pytest.raises(DatasetError, match=f"no {phase} row"):
        pack_from_rows(row for row in _rows() if row["metadata"]["phase"] != phase)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda row: row["messages"].clear(), "not a row with messages"),
        (lambda row: row.pop("metadata"), "not a row with messages"),
        (lambda row: row["messages"][1].update(content="not json"), "not a row with messages"),
        (lambda row: row["messages"][1].update(content="{}"), "not a row with messages"),
        (lambda row: row["messages"][1].update(content=None), "not a row with messages"),
        (lambda row: row["messages"][0].update(content=5), "BROADCAST system text is of type int"),
        (lambda row: row["metadata"].update(phase="VOTE"), "phase 'VOTE'; allowed are BROADCAST, ACT"),
        (lambda row: row["metadata"].update(prompt_version=""), "prompt_version is empty"),
    ],
)
def test_a_row_of_another_shape_is_named(edit: Callable[[dict[str, Any]], None], message: str) -> None:
    rows = _rows()
    edit(rows[2])
    with pytest.raises(DatasetError, match=rf"row 2 \(id BROADCAST-1\).*{message}"):
        pack_from_rows(rows)
