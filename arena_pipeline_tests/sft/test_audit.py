"""The audit: the golden report, and for each rule a dataset in which it is broken and the row or file that is named."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from arena_pipeline.arena.generation import generate_state
from arena_pipeline.arena.manifests import FROZEN_CASES
from arena_pipeline.arena.prompts import PromptPack, broadcast_prompt
from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.sft import labels
from arena_pipeline.sft.audit import AuditReport, audit_dataset, longest_ascending
from arena_pipeline.sft.audit_files import check_manifest, check_recorded, read_manifest
from arena_pipeline.sft.audit_labels import Facts
from arena_pipeline.sft.audit_rows import Texts, check_row, parse_label, user_object
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.reading import DataFile, find_layout, read_line
from arena_pipeline.sft.rows import content_sha256
from arena_pipeline_tests.sft.corpus import (
    SPLITS,
    Body,
    canonical,
    change_manifest,
    copy,
    golden,
    publish,
    read_bodies,
    rehash,
    write_bodies,
)

Bodies = dict[str, list[Body]]


def broken(report: AuditReport) -> set[tuple[str, str]]:
    """(place without what the row says it is, rule) of every failure."""
    return {(failure.row.split(" (")[0], failure.rule) for failure in report.failures}


def test_golden_report(full_directory: Path) -> None:
    report = audit_dataset(full_directory, require_split_action_coverage=True)
    found = report.to_dict()
    expected = golden("dataset_facts.json")["audit"]
    assert {key: found[key] for key in expected} == expected
    assert found["rejections"] == golden("dataset_facts.json")["manifest"]["rejections"]
    json.dumps(found)


def test_small_dataset_is_valid(small: Dataset, small_directory: Path) -> None:
    report = audit_dataset(small_directory, recorded_hashes=small.file_hashes)
    assert report.failures == ()
    assert report.content_sha256 == small.content_sha256
    assert report.file_hashes == small.file_hashes


def test_progress_reaches_its_total(small: Dataset, small_directory: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    audit_dataset(small_directory, progress=lambda *step: steps.append(step))
    total = sum(len(small.rows(split)) for split in SPLITS)
    assert steps[0] == ("dataset audit", 0, total)
    assert steps[-1] == ("dataset audit", total, total)


# --- One row changed, its id made right again: the rule that must still find it.


def act(body: Body) -> bool:
    return body["metadata"]["phase"] == "ACT"


def plain(body: Body) -> bool:
    return not body["metadata"].get("targeted_skill")


def skill(name: str) -> Callable[[Body], bool]:
    return lambda body: body["metadata"].get("targeted_skill") == name


def plain_act(body: Body) -> bool:
    return act(body) and plain(body)


def plain_broadcast(body: Body) -> bool:
    return plain(body) and not act(body)


def with_facts(body: Body) -> bool:
    return plain_broadcast(body) and bool(json.loads(body["messages"][2]["content"])["facts"])


def set_metadata(**values: Any) -> Callable[[Body], None]:
    return lambda body: body["metadata"].update(values)


def edit_text(position: int, old: str, new: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        text = body["messages"][position]["content"]
        assert old in text
        body["messages"][position]["content"] = text.replace(old, new, 1)

    return change


def edit_json(position: int, edit: Callable[[Any], None]) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        content = json.loads(body["messages"][position]["content"])
        edit(content)
        body["messages"][position]["content"] = canonical_json(content)

    return change


def other_action(body: Body) -> None:
    """Label another of the displayed actions than the right one, one that is not optimal either."""
    shown = json.loads(body["messages"][1]["content"])["legal_actions"]
    right = json.loads(body["messages"][2]["content"])["action_id"]
    wrong = next(action["id"] for action in shown if action["id"] != right)
    body["messages"][2]["content"] = canonical_json({"action_id": wrong})


def swap_actions(user: Any) -> None:
    """Show two actions in each other's place, the ids still counting up."""
    first, second = user["legal_actions"][:2]
    first["id"], second["id"] = second["id"], first["id"]
    user["legal_actions"][:2] = [second, first]


