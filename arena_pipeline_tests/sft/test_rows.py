"""Rows: ids and content hash against the golden vectors, split rule, metadata kinds, requests."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena_pipeline.arena.generation import generate_mechanics_state, generate_state
from arena_pipeline.arena.manifests import EVALUATION_SEEDS, MANIFESTS
from arena_pipeline.arena.state import state_digest
from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.metadata import TYPES_BY_KIND, without_defaults
from arena_pipeline.sft.rows import (
    Row,
    action_kind,
    content_sha256,
    merged_content_sha256,
    row_id,
    row_requests,
    row_state,
)
from arena_pipeline.sft.splits import refuse_evaluation_seeds, seed_bucket, split_for_seed
from arena_pipeline_tests.sft.corpus import FILLED, golden

HASHING = golden("hashing.json")
FACTS = golden("dataset_facts.json")


@pytest.mark.parametrize("row", HASHING["rows"], ids=lambda row: row["id"][:8])
def test_golden_ids(row: dict) -> None:
    assert row_id(row["messages"], row["metadata"]) == row["id"]
    assert Row.of(*(message["content"] for message in row["messages"]), row["metadata"]).id == row["id"]


def test_golden_content_hashes() -> None:
    ids = [row["id"] for row in HASHING["rows"]]
    assert content_sha256(ids) == HASHING["content_sha256"]
    assert content_sha256(reversed(ids)) == HASHING["content_sha256"]
    assert content_sha256(ids[:2]) == HASHING["content_sha256_first_two"]
    assert content_sha256([]) == HASHING["content_sha256_empty"]


@given(st.lists(st.lists(st.integers(0, 10**6).map(lambda number: sha256(b"%d" % number).hexdigest()))))
def test_content_hash_of_shards_is_that_of_their_union(shards: list[list[str]]) -> None:
    union = [identifier for shard in shards for identifier in shard]
    assert merged_content_sha256(sorted(shard) for shard in shards) == content_sha256(union)
    assert content_sha256(union) == sha256("".join(sorted(union)).encode()).hexdigest()


def test_golden_splits() -> None:
    assert [split_for_seed(seed) for seed, _ in FACTS["split_for_seed"]] == [
        split for _, split in FACTS["split_for_seed"]
    ]


@given(st.integers(-(10**30), 10**30))
def test_split_follows_the_bucket(seed: int) -> None:
    bucket = int(sha256(f"arena-gen-v1:{seed}".encode()).hexdigest()[:8], 16) % 100
    assert seed_bucket(seed) == bucket
    if seed not in EVALUATION_SEEDS:
        assert split_for_seed(seed) == ("train" if bucket < 90 else "validation" if bucket < 95 else "test")


@pytest.mark.parametrize("manifest", sorted(MANIFESTS))
def test_no_evaluation_seed_has_a_split(manifest: str) -> None:
    for case in MANIFESTS[manifest]:
        named = "arena-dev-600" if manifest == "arena-dev-150" else manifest  # a part of it
        with pytest.raises(DatasetError, match=f"seed {case.seed}: reserved by evaluation manifest {named};"):
            split_for_seed(case.seed)


def test_evaluation_seeds_are_found_in_ranges_of_any_length() -> None:
    refuse_evaluation_seeds(range(1_000_003), range(1_000_004, 1_000_140))
    with pytest.raises(DatasetError, match="seed 1000003"):
        refuse_evaluation_seeds(range(5), range(10**18))


def test_lines_are_canonical(small: Dataset) -> None:
    for row in small.rows("validation"):
        body = json.loads(row.line())
        assert row.line() == json.dumps(body, sort_keys=True) + "\n"
        assert body["id"] == row_id(body["messages"], body["metadata"])
        assert row.line().isascii()


@given(st.data())
def test_an_id_depends_on_every_part(data: st.DataObject) -> None:
    texts = [data.draw(st.text(), label=role) for role in ("system", "user", "assistant")]
    metadata = {"seed": data.draw(st.integers()), "reward": data.draw(st.floats(allow_nan=False, allow_infinity=False))}
    row = Row.of(*texts, metadata)
    position = data.draw(st.integers(0, 2))
    changed = list(texts)
    changed[position] += data.draw(st.text(min_size=1))
    assert Row.of(*changed, metadata).id != row.id
    assert Row.of(*texts, {**metadata, "seed": metadata["seed"] + 1}).id != row.id
    assert Row.of(*texts, {**metadata, "more": ""}).id != row.id


def test_states_come_back_from_metadata(small: Dataset) -> None:
    by_skill = {row.skill: row for row in (*small.rows("train"), *small.rows("test"))}
    assert set(by_skill) == {"", "WAIT", "SCAN", "TRANSFER", "SILENCE"}
    for skill, row in by_skill.items():
        expected = generate_mechanics_state(row.seed, skill) if skill else generate_state(row.seed)
        assert state_digest(row_state(row.metadata)) == state_digest(expected)


def test_requests_carry_the_rows_prompts(small: Dataset) -> None:
    rows = small.rows("validation")
    requests = row_requests(rows)
    assert [request.key for request in requests] == [row.id for row in rows]
    for request, row in zip(requests, rows, strict=True):
        assert request.prompt.messages == [dict(message) for message in row.messages[:2]]
        assert (request.phase, request.agent_id, request.condition) == (row.phase, row.agent_id, "validation")
        assert request.permutation == row.seed + int(row.agent_id[-1])
        assert row.label not in request.prompt.user
        assert state_digest(row_state(request.case)) == state_digest(row_state(row.metadata))


def test_action_kind_names_a_row_whose_label_is_not_displayed(small: Dataset) -> None:
    row = next(row for row in small.rows("train") if row.phase == "ACT")
    assert action_kind(row) in ("CAPTURE", "FORTIFY", "PROBE", "RECOVER", "SCAN", "TRANSFER", "WAIT")
    for label in ('{"action_id":"A99"}', "{}", "[]", "no JSON"):
        broken = replace(row, messages=(*row.messages[:2], {"role": "assistant", "content": label}))
        with pytest.raises(DatasetError, match=row.id):
            action_kind(broken)


def _examples() -> list[dict]:
    """One metadata of each kind, with values that equal the defaults wherever the kind allows them."""
    values: dict[type, object] = {str: "", int: 0, float: 0.0}
    examples = []
    for (phase, targeted), types in TYPES_BY_KIND.items():
        metadata = {key: values[kind] for key, kind in types.items()}
        metadata |= {"phase": phase, "split": "train", "agent_id": "blue-0"}
        if targeted:
            metadata["targeted_skill"] = "SCAN" if phase == "ACT" else "SILENCE"
        examples.append(metadata)
    return examples


@pytest.mark.parametrize("metadata", _examples(), ids=lambda metadata: f"{metadata['phase']}-{len(metadata)}")
def test_defaults_are_dropped_where_the_kind_has_no_such_key_and_kept_where_it_has(metadata: dict) -> None:
    """Seed 0 and a reward of exactly 0.0 are values, not fill-ins."""
    assert without_defaults({**FILLED, **metadata}) == metadata
    assert without_defaults(metadata) == metadata


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy_reward": 0.5}, "policy_reward.*0.5.*BROADCAST row"),
        ({"policy_reward": 0}, "policy_reward.*allowed is a float"),
        ({"solver_optimal_count": False}, "solver_optimal_count.*False"),
        ({"generator_mode": None}, "generator_mode.*None"),
        ({"seed": 1.0}, "seed.*1.0.*int"),
        ({"seed": True}, "seed.*True"),
        ({"colour": ""}, "colour.*unknown"),
        ({"phase": "TALK"}, "phase.*TALK.*BROADCAST, ACT"),
        ({"split": "dev"}, "split.*dev.*train, validation, test"),
        ({"agent_id": "red-0"}, "agent_id.*red-0"),
        ({"targeted_skill": "SCAN"}, "targeted_skill.*SCAN.*SILENCE"),
        ({"solver_reward": float("inf")}, "solver_reward.*inf"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_metadata_that_no_row_has_is_refused(change: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        without_defaults({**FILLED, **_examples()[0], **change})


@pytest.mark.parametrize("metadata", _examples(), ids=lambda metadata: f"{metadata['phase']}-{len(metadata)}")
def test_a_missing_key_is_named(metadata: dict) -> None:
    for key in metadata.keys() - {"targeted_skill"}:
        with pytest.raises(DatasetError, match=f"{key!r}"):
            without_defaults({name: value for name, value in metadata.items() if name != key})
