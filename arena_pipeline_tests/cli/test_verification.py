"""`arena manifest verify` and `arena pins verify`: equal, absent, and every way to differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline_tests.cli.conftest import Arena, Outcome

FROZEN = "b53bfc523043ec71cc69f851d0819511c5a9f0b4f09520898f30954bbe874b29"


def checks(outcome: Outcome) -> dict[str, dict[str, str]]:
    return {check["pin"]: check for check in outcome.json["checks"]}


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_manifests_are_computed_from_their_cases(arena: Arena, project: Path) -> None:
    shown = arena("manifest", "verify")
    assert shown.status == 0
    assert f"equal       manifests.arena-frozen-60: {FROZEN} (60 cases)" in shown.out
    assert shown.out.endswith("5 checked, none differs\n")
    found = arena("manifest", "verify", "--json")
    assert found.json["valid"] is True
    assert {check["status"] for check in found.json["checks"]} == {"equal"}
    assert checks(found)["manifests.arena-frozen-60"]["found"] == FROZEN


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (FROZEN, "0" * 64, f"expected {'0' * 64}, found {FROZEN}"),
        (f'arena-frozen-60 = "{FROZEN}"\n', "", f"manifests.arena-frozen-60: 60 cases: expected a pin, found {FROZEN}"),
        ("[manifests]", f'[manifests]\nother = "{"1" * 64}"', "manifests.other: 0 cases"),
    ],
)
def test_a_manifest_that_differs_from_its_pin(arena: Arena, project: Path, old: str, new: str, message: str) -> None:
    replace(project / "data" / "pins.toml", old, new)
    for command in ("manifest", "pins"):
        outcome = arena(command, "verify")
        assert outcome.status == 1
        assert message in outcome.out
        assert "none differs" not in outcome.out
        assert arena(command, "verify", "--json").json["valid"] is False


def test_pins_file_that_is_wrong(arena: Arena, project: Path) -> None:
    (project / "data" / "pins.toml").write_text("[manifests]\narena-dev = 'x'\n")
    outcome = arena("pins", "verify")
    assert outcome.status == 2
    assert "pins.toml: prompt_packs: missing" in outcome.err
    assert "pins.toml: manifests.arena-dev: found 'x'" in outcome.err


def test_prompt_packs(arena: Arena, project: Path) -> None:
    path = project / "data" / "prompts" / "arena-v2-open.toml"
    sha256 = PromptPack.load(path).sha256
    assert checks(arena("pins", "verify", "--json"))["prompt_packs.arena-v2-open"]["status"] == "equal"
    shutil.copy(path, path.with_name("mine.toml"))
    replace(path.with_name("mine.toml"), 'version = "arena-v2-open"', 'version = "mine"')
    assert checks(arena("pins", "verify", "--json"))["prompt_packs.mine"]["status"] == "not pinned"

    original = path.read_text()
    replace(path, "You are one of four BLUE agents. All", "You are one of five BLUE agents. All")
    changed = arena("pins", "verify")
    assert changed.status == 1
    assert f"prompt_packs.arena-v2-open: data/prompts/arena-v2-open.toml: expected {sha256}, found " in changed.out

    # Another version in the file does not hide it: the file is named after the pinned one.
    path.write_text(original.replace('version = "arena-v2-open"', 'version = "arena-v2-opem"'))
    assert checks(arena("pins", "verify", "--json"))["prompt_packs.arena-v2-open"]["status"] == "different"

    path.write_bytes(b"\xff" + original.encode())
    assert "found no prompt pack; " in arena("pins", "verify").out

    path.unlink()
    gone = arena("pins", "verify")
    assert gone.status == 1
    assert "prompt_packs.arena-v2-open: data/prompts: expected" in gone.out


def test_gate_policy(arena: Arena, project: Path) -> None:
    path = project / "data" / "gates.toml"
    assert checks(arena("pins", "verify", "--json"))["gates.gates-v1"]["status"] == "equal"
    path.write_text(path.read_text() + "\n")
    outcome = arena("pins", "verify")
    assert outcome.status == 1
    assert "gates: data/gates.toml: expected " in outcome.out
    path.unlink()
    assert "found no such file" in arena("pins", "verify").out


def test_base_model_file_by_file(arena: Arena, project: Path) -> None:
    directory = project / "data" / "base_models" / "other"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(bytes(100))
    files = hash_tree(directory)
    listed = "\n".join(f'"{name}" = "{sha256}"' for name, sha256 in files.items())
    pins_file = project / "data" / "pins.toml"
    table = f'\n[base_models.other]\nsha256 = "{tree_sha256(files)}"\n\n[base_models.other.files]\n{listed}\n'
    pins_file.write_text(pins_file.read_text() + table)
    assert checks(arena("pins", "verify", "--json"))["base_models.other"]["status"] == "equal"

    (directory / "model.safetensors").write_bytes(bytes(99) + b"\x01")
    outcome = arena("pins", "verify")
    assert outcome.status == 1
    expected = (
        f"base_models.other: data/base_models/other/model.safetensors: expected {files['model.safetensors']}, found "
    )
    assert expected in outcome.out

    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").symlink_to(directory / "config.json")
    assert "found a symbolic link" in arena("pins", "verify").out

    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    absent = arena("pins", "verify")
    assert absent.status == 0
    assert (
        f"absent      base_models.other: data/base_models/other is not there; expected {tree_sha256(files)}"
        in absent.out
    )


def test_datasets_are_held_to_their_pin_and_to_their_first_load(arena: Arena, project: Path) -> None:
    out = project / "data" / "arena_sft_micro"
    built = arena("dataset", "build", "--out", out, "--seeds", 3, "--start-seed", 100_000, "--json").json
    name = "datasets.arena-v2-open/100000+3"
    found = checks(arena("pins", "verify", "--json"))[name]
    assert (found["status"], found["file"]) == ("equal", "data/arena_sft_micro, as first loaded")
    assert found["found"] == built["content_sha256"]

    # Another number of workers changes the manifest alone, which a record of files still notices.
    manifest = out / "manifest.json"
    original = manifest.read_text()
    replace(manifest, '"generation_workers": 1', '"generation_workers": 2')
    outcome = arena("pins", "verify")
    assert outcome.status == 1
    assert (
        f"{name}: data/arena_sft_micro/manifest.json: expected {built['file_sha256']['manifest.json']}" in outcome.out
    )
    assert "replaced on purpose? delete its entry from" in outcome.out
    manifest.write_text(original)

    rows = (out / "test.jsonl").read_text()
    (out / "test.jsonl").write_text(
        rows.replace("BLUE_ALPHA", "BLUE_BRAVO", 1) if "BLUE_ALPHA" in rows else rows + "{}\n"
    )
    broken = arena("pins", "verify")
    assert broken.status == 1
    assert "different   datasets (data/arena_sft_micro): data/arena_sft_micro: " in broken.out
    (out / "test.jsonl").write_text(rows)

    (project / "storage" / "recorded_pins.json").unlink()
    assert checks(arena("pins", "verify", "--json"))[name]["status"] == "not pinned"
    pins_file = project / "data" / "pins.toml"
    pins_file.write_text(
        pins_file.read_text() + f'\n[datasets."arena-v2-open/100000+3"]\ncontent_sha256 = "{"2" * 64}"\n'
    )
    other = arena("pins", "verify")
    assert other.status == 1
    assert f"{name}: data/arena_sft_micro: expected {'2' * 64}, found {built['content_sha256']}" in other.out
    assert not (project / "storage" / "recorded_pins.json").exists(), "verifying records nothing"
