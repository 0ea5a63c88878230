"""Loading: the published layout gives the same dataset; what is wrong is named by file, line and key."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from arena_pipeline.errors import DatasetError, IntegrityError
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.sft.loading import Dataset, load_dataset
from arena_pipeline.sft.mixture import overfit_rows
from arena_pipeline.sft.rows import content_sha256
from arena_pipeline_tests.sft.corpus import (
    Body,
    Form,
    canonical,
    change_manifest,
    copy,
    publish,
    read_bodies,
    rehash,
    write_bodies,
)

SPLITS = ("train", "validation", "test")


def compact(body: Body) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def shuffled(bodies: list[Body]) -> list[Body]:
    return random.Random(5).sample(bodies, len(bodies))


def test_own_layout(small: Dataset, small_directory: Path) -> None:
    assert small.layout == "own"
    assert small.manifest is not None
    assert small.manifest.content_sha256 == small.content_sha256
    names = ("train.jsonl", "validation.jsonl", "test.jsonl", "manifest.json")
    assert small.file_hashes == {name: sha256_file(small_directory / name) for name in names}
    for split in SPLITS:
        stated = [body["id"] for body in read_bodies(small_directory / f"{split}.jsonl")]
        assert [row.id for row in small.rows(split)] == stated
    with pytest.raises(DatasetError, match="split 'dev'"):
        small.rows("dev")


@pytest.mark.parametrize("common_name", ["train_action.jsonl", "train_action_common.jsonl"])
@pytest.mark.parametrize(("form", "arrange"), [(canonical, list), (compact, shuffled)], ids=["as-is", "rewritten"])
def test_published_layout_is_the_same_dataset(
    full: Dataset, full_directory: Path, tmp_path: Path, common_name: str, form: Form, arrange
) -> None:
    published = load_dataset(
        publish(full_directory, tmp_path / "published", common_name=common_name, form=form, arrange=arrange)
    )
    assert published.layout == "published"
    assert published.content_sha256 == full.content_sha256
    assert published.prompts == full.prompts
    for split in SPLITS:
        assert [row.to_dict() for row in published.rows(split)] == [row.to_dict() for row in full.rows(split)]
    assert overfit_rows(published.rows("train")) == overfit_rows(full.rows("train"))
    assert set(published.file_hashes) == {
        "train_broadcast.jsonl",
        common_name,
        "train_action_rare.jsonl",
        "validation.jsonl",
        "test.jsonl",
        "manifest.json",
    }


def test_published_layout_without_manifest(small: Dataset, small_directory: Path, tmp_path: Path) -> None:
    published = load_dataset(publish(small_directory, tmp_path / "published", manifest=False))
    assert published.manifest is None
    assert published.content_sha256 == small.content_sha256


def test_own_layout_with_defaults_filled_in(small: Dataset, small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    bodies = read_bodies(directory / "test.jsonl")
    for body in bodies:
        body["metadata"] = {"generator_mode": "", "solver_reward": 0.0, "targeted_skill": "", **body["metadata"]}
    write_bodies(directory / "test.jsonl", bodies)
    assert load_dataset(directory).content_sha256 == small.content_sha256


@pytest.mark.parametrize("name", ["train.jsonl", "validation.jsonl", "test.jsonl", "manifest.json"])
def test_a_missing_file_is_named(small_directory: Path, tmp_path: Path, name: str) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    (directory / name).unlink()
    with pytest.raises(DatasetError, match="train.jsonl" if name == "train.jsonl" else name):
        load_dataset(directory)


def test_train_in_one_file_and_in_three_is_refused(small_directory: Path, tmp_path: Path) -> None:
    directory = publish(small_directory, tmp_path / "published")
    (directory / "train.jsonl").write_bytes((small_directory / "train.jsonl").read_bytes())
    with pytest.raises(DatasetError, match=r"train\.jsonl and train_broadcast\.jsonl"):
        load_dataset(directory)


def test_both_names_of_the_common_actions_are_refused(small_directory: Path, tmp_path: Path) -> None:
    directory = publish(small_directory, tmp_path / "published")
    (directory / "train_action_common.jsonl").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"both train_action\.jsonl and train_action_common\.jsonl"):
        load_dataset(directory)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such directory"):
        load_dataset(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="not a dataset directory"):
        load_dataset(tmp_path)


def _first(key: str, value: str) -> str:
    return f'{{"{key}": {value}, '


LINE = 3
BROKEN_LINES = {
    "text": (lambda line: "no JSON", "not JSON"),
    "empty": (lambda line: "", "not JSON"),
    "list": (lambda line: "[]", "JSON object was expected, found list"),
    "cut": (lambda line: line[:-20], "not JSON"),
    "two objects": (lambda line: line + line, "not JSON"),
    "duplicate top-level key": (lambda line: line.replace("{", _first("id", '""'), 1), "'id' occurs twice"),
    "duplicate metadata key": (
        lambda line: line.replace('"metadata": {', '"metadata": {"seed": 5, '),
        "'seed' occurs twice",
    ),
    "NaN": (
        lambda line: line.replace('"metadata": {', '"metadata": {"policy_reward": NaN, '),
        "NaN is not a JSON number",
    ),
    "Infinity": (lambda line: line.replace("{", _first("more", "-Infinity"), 1), "-Infinity is not a JSON number"),
    "overflow": (
        lambda line: line.replace('"metadata": {', '"metadata": {"policy_reward": 1e999, '),
        "'policy_reward' is inf",
    ),
    "long number": (lambda line: line.replace("{", _first("more", "9" * 5000), 1), "not JSON that can be read"),
    "deep": (
        lambda line: line.replace("{", _first("more", "[" * 100_000 + "]" * 100_000), 1),
        "not JSON that can be read",
    ),
    "unknown key": (lambda line: line.replace("{", _first("more", "0"), 1), "'more' is unknown"),
    "missing key": (lambda line: line.replace('"metadata"', '"meta"'), "'meta' is unknown|'metadata' is missing"),
    "role": (lambda line: line.replace('"role": "system"', '"role": "user"'), "role 'user' instead of 'system'"),
    "message key": (lambda line: line.replace('"role": "user"', '"role": "user", "name": ""'), "'name' is unknown"),
    "null": (lambda line: line.replace('"agent_id": "blue-2"', '"agent_id": null'), "'agent_id' is None"),
    "float seed": (lambda line: line.replace('"seed": 0', '"seed": 0.0'), "'seed' is 0.0"),
    "surplus metadata": (
        lambda line: line.replace('"metadata": {', '"metadata": {"policy_reward": 0.5, '),
        "'policy_reward' is 0.5 in a BROADCAST row",
    ),
}


@pytest.mark.parametrize("name", sorted(BROKEN_LINES))
def test_a_broken_line_is_named(small_directory: Path, tmp_path: Path, name: str) -> None:
    change, message = BROKEN_LINES[name]
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "train.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    assert json.loads(lines[LINE - 1])["metadata"]["agent_id"] == "blue-2"
    assert change(lines[LINE - 1]) != lines[LINE - 1]
    lines[LINE - 1] = change(lines[LINE - 1])
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(directory)
    assert str(caught.value).startswith(f"{path}:{LINE}: ")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "validation.jsonl"
    path.write_bytes(path.read_bytes().replace(b"blue", b"\xffue", 1))
    with pytest.raises(DatasetError, match=r"validation\.jsonl:1: not UTF-8"):
        load_dataset(directory)


def test_a_file_cut_off_at_its_last_newline(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    path = directory / "test.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match=r"test\.jsonl:\d+: the last line has no newline"):
        load_dataset(directory)


def change_row(directory: Path, split: str, change, *, with_id: bool) -> None:
    bodies = read_bodies(directory / f"{split}.jsonl")
    change(bodies)
    if with_id:
        bodies = [rehash(body) for body in bodies]
    write_bodies(directory / f"{split}.jsonl", bodies)


@pytest.mark.parametrize("position", range(3))
def test_a_changed_text_no_longer_has_its_id(small_directory: Path, tmp_path: Path, position: int) -> None:
    directory = copy(small_directory, tmp_path / "copy")

    def change(bodies: list[Body]) -> None:
        bodies[1]["messages"][position]["content"] += " "

    change_row(directory, "test", change, with_id=False)
    with pytest.raises(DatasetError, match=r"test\.jsonl:2: key 'id' is [0-9a-f]{64}, but .* hash to [0-9a-f]{64}"):
        load_dataset(directory)


def test_rows_with_right_ids_that_are_not_the_manifest_s(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    change_row(directory, "test", lambda bodies: bodies.pop(), with_id=True)
    with pytest.raises(IntegrityError, match=r"manifest\.json: expected sha256 [0-9a-f]{64}, found [0-9a-f]{64}"):
        load_dataset(directory)


def test_a_repeated_row(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    change_row(directory, "test", lambda bodies: bodies.append(bodies[0]), with_id=True)
    with pytest.raises(DatasetError, match=r"test\.jsonl:\d+: repeats the row of test\.jsonl:1"):
        load_dataset(directory)


def test_a_row_in_the_file_of_another_split(small_directory: Path, tmp_path: Path) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    moved = read_bodies(directory / "test.jsonl")[0]
    change_row(directory, "train", lambda bodies: bodies.append(moved), with_id=True)
    with pytest.raises(DatasetError, match=r"train\.jsonl:\d+: metadata key 'split' is 'test' in a file of train"):
        load_dataset(directory)


def test_a_published_row_in_the_file_of_another_stratum(small_directory: Path, tmp_path: Path) -> None:
    directory = publish(small_directory, tmp_path / "published")
    rare = read_bodies(directory / "train_action_rare.jsonl")
    common = read_bodies(directory / "train_action.jsonl")
    write_bodies(directory / "train_action.jsonl", [*common, rare.pop()])
    write_bodies(directory / "train_action_rare.jsonl", rare)
    with pytest.raises(DatasetError, match=r"train_action\.jsonl:\d+: an action_rare row in the file of action_common"):
        load_dataset(directory)


@pytest.mark.parametrize(("position", "key"), [(0, "system text"), (1, "team_objective")])
def test_rows_with_different_texts(small_directory: Path, tmp_path: Path, position: int, key: str) -> None:
    directory = copy(small_directory, tmp_path / "copy")

    def change(bodies: list[Body]) -> None:
        message = bodies[-1]["messages"][position]
        message["content"] = message["content"].replace("Hold", "Keep").replace("Fakten", "Sachen")

    change_row(directory, "validation", change, with_id=True)
    changed = read_bodies(directory / "validation.jsonl")[-1]["id"]
    ids = [body["id"] for split in SPLITS for body in read_bodies(directory / f"{split}.jsonl")]
    change_manifest(directory, content_sha256=content_sha256(ids))
    with pytest.raises(DatasetError, match=key) as caught:
        load_dataset(directory)
    assert changed in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_examples": "632"}, "'num_examples' is '632'; allowed is an integer"),
        ({"num_examples": True}, "'num_examples' is True"),
        ({"num_seeds": -1}, "'num_seeds' is -1"),
        ({"rejections": {"ambiguous_optimal_action": 1.5}}, "'rejections'"),
        ({"content_sha256": None}, "'content_sha256' is None; allowed is a text"),
        ({"more": 1}, "'more' is unknown"),
    ],
)
def test_a_manifest_of_another_form(small_directory: Path, tmp_path: Path, values: dict, message: str) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    change_manifest(directory, **values)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(directory)
    assert str(caught.value).startswith(f"{directory / 'manifest.json'}: ")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}', "\xff"])
def test_a_manifest_that_is_no_json_object(small_directory: Path, tmp_path: Path, text: str) -> None:
    directory = copy(small_directory, tmp_path / "copy")
    (directory / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DatasetError, match=r"manifest\.json: "):
        load_dataset(directory)