def last_bit(key: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        body["metadata"][key] = math.nextafter(body["metadata"][key], math.inf)

    return change


def add_sender(body: Body) -> None:
    own = {"sender": body["metadata"]["agent_id"], "broadcast": {"facts": [], "intent": None, "request_resource": 0}}
    edit_json(1, lambda user: user["inbox"].append(own))(body)


ROW_VIOLATIONS: dict[str, tuple[Callable[[Body], bool], Callable[[Body], None], str]] = {
    "arena version": (plain_broadcast, set_metadata(arena_version="arena-core-v2"), "version"),
    "dataset version": (plain_act, set_metadata(dataset_version="arena-sft-v1"), "version"),
    "generator version": (skill("WAIT"), set_metadata(generator_version="arena-gen-v0"), "version"),
    "prompt version": (skill("SILENCE"), set_metadata(prompt_version="another"), "version"),
    "system text of a broadcast": (plain_broadcast, edit_text(0, "drei", "vier"), "prompt_text"),
    "system text of an action": (plain_act, edit_text(0, "genau", ""), "prompt_text"),
    "objective": (plain_act, edit_text(1, "Hold", "Leave"), "user_json"),
    "another state's observation": (
        plain_broadcast,
        edit_json(1, lambda u: u["observation"].update(turn=1)),
        "user_json",
    ),
    "a hidden node shown": (
        plain_broadcast,
        edit_json(
            1, lambda u: u["observation"]["known_nodes"].append(dict(u["observation"]["known_nodes"][0], node="V99"))
        ),
        "user_json",
    ),
    "another message in the inbox": (
        plain_act,
        edit_json(1, lambda u: u["inbox"][0]["broadcast"].update(request_resource=1)),
        "user_json",
    ),
    "inbox in another order": (plain_act, edit_json(1, lambda u: u["inbox"].reverse()), "user_json"),
    "messages in a targeted inbox": (
        skill("SCAN"),
        edit_json(1, lambda u: u["inbox"].append({"sender": "blue-1", "broadcast": {}})),
        "user_json",
    ),
    "spaces in the user message": (plain_broadcast, edit_text(1, '"phase":', '"phase": '), "user_json"),
    "keys in another order": (
        plain_broadcast,
        lambda body: body["messages"][1].update(
            content=json.dumps(
                dict(reversed(json.loads(body["messages"][1]["content"]).items())), separators=(",", ":")
            )
        ),
        "user_json",
    ),
    "no JSON in the user message": (plain_broadcast, edit_text(1, "{", ""), "user_json"),
    "display order": (plain_act, edit_json(1, swap_actions), "display_order"),
    "display ids": (plain_broadcast, edit_json(1, lambda u: u["legal_actions"][0].update(id="A1")), "display_order"),
    "an action left out": (plain_broadcast, edit_json(1, lambda u: u["legal_actions"].pop()), "display_order"),
    "the label in the user message": (
        plain_act,
        lambda body: edit_json(1, lambda u: u.update(hint=json.loads(body["messages"][2]["content"])))(body),
        "answer_leak",
    ),
    "the reward in the user message": (plain_act, edit_json(1, lambda u: u.update(solver_reward=1.0)), "answer_leak"),
    "the skill in the user message": (
        skill("WAIT"),
        edit_json(1, lambda u: u.update(targeted_skill="WAIT")),
        "answer_leak",
    ),
    "the agent's own message in its inbox": (plain_act, add_sender, "answer_leak"),
    "a label that is no JSON": (plain_act, edit_text(2, "{", "Sure: {"), "label_form"),
    "an action id out of range": (
        skill("TRANSFER"),
        lambda b: b["messages"][2].update(content='{"action_id":"A99"}'),
        "label_form",
    ),
    "a fact that was not seen": (
        with_facts,
        edit_json(2, lambda label: label["facts"][0].update(value=9)),
        "label_form",
    ),
    "an illegal intent": (
        plain_broadcast,
        edit_json(2, lambda label: label.update(intent={"type": "SCAN", "target": "V00"})),
        "label_form",
    ),
    "a fact left out": (with_facts, edit_json(2, lambda label: label["facts"].pop()), "label"),
    "another spelling of the label": (plain_broadcast, edit_text(2, ":", ": "), "label"),
    "no intent": (
        lambda body: plain_broadcast(body) and '"intent":null' not in body["messages"][2]["content"],
        edit_json(2, lambda label: label.update(intent=None)),
        "label",
    ),
    "a word in a silence row": (
        skill("SILENCE"),
        edit_json(2, lambda label: label.update(intent={"type": "WAIT"})),
        "label",
    ),
    "an action that is not optimal": (plain_act, other_action, "solver_optimal"),
    "an action that is not the policy's": (plain_act, other_action, "prompt_identifiable"),
    "a targeted action of another kind": (skill("SCAN"), other_action, "targeted_skill"),
    "the last bit of the solver's reward": (plain_act, last_bit("solver_reward"), "metadata_value"),
    "the last bit of the policy's reward": (plain_act, last_bit("policy_reward"), "metadata_value"),
    "joint actions explored": (skill("SCAN"), set_metadata(solver_joint_actions_explored=1), "metadata_value"),
    "optimal count": (skill("WAIT"), set_metadata(solver_optimal_count=77), "metadata_value"),
    "label source": (plain_broadcast, set_metadata(label_source="a guess"), "metadata_value"),
    "generator mode": (skill("SILENCE"), set_metadata(generator_mode="by hand"), "metadata_value"),
    "split": (
        lambda body: plain_broadcast(body) and body["metadata"]["split"] == "train",
        set_metadata(split="test"),
        "split",
    ),
    "a row in the file of another split": (
        lambda body: plain_broadcast(body) and body["metadata"]["split"] == "train",
        set_metadata(split="validation"),
        "file",
    ),
    "an unknown metadata key": (plain_broadcast, set_metadata(note="hello"), "metadata"),
    "a metadata value of another type": (plain_act, set_metadata(solver_optimal_count="2"), "metadata"),
    "a frozen seed": (plain_broadcast, set_metadata(seed=FROZEN_CASES[0].seed), "frozen_seed"),
    "four messages": (plain_act, lambda body: body["messages"].append({"role": "user", "content": ""}), "chat_shape"),
    "no system message": (plain_act, lambda body: body["messages"].pop(0), "chat_shape"),
    "another role": (plain_act, lambda body: body["messages"][2].update(role="tool"), "chat_shape"),
    "a text that is none": (plain_act, lambda body: body["messages"][2].update(content=None), "chat_shape"),
    "more than a row": (plain_act, lambda body: body.update(weight=2), "chat_shape"),
}
WITHOUT_ID = {
    "an id of other content": (plain_act, set_metadata(solver_optimal_count=77), "id"),
    "an id of nothing": (plain_broadcast, lambda body: body.update(id="0" * 64), "id"),
}


@pytest.fixture(scope="module")
def violated(full_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditReport, dict[str, str]]:
    """One audit of the whole dataset with every row violation planted, each in a row of its own."""
    directory = copy(full_directory, tmp_path_factory.mktemp("violated") / "dataset")
    bodies = read_bodies(directory / "train.jsonl")
    places: dict[str, str] = {}
    taken: set[int] = set()
    for name, (wanted, change, _) in {**ROW_VIOLATIONS, **WITHOUT_ID}.items():
        number = next(number for number, body in enumerate(bodies) if number not in taken and wanted(body))
        taken.add(number)
        change(bodies[number])
        if name not in WITHOUT_ID:
            rehash(bodies[number])
        places[name] = f"train.jsonl:{number + 1}"
    write_bodies(directory / "train.jsonl", bodies)
    return audit_dataset(directory), places


@pytest.mark.parametrize("name", [*ROW_VIOLATIONS, *WITHOUT_ID])
def test_row_violation_is_found(violated: tuple[AuditReport, dict[str, str]], name: str) -> None:
    report, places = violated
    rule = {**ROW_VIOLATIONS, **WITHOUT_ID}[name][2]
    assert (places[name], rule) in broken(report)


def test_rows_without_violation_are_not_named(violated: tuple[AuditReport, dict[str, str]]) -> None:
    report, places = violated
    assert {place for place, _ in broken(report) if place.startswith("train.jsonl")} == set(places.values())
    assert not any(place.startswith(("validation.jsonl", "test.jsonl")) for place, _ in broken(report))
    assert not report.valid
    assert all(failure.detail and "\n" not in str(failure) for failure in report.failures)


def test_failures_say_what_the_row_is(violated: tuple[AuditReport, dict[str, str]]) -> None:
    report, places = violated
    place = places["an action that is not optimal"]
    named = {failure.row for failure in report.failures if failure.row.split(" (")[0] == place}
    assert len(named) == 1
    assert "ACT" in named.pop()


# --- Labels that the seed does not give: whole rows made from seeds and agents that were dropped.


def dropped_act_rows(pack: PromptPack, reason: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Body]:
    """ACT rows of the small dataset's seeds that the build drops for one reason, made all the same."""
    real = labels._rejection
    monkeypatch.setattr(labels, "_rejection", lambda *of: None if real(*of) == reason else "not wanted")
    for seed in range(12):
        for row in labels.plain_rows(pack, seed, Counter()):
            if row.phase == "ACT":
                yield row.to_dict()


@pytest.mark.parametrize(
    ("reason", "rule"),
    [
        ("ambiguous_optimal_action", "unique_optimum"),
        ("not_prompt_identifiable", "solver_optimal"),
        ("conflicting_declared_intent", "conflicting_intent"),
    ],
)
def test_an_act_row_that_must_be_dropped(
    small_directory: Path, tmp_path: Path, pack: PromptPack, monkeypatch: pytest.MonkeyPatch, reason: str, rule: str
) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    body = next(body for body in dropped_act_rows(pack, reason, monkeypatch) if body["metadata"]["split"] == "train")
    bodies = [*read_bodies(directory / "train.jsonl"), body]
    write_bodies(directory / "train.jsonl", bodies)
    place = f"train.jsonl:{len(bodies)}"
    assert {(place, rule), (place, "unexpected_row"), (place, "row_order")} <= broken(audit_dataset(directory))


def test_a_row_of_a_frozen_seed(small_directory: Path, tmp_path: Path, pack: PromptPack) -> None:
    """Right in everything but for the seed it comes from."""
    directory = copy(small_directory, tmp_path / "copy")
    seed = FROZEN_CASES[3].seed
    bodies = read_bodies(directory / "train.jsonl")
    body = json.loads(canonical(bodies[0]))
    system, user = broadcast_prompt(pack, generate_state(seed), "blue-0", seed)
    body["messages"][0]["content"], body["messages"][1]["content"] = system, user
    body["metadata"]["seed"] = seed
    write_bodies(directory / "train.jsonl", [*bodies, rehash(body)])
    assert (f"train.jsonl:{len(bodies) + 1}", "frozen_seed") in broken(audit_dataset(directory))


# --- Rules about files and the whole.


def changed(directory: Path, target: Path, change: Callable[[Bodies], None]) -> Path:
    """A copy with its rows changed, ids and the manifest's counts and content hash made right again."""
    copy(directory, target)
    bodies = {split: read_bodies(target / f"{split}.jsonl") for split in SPLITS}
    change(bodies)
    for split in SPLITS:
        write_bodies(target / f"{split}.jsonl", [rehash(body) for body in bodies[split]])
    everything = [body for split in SPLITS for body in bodies[split]]
    phases = [body["metadata"]["phase"] for body in everything]
    change_manifest(
        target,
        content_sha256=content_sha256(body["id"] for body in everything),
        examples_by_split={split: len(bodies[split]) for split in SPLITS},
        examples_by_phase={phase: phases.count(phase) for phase in ("ACT", "BROADCAST")},
        num_examples=len(everything),
    )
    return target


def test_changing_nothing_breaks_nothing(small_directory: Path, tmp_path: Path) -> None:
    assert audit_dataset(changed(small_directory, tmp_path / "copy", lambda bodies: None)).valid


def test_missing_rows(small_directory: Path, tmp_path: Path) -> None:
    gone: list[Body] = []

    def drop(bodies: Bodies) -> None:
        for wanted in (plain_act, plain_broadcast, skill("SCAN"), skill("SILENCE")):
            body = next(body for body in bodies["train"] if wanted(body))
            bodies["train"].remove(body)
            gone.append(body)

    report = audit_dataset(changed(small_directory, tmp_path / "copy", drop))
    details = [failure.detail for failure in report.failures if failure.rule == "missing_row"]
    assert len(details) == 4
    for body in gone:
        assert any(f"seed {body['metadata']['seed']}, {body['metadata']['agent_id']}" in detail for detail in details)


def test_a_missing_seed(small_directory: Path, tmp_path: Path) -> None:
    def drop(bodies: Bodies) -> None:
        bodies["train"] = [body for body in bodies["train"] if body["metadata"]["seed"] != 5]

    directory = changed(small_directory, tmp_path / "copy", drop)
    assert ("dataset", "missing_row") in broken(audit_dataset(directory))
    change_manifest(directory, num_seeds=11)
    assert ("dataset", "missing_row") in broken(audit_dataset(directory))
    (directory / "manifest.json").unlink()
    published = publish(directory, tmp_path / "published", manifest=False)
    assert ("dataset", "missing_row") in broken(audit_dataset(published))


def test_duplicates(small_directory: Path, tmp_path: Path) -> None:
    def repeat(bodies: Bodies) -> None:
        bodies["test"].append(bodies["test"][-1])
        other = json.loads(canonical(bodies["validation"][-1]))
        other["messages"][0]["content"] += " "
        bodies["validation"].append(other)

    directory = changed(small_directory, tmp_path / "copy", repeat)
    found = broken(audit_dataset(directory))
    count = {split: len(read_bodies(directory / f"{split}.jsonl")) for split in SPLITS}
    assert (f"test.jsonl:{count['test']}", "duplicate_id") in found
    assert (f"validation.jsonl:{count['validation']}", "duplicate_row") in found


def test_order(small_directory: Path, tmp_path: Path) -> None:
    def swap(bodies: Bodies) -> None:
        rows = bodies["train"]
        rows[10], rows[11] = rows[11], rows[10]

    report = audit_dataset(changed(small_directory, tmp_path / "copy", swap))
    assert len(report.failures) == 1
    assert broken(report) <= {("train.jsonl:11", "row_order"), ("train.jsonl:12", "row_order")}


@given(st.lists(st.integers(0, 6), max_size=9))
def test_rows_out_of_order_are_as_few_as_can_be(keys: list[int]) -> None:
    kept = longest_ascending(keys)
    left = [keys[position] for position in sorted(kept)]
    assert left == sorted(left)
    subsets = (subset for size in range(len(keys) + 1) for subset in combinations(keys, size))
    assert len(kept) == max(len(subset) for subset in subsets if list(subset) == sorted(subset))


def test_no_silence(small_directory: Path, tmp_path: Path) -> None:
    def drop(bodies: Bodies) -> None:
        for split in SPLITS:
            bodies[split] = [body for body in bodies[split] if not skill("SILENCE")(body)]

    assert ("dataset", "silence") in broken(audit_dataset(changed(small_directory, tmp_path / "copy", drop)))


def test_action_kinds(small_directory: Path, tmp_path: Path) -> None:
    def drop(bodies: Bodies) -> None:
        bodies["validation"] = [body for body in bodies["validation"] if not skill("SCAN")(body)]

    directory = changed(small_directory, tmp_path / "copy", drop)
    assert "split_action_coverage" not in {rule for _, rule in broken(audit_dataset(directory))}
    required = audit_dataset(directory, require_split_action_coverage=True)
    missing = [failure for failure in required.failures if failure.rule == "split_action_coverage"]
    assert any("validation" in failure.row and "SCAN" in failure.detail for failure in missing)
    assert not any("train" in failure.row and "SCAN" in failure.detail for failure in missing)

    def drop_all(bodies: Bodies) -> None:
        for split in SPLITS:
            bodies[split] = [body for body in bodies[split] if not skill("SCAN")(body)]

    report = audit_dataset(changed(small_directory, tmp_path / "other", drop_all))
    assert any(failure.rule == "action_kinds" and "SCAN" in failure.detail for failure in report.failures)


MANIFEST_CHANGES = {
    "arena_version": "arena-core-v2",
    "content_sha256": "0" * 64,
    "dataset_version": "arena-sft-v1",
    "examples_by_phase": {"ACT": 1, "BROADCAST": 1},
    "examples_by_split": {"train": 1},
    "generation_workers": 0,
    "generator_version": "arena-gen-v2",
    "num_examples": 5508,
    "num_seeds": 13,
    "prompt_version": "another",
    "rejections": {"ambiguous_optimal_action": 1},
    "start_seed": 1,
    "targeted_mechanics_per_kind": 31,
    "targeted_silence_examples": 511,
}


def test_every_manifest_value(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    change_manifest(directory, **MANIFEST_CHANGES)
    details = [failure.detail for failure in audit_dataset(directory).failures if failure.rule == "manifest"]
    assert len(details) == len(MANIFEST_CHANGES)
    for key in MANIFEST_CHANGES:
        assert any(f"key '{key}' states" in detail for detail in details), key


def test_a_manifest_of_absurd_size_ends(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    change_manifest(directory, num_seeds=10**12)
    assert ("manifest.json", "manifest") in broken(audit_dataset(directory))


def test_manifest_form(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "manifest.json"
    body = json.loads(path.read_text(encoding="utf-8"))
    for text in (json.dumps(body, sort_keys=True), json.dumps(body, indent=2, sort_keys=True), "{}", "\udcff"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert ("manifest.json", "manifest_form") in broken(audit_dataset(directory))


def test_recorded_hashes(small: Dataset, small_directory: Path) -> None:
    found = small.file_hashes
    assert list(check_recorded(found, dict(found))) == []
    for recorded in [{**found, name: "0" * 64} for name in (*found, "more.jsonl")]:
        (name,) = (name for name in recorded if recorded[name] != found.get(name))
        (failure,) = check_recorded(found, recorded)
        assert (failure.row, failure.rule) == (name, "file_sha256")
        assert "0" * 64 in failure.detail
        assert found.get(name, "no such file") in failure.detail
    report = audit_dataset(small_directory, recorded_hashes={**found, "test.jsonl": "0" * 64})
    assert broken(report) == {("test.jsonl", "file_sha256")}


def test_empty_texts(small_directory: Path, tmp_path: Path) -> None:
    def empty(bodies: Bodies) -> None:
        for split in SPLITS:
            for body in bodies[split]:
                body["messages"][0]["content"] = " "

    report = audit_dataset(changed(small_directory, tmp_path / "copy", empty))
    assert ("test.jsonl:1", "prompt_text") in broken(report)


# --- One flipped byte.


def flip_bits(path: Path, count: int, rng: random.Random, first: int = 0) -> set[str]:
    """Flip a bit in each of ``count`` lines from the line ``first`` on; their places."""
    lines = path.read_bytes().split(b"\n")
    numbers = rng.sample(range(first, len(lines) - 1), count)
    for number in numbers:
        line = bytearray(lines[number])
        position = rng.randrange(len(line))
        byte = line[position] ^ (1 << rng.randrange(8))
        # A new line break would move all later lines; another test has those.
        line[position] = byte if byte != ord("\n") else ord("~")
        lines[number] = bytes(line)
    path.write_bytes(b"\n".join(lines))
    return {f"{path.name}:{number + 1}" for number in numbers}


def test_flipped_bytes_in_rows(full_directory: Path, tmp_path: Path) -> None:
    """A bit flipped in each of some hundred lines, anywhere: every one of those lines is named, and no other."""
    rng = random.Random(20)
    directory = copy(full_directory, tmp_path / "copy")
    flipped: set[str] = set()
    for split, count in (("train", 240), ("validation", 60), ("test", 60)):
        flipped |= flip_bits(directory / f"{split}.jsonl", count, rng)
    named = {place for place, _ in broken(audit_dataset(directory)) if ".jsonl:" in place}
    assert named == flipped


@pytest.mark.parametrize("position", ["first", "last", "inside"])
def test_flipped_line_breaks(small_directory: Path, tmp_path: Path, position: str) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "validation.jsonl"
    data = bytearray(path.read_bytes())
    place = {"first": data.index(b"\n"), "last": len(data) - 1, "inside": data.index(b" ")}[position]
    data[place] = ord("\n") if position == "inside" else ord("\n") ^ 1
    path.write_bytes(data)
    assert any(place.startswith("validation.jsonl:") for place, _ in broken(audit_dataset(directory)))


def test_flipped_bytes_in_the_manifest(small: Dataset, small_directory: Path, tmp_path: Path) -> None:
    """Each byte in turn; the number of workers leaves no trace in the rows, so only the recorded hash guards it."""
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "manifest.json"
    layout = find_layout(directory)
    data = path.read_bytes()
    rows = [row for split in SPLITS for row in small.rows(split)]
    assert small.manifest is not None
    rejections = Counter(small.manifest.rejections)
    workers = data.index(b'"generation_workers": ') + len(b'"generation_workers": ')
    rng = random.Random(4)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        manifest, failures = read_manifest(directory, layout)
        if manifest is not None:
            content_hash, version = small.content_sha256, "arena-tests"
            failures += check_manifest("manifest.json", manifest, rows, content_hash, version, rejections)
        assert failures or position == workers, f"byte {position}: {data[position - 20 : position + 20]!r}"
    changed = bytearray(data)
    changed[workers] ^= 1 << 1
    path.write_bytes(changed)
    report = audit_dataset(directory, recorded_hashes=small.file_hashes)
    assert ("manifest.json", "file_sha256") in broken(report)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in list(items) for place in ((value, key), *places_in(inner))]


json_values = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", [], {}, [[1]], {"a": 1}, 10**30, "\ud800", "blue-1", "ACT"]
)


@settings(max_examples=300)
@given(data=st.data())
def test_any_replaced_value_is_found(small: Dataset, pack: PromptPack, data: st.DataObject) -> None:
    """A value anywhere in a row, its user message or its label replaced by another: found, and never an exception."""
    row = data.draw(st.sampled_from([row for split in SPLITS for row in small.rows(split)]), label="row")
    body = row.to_dict()
    part = data.draw(st.sampled_from(["row", "user", "label"]))
    content = body if part == "row" else json.loads(row.user if part == "user" else row.label)
    container, key = data.draw(st.sampled_from(places_in(content)))
    before, after = container[key], data.draw(json_values)
    assume(canonical_json(before) != canonical_json(after))
    container[key] = after
    if part != "row":
        body["messages"][1 if part == "user" else 2]["content"] = canonical_json(content)
        rehash(body)
    line = read_line(DataFile(f"{row.split}.jsonl", row.split), 1, canonical(body).encode())
    assert (line.row is None) == (line.problem != "")
    if line.row is not None:
        facts = Facts()
        verdict = parse_label(line.row, facts.of(line.row.skill, line.row.seed))
        texts = Texts(
            {"ACT": pack.action_system, "BROADCAST": pack.broadcast_system}, pack.team_objective, pack.version
        )
        assert list(check_row(line, line.row, user_object(line.row), verdict, facts, texts))


# --- Published copies.


def compact(body: Body) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("form", [canonical, compact], ids=["canonical", "compact"])
def test_published_copy_is_valid(
    small: Dataset, small_directory: Path, tmp_path: Path, form: Callable[[Body], str]
) -> None:
    directory = publish(small_directory, tmp_path / "published", form=form, arrange=lambda bodies: bodies[::-1])
    report = audit_dataset(directory)
    assert report.failures == ()
    assert report.layout == "published"
    assert report.content_sha256 == small.content_sha256
    assert set(report.file_hashes) == {
        "train_broadcast.jsonl",
        "train_action.jsonl",
        "train_action_rare.jsonl",
        "validation.jsonl",
        "test.jsonl",
        "manifest.json",
    }


@pytest.mark.parametrize("form", [canonical, compact], ids=["canonical", "compact"])
def test_flipped_bytes_in_a_published_copy(small_directory: Path, tmp_path: Path, form: Callable[[Body], str]) -> None:
    rng = random.Random(8)
    directory = publish(small_directory, tmp_path / "published", form=form)
    # The first lines show how the file is written; the flips stand among the rest.
    flipped = flip_bits(directory / "train_broadcast.jsonl", 150, rng, first=16)
    assert {place for place, _ in broken(audit_dataset(directory)) if ".jsonl:" in place} == flipped


def test_a_default_missing_from_one_line(small_directory: Path, tmp_path: Path) -> None:
    directory = publish(small_directory, tmp_path / "published")
    bodies = read_bodies(directory / "test.jsonl")
    assert plain_broadcast(bodies[0])
    del bodies[0]["metadata"]["policy_reward"]
    write_bodies(directory / "test.jsonl", bodies)
    assert broken(audit_dataset(directory)) == {("test.jsonl:1", "defaults")}


def test_a_published_row_in_another_stratum(small_directory: Path, tmp_path: Path) -> None:
    directory = publish(small_directory, tmp_path / "published")
    rare = read_bodies(directory / "train_action_rare.jsonl")
    common = read_bodies(directory / "train_action.jsonl")
    write_bodies(directory / "train_action.jsonl", [*common, rare.pop(0)])
    write_bodies(directory / "train_action_rare.jsonl", rare)
    assert broken(audit_dataset(directory)) == {(f"train_action.jsonl:{len(common) + 1}", "file")}


def test_no_dataset_at_all(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a dataset directory"):
        audit_dataset(tmp_path)
