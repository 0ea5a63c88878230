"""The whole dataset against the golden vectors: everything but the wording of its prompts."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.sft.labels import plain_rows
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.mixture import overfit_rows, stratum
from arena_pipeline.sft.rows import Row, action_kind, generation_key
from arena_pipeline_tests.sft.corpus import golden

FACTS = golden("dataset_facts.json")
SPLITS = ("train", "validation", "test")


def everything(dataset: Dataset) -> list[Row]:
    rows = [row for split in SPLITS for row in dataset.rows(split)]
    return sorted(rows, key=lambda row: generation_key(row.metadata))


def same_bits(found: Any, expected: Any) -> bool:
    """Equal, and written alike: a float that differs in its last bit has another shortest form."""
    return repr(found) == repr(expected)


def test_manifest(full: Dataset) -> None:
    assert full.manifest is not None
    of_the_wording = {"content_sha256", "prompt_version", "generation_workers"}
    found = full.manifest.to_dict()
    assert found.keys() == FACTS["manifest"].keys()
    for key in found.keys() - of_the_wording:
        assert found[key] == FACTS["manifest"][key], key
    assert found["prompt_version"] == "arena-tests"
    assert found["generation_workers"] == 1


def test_row_counts(full: Dataset) -> None:
    assert {split: len(full.rows(split)) for split in SPLITS} == FACTS["file_rows"]
    strata = Counter(map(stratum, full.rows("train")))
    kinds = Counter(action_kind(row) for row in full.rows("train") if row.phase == "ACT")
    assert {**strata, "action_kinds": dict(kinds)} == FACTS["train_row_counts"]


def test_order_of_train(full: Dataset) -> None:
    order = [[row.seed, row.agent_id, row.phase] for row in full.rows("train")]
    assert sha256_json(order) == FACTS["train_row_order_sha256"]


def test_overfit_set(full: Dataset) -> None:
    rows = overfit_rows(full.rows("train"))
    assert [[row.seed, row.agent_id, row.phase] for row in rows] == FACTS["overfit_256"]["rows"]
    rare = Counter(action_kind(row) for row in rows if stratum(row) == "action_rare")
    assert dict(rare) == FACTS["overfit_256"]["rare_kinds"]


def test_every_act_row_to_the_last_bit(full: Dataset) -> None:
    found = [
        [
            row.seed,
            row.agent_id,
            row.metadata["solver_reward"],
            row.metadata.get("policy_reward"),
            row.metadata["solver_joint_actions_explored"],
            row.metadata["solver_optimal_count"],
            row.label,
        ]
        for row in everything(full)
        if row.phase == "ACT"
    ]
    expected = golden("act_rows.json")["rows"]
    assert len(found) == len(expected) == 900
    for mine, theirs in zip(sorted(found), sorted(expected), strict=True):
        assert same_bits(mine, theirs)


@pytest.mark.parametrize("seed", range(64))
def test_plain_seed(seed: int, pack: PromptPack) -> None:
    expected = FACTS["seeds_0_63"][str(seed)]
    rejections: Counter[str] = Counter()
    rows = list(plain_rows(pack, seed, rejections))
    broadcasts, acts = rows[:4], rows[4:]
    assert dict(rejections) == expected["rejections"]
    assert {row.split for row in rows} == {expected["split"]}
    found = [
        [
            row.agent_id,
            action_kind(row),
            row.metadata["solver_reward"],
            row.metadata["policy_reward"],
            row.metadata["solver_joint_actions_explored"],
            row.metadata["solver_optimal_count"],
        ]
        for row in acts
    ]
    assert same_bits(found, expected["act"])
    intents = {row.agent_id: json.loads(row.label)["intent"] for row in broadcasts}
    for agent_id, intent in expected["local_intents"].items():
        assert intents[agent_id] == (None if intent == {"type": "WAIT"} else intent)
    if seed < 32:
        labels = {row.agent_id: json.loads(row.label) for row in broadcasts}
        assert labels == FACTS["oracle_broadcast_seeds_0_31"][str(seed)]


def test_targeted_rows_in_acceptance_order(full: Dataset) -> None:
    for skill, expected in FACTS["targeted"].items():
        rows = [row for row in everything(full) if row.skill == skill]
        if skill == "SILENCE":
            assert [[row.seed, row.split] for row in rows] == expected
            continue
        found = [
            [
                row.seed,
                row.split,
                row.metadata["solver_reward"],
                row.metadata["solver_joint_actions_explored"],
                row.metadata["solver_optimal_count"],
            ]
            for row in rows
        ]
        assert same_bits(found, expected)


def test_messages(full: Dataset, pack: PromptPack) -> None:
    """The form of the texts, by the specification's words and not by the code that made them."""
    for row in everything(full):
        body = json.loads(row.user)
        assert row.user == json.dumps(body, sort_keys=True, separators=(",", ":"))
        assert body["team_objective"] == pack.team_objective
        assert row.system == (pack.broadcast_system if row.phase == "BROADCAST" else pack.action_system)
        assert [action["id"] for action in body["legal_actions"]] == [
            f"A{k}" for k in range(len(body["legal_actions"]))
        ]
        wanted = {"phase", "team_objective", "observation", "legal_actions"} | (
            {"inbox"} if row.phase == "ACT" else set()
        )
        assert set(body) == wanted
        if row.phase == "ACT":
            others = [f"blue-{k}" for k in range(4) if f"blue-{k}" != row.agent_id]
            assert [entry["sender"] for entry in body["inbox"]] == ([] if row.skill else others)


def test_prompts_are_read_out_of_the_rows(full: Dataset, pack: PromptPack) -> None:
    assert full.prompts == pack
