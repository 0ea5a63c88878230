"""Pins: what is not pinned, or not as pinned, does not get past, and a brought input is held to its first load."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from arena_pipeline.errors import ArenaError, ConfigError, PinMismatch
from arena_pipeline.provenance.hashing import sha256_text, tree_sha256
from arena_pipeline.provenance.pins import Pins, RecordedPins, dataset_pin_name
from arena_pipeline.provenance.trees import hash_tree

ROOT = Path(__file__).resolve().parents[2]
A, B = "a" * 64, "b" * 64
EMPTY = "[prompt_packs]\n[datasets]\n[manifests]\n[base_models]\n[gates]\n"


def pins(tmp_path: Path, text: str) -> Pins:
    path = tmp_path / "pins.toml"
    path.write_text(text)
    return Pins.load(path)


def test_the_projects_pins_hold_the_manifests_and_the_original_dataset() -> None:
    loaded = Pins.load(ROOT / "data" / "pins.toml")
    assert loaded.manifests == {
        "arena-frozen-60": "b53bfc523043ec71cc69f851d0819511c5a9f0b4f09520898f30954bbe874b29",
        "arena-dev": "af40b38b74181c2db917de1d8246d537b164a52bc402586fae88ae8d5364e2b3",
        "arena-dev-150": "ad2b6a150a435d958af4d79b0f4a94d88efba6246451721752fb3bd516207caf",
        "arena-dev-600": "c1e674ff6ed4444d8b6e4cd1c17f7aaf7380390b819ba71012d8e5f586b0fbb3",
        "arena-eval-600": "fff7676efcbc06c1f33d6c214f650f9ab2ab4a6834e84d64d829372d1beaa01f",
    }
    original = "edad09bb301748621a0fab73ebf3de60d60abfd9f56c9afcc6ca02ffe12f3a80"
    assert loaded.expect("datasets", "arena-v2-structured-priority", original, "data/arena_sft_stage1")


def test_an_input_passes_only_as_pinned(tmp_path: Path) -> None:
    loaded = pins(tmp_path, EMPTY.replace("[manifests]", f'[manifests]\narena-dev = "{A}"'))
    assert loaded.expect("manifests", "arena-dev", A, "manifest.json")
    for allow_new in (False, True):
        with pytest.raises(PinMismatch, match=f"manifest.json: expected sha256 {A}, found {B}; pinned as manifests.ar"):
            loaded.expect("manifests", "arena-dev", B, "manifest.json", allow_new=allow_new)
    with pytest.raises(ConfigError, match=r"manifests.other: not pinned, found b+ in x.json; pinned are: arena-dev"):
        loaded.expect("manifests", "other", B, "x.json")
    assert loaded.expect("manifests", "other", B, "x.json", allow_new=True) is False


def test_a_directory_is_compared_file_by_file(tmp_path: Path) -> None:
    files = {"config.json": A, "weights/model.safetensors": B}
    table = "".join(f'files."{name}" = "{sha256}"\n' for name, sha256 in files.items())
    loaded = pins(tmp_path, EMPTY + f'[base_models.tiny]\nsha256 = "{tree_sha256(files)}"\n{table}')
    folder = Path("data/base_models/tiny")
    assert loaded.expect("base_models", "tiny", tree_sha256(files), folder)
    assert loaded.expect_files("base_models", "tiny", files, folder)
    assert loaded.expect_files("base_models", "other", files, folder) is False
    for changed, file, expected, found in [
        (files | {"weights/model.safetensors": A}, "weights/model.safetensors", B, A),
        ({"config.json": A}, "weights/model.safetensors", B, "no such file"),
        (files | {"added.py": A}, "added.py", "no such file", A),
    ]:
        with pytest.raises(PinMismatch) as caught:
            loaded.expect_files("base_models", "tiny", changed, folder)
        assert (caught.value.file, caught.value.expected, caught.value.found) == (str(folder / file), expected, found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EMPTY + "[secrets]\n", "secrets: unknown key; allowed: base_models, datasets, gates, manifests, prompt_packs"),
        (EMPTY.replace("[gates]\n", ""), "gates: missing; add it"),
        (EMPTY.replace("[gates]", '[gates]\nv1 = "abc"'), "gates.v1: found 'abc'; allowed: a SHA-256 of 64 lower"),
        (EMPTY.replace("[gates]", f'[gates]\nv1 = "{A.upper()}"'), "gates.v1: found 'AAA"),
        (EMPTY.replace("[gates]", f'[gates]\nv1 = "{A}\\n"'), "gates.v1: found 'aaa"),
        (EMPTY.replace("[gates]", "[gates]\nv1 = 1"), "gates.v1: found 1; allowed: a valid string"),
        (EMPTY + "[datasets.v]\nfile = 1\n", "datasets.v.content_sha256: missing"),
        (
            EMPTY + f'[datasets.v]\ncontent_sha256 = "{A}"\nfile = 1\n',
            r"datasets.v.file: unknown key \(did you mean f",
        ),
        (EMPTY + f'[base_models.m]\nsha256 = "{A}"\nfiles.x = "{B}"\n', "base_models.m: sha256 is a+, but that of its"),
        ("[prompt_packs\n", "not a TOML file .*line 1"),
    ],
)
def test_pins_of_another_form_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"pins.toml: {message}"):
        pins(tmp_path, text)
    with pytest.raises(ConfigError, match="no such file"):
        Pins.load(tmp_path / "none.toml")


def test_other_seeds_are_another_dataset() -> None:
    assert dataset_pin_name("arena-v2-open", 1024, 0) == "arena-v2-open"
    names = {dataset_pin_name("arena-v2-open", *seeds) for seeds in [(1024, 0), (1023, 0), (1024, 1), (128, 100_000)]}
    assert len(names) == 4


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "brought"
    directory.mkdir(parents=True)
    (directory / "train.jsonl").write_text("{}\n")
    (directory / "README.md").write_text("a dataset\n")
    return directory


def test_comparing_records_nothing_and_recording_replaces(tmp_path: Path, brought: Path) -> None:
    recorded = RecordedPins(tmp_path / "storage" / "recorded_pins.json")
    place, files = ("datasets", "data/brought", "v9"), hash_tree(brought)
    assert not recorded.compare(*place, A, files, brought)
    assert not recorded.path.exists()
    recorded.record(*place, A, files)
    assert recorded.compare(*place, A, files, brought)
    with pytest.raises(PinMismatch, match="replaced on purpose"):
        recorded.compare(*place, B, files, brought)
    recorded.record(*place, B, files)
    assert recorded.compare(*place, B, files, brought)


def test_a_brought_input_is_held_to_its_first_load(tmp_path: Path, brought: Path) -> None:
    recorded = RecordedPins(tmp_path / "storage" / "recorded_pins.json")

    def load(content: str = A, name: str = "v9") -> bool:
        return recorded.expect("datasets", "data/brought", name, content, hash_tree(brought), brought)

    assert [load(), load(), load()] == [False, True, True]
    with pytest.raises(PinMismatch, match=f"brought: expected sha256 {A}, found {B}; recorded on 20"):
        load(content=B)
    original = (brought / "README.md").read_text()
    (brought / "README.md").write_text("b dataset\n")
    with pytest.raises(PinMismatch) as caught:
        load()
    assert caught.value.file == str(brought / "README.md")
    assert (caught.value.expected, caught.value.found) == (sha256_text(original), sha256_text("b dataset\n"))
    assert "delete its entry from" in str(caught.value)
    (brought / "README.md").write_text(original)
    (brought / "added.jsonl").write_text("")
    with pytest.raises(PinMismatch, match="added.jsonl: expected sha256 no such file"):
        load()
    shutil.copy(brought / "README.md", brought / "added.jsonl")
    assert [load(name="v10"), load(name="v10")] == [False, True]
    assert str(tmp_path) not in recorded.path.read_text()


def test_a_spoilt_record_is_refused(tmp_path: Path, brought: Path) -> None:
    recorded = RecordedPins(tmp_path / "recorded_pins.json")
    for text in ("{", "[]", '{"datasets": {"data/brought": {"v9": {"sha256": "x"}}}}', '{"other": {}}'):
        recorded.path.write_text(text)
        with pytest.raises(ArenaError, match=r"recorded_pins\.json"):
            recorded.expect("datasets", "data/brought", "v9", A, hash_tree(brought), brought)
        assert recorded.path.read_text() == text
