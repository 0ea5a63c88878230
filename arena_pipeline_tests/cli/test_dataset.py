"""`arena dataset build` and `arena dataset audit`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.provenance.files import read_json
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.sft.loading import load_dataset
from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena

SMALL = ("--seeds", 4, "--start-seed", 100_000)


def test_build_says_what_it_made_and_records_it(arena: Arena, project: Path) -> None:
    out = project / "data" / "mine"
    shown = arena("dataset", "build", "--out", out, *SMALL)
    assert (shown.status, shown.err) == (0, "")
    dataset = load_dataset(out)
    assert dataset.manifest is not None
    rows = sum(dataset.manifest.examples_by_split.values())
    assert f"{out}: 4 files, content hash {dataset.content_sha256}" in shown.out
    assert f"{rows} rows: " in shown.out
    assert "no pin to compare it with under the name datasets.arena-v2-open/100000+4" in shown.out
    assert "hashes of its files recorded in storage/recorded_pins.json" in shown.out
    recorded = read_json(project / "storage" / "recorded_pins.json")["datasets"]["data/mine"]["arena-v2-open/100000+4"]
    assert recorded["sha256"] == dataset.content_sha256
    assert recorded["files"] == {path.name: sha256_file(path) for path in out.iterdir()}

    again = arena("dataset", "build", "--out", project / "second", *SMALL, "--workers", 2, "--json")
    assert again.json["content_sha256"] == dataset.content_sha256
    assert again.json["equals_pin"] is False
    assert again.json["num_examples"] == rows
    assert again.json["generation_workers"] == 2


def test_build_compares_with_the_pin(arena: Arena, project: Path) -> None:
    sha256 = arena("dataset", "build", "--out", project / "first", *SMALL, "--json").json["content_sha256"]
    pins = project / "data" / "pins.toml"
    original = pins.read_text()
    pins.write_text(original + f'\n[datasets."arena-v2-open/100000+4"]\ncontent_sha256 = "{sha256}"\n')
    equal = arena("dataset", "build", "--out", project / "second", *SMALL)
    assert "equals its pin datasets.arena-v2-open/100000+4" in equal.out
    pins.write_text(original + f'\n[datasets."arena-v2-open/100000+4"]\ncontent_sha256 = "{"0" * 64}"\n')
    other = arena("dataset", "build", "--out", project / "third", *SMALL)
    assert other.status == 1
    assert f"third: expected sha256 {'0' * 64}, found {sha256}; pinned as datasets." in other.error
    assert "third" not in (project / "storage" / "recorded_pins.json").read_text()


def pin_dataset(project: Path, built: Any) -> None:
    """Pin a dataset with its files, as the committed pins do."""
    files = "".join(f'"{name}" = "{sha256}"\n' for name, sha256 in built["file_sha256"].items())
    name = 'datasets."arena-v2-open/100000+4"'
    text = f'\n[{name}]\ncontent_sha256 = "{built["content_sha256"]}"\n\n[{name}.files]\n{files}'
    pins = project / "data" / "pins.toml"
    pins.write_text(pins.read_text() + text)


def test_the_number_of_workers_is_no_difference_from_the_pin(arena: Arena, project: Path) -> None:
    """As a run reads it: two workers note themselves in the manifest and change no row."""
    pin_dataset(project, arena("dataset", "build", "--out", project / "first", *SMALL, "--json").json)
    out = project / "data" / "arena_sft_micro"
    second = arena("dataset", "build", "--out", out, *SMALL, "--workers", 2)
    assert (second.status, second.err) == (0, "")
    assert "equals its pin datasets.arena-v2-open/100000+4" in second.out
    assert "differs" not in second.out
    verified = arena("pins", "verify")
    assert (verified.status, verified.err) == (0, "")
    assert "equal       datasets.arena-v2-open/100000+4" in verified.out
    assert changed(arena, out) == []


def changed(arena: Arena, out: Path) -> list[tuple[str, str]]:
    """File and rule of what the audit finds, but for kinds of action that so small a dataset lacks."""
    found = arena("dataset", "audit", out, "--json").json["failures"]
    return [(failure["row"], failure["rule"]) for failure in found if failure["rule"] != "action_kinds"]


def test_build_holds_the_pack_to_its_pin_before_it_builds(arena: Arena, project: Path) -> None:
    pack = project / "data" / "prompts" / "arena-v2-open.toml"
    pack.write_text(pack.read_text().replace("You are one of four", "You are one of five", 1))
    outcome = arena("dataset", "build", "--out", project / "new", *SMALL)
    assert outcome.status == 1
    assert "arena-v2-open.toml: expected sha256" in outcome.error
    assert not list(project.glob("*new*"))


@pytest.mark.parametrize("known", ["recorded", "pinned"])
def test_the_audit_finds_a_flipped_byte_of_any_file(arena: Arena, project: Path, known: str) -> None:
    out = project / "mine"
    built = arena("dataset", "build", "--out", out, *SMALL, "--json").json
    if known == "pinned":
        pin_dataset(project, built)
        (project / "storage" / "recorded_pins.json").unlink()
    assert changed(arena, out) == []
    for path in sorted(out.iterdir()):
        original = path.read_bytes()
        # Space to tab: a change that JSON does not see, where there is one.
        place = original.index(b" ")
        path.write_bytes(original[:place] + b"\t" + original[place + 1 :])
        assert any(row.startswith(path.name) for row, _ in changed(arena, out)), path.name
        path.write_bytes(original)


def test_the_audit_compares_a_manifest_with_its_record(arena: Arena, project: Path) -> None:
    out = project / "mine"
    arena("dataset", "build", "--out", out, *SMALL)
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"generation_workers": 1', '"generation_workers": 3'))
    assert changed(arena, out) == [("manifest.json", "recorded")]


def test_build_with_another_pack_in_json(arena: Arena, project: Path) -> None:
    body = tomllib.loads((project / "data" / "prompts" / "arena-v2-open.toml").read_text())
    pack = project / "pack.json"
    pack.write_text(json.dumps(body | {"version": "mine", "team_objective": "Win."}))
    built = arena("dataset", "build", "--out", project / "mine", "--prompts", pack, *SMALL, "--json")
    assert built.json["prompt_version"] == "mine"
    assert load_dataset(project / "mine").prompts.team_objective == "Win."


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--prompts", "none.toml"), 2, "none.toml"),
        (("--prompts", "pack.json"), 2, "pack.json: unknown key 'b'; a prompt pack has exactly"),
        (("--start-seed", "1000003"), 1, "1000003"),
        (("--out", "full"), 1, "full: is not empty, and is never overwritten; choose another place or remove it"),
        (("--out", "pack.json"), 1, "pack.json: exists and is not a directory"),
    ],
)
def test_build_refuses(
    arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], status: int, message: str
) -> None:
    monkeypatch.chdir(project)
    (project / "pack.json").write_text('{"b": 1}')
    (project / "full").mkdir()
    (project / "full" / "kept").touch()
    outcome = arena("dataset", "build", "--out", "new", *arguments)
    assert (outcome.status, outcome.out) == (status, "")
    assert message in outcome.error
    assert not (project / "new").exists()
    assert (project / "full" / "kept").exists()


def test_ctrl_c_leaves_no_half_a_dataset(project: Path) -> None:
    out = project / "large"
    command = [sys.executable, "-c", PROGRAM, "dataset", "build", "--out", out, "--seeds", "100000", "--workers", "1"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not list(project.glob(".large.partial/train.jsonl")):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        found, error = child.communicate(timeout=60)
    assert (child.returncode, found) == (130, "")
    assert error == f"arena: stopped; nothing was left in {out}; run the same command again\n"
    assert not list(project.glob("*large*"))


def test_audit(arena: Arena, project: Path) -> None:
    out = project / "mine"
    built = arena("dataset", "build", "--out", out, "--seeds", 64, "--start-seed", 100_000, "--json").json
    valid = arena("dataset", "audit", out)
    assert valid.status == 0
    assert f"{out}: own layout, content hash {built['content_sha256']}" in valid.out
    assert valid.out.endswith("valid: no rule is broken\n")
    report = arena("dataset", "audit", out, "--require-split-action-coverage", "--json")
    assert report.status == (0 if report.json["valid"] else 1)
    assert report.json["required_split_action_coverage"] is True
    assert report.json["num_examples"] == built["num_examples"]

    lines = (out / "train.jsonl").read_text().splitlines(keepends=True)
    (out / "train.jsonl").write_text("".join(line.replace(":[", ": [", 1) for line in lines))
    broken = arena("dataset", "audit", out)
    assert broken.status == 1
    assert "train.jsonl:1" in broken.out
    assert "more; --json lists all" in broken.out
    assert "valid: no rule" not in broken.out
    listed = arena("dataset", "audit", out, "--json")
    assert (listed.status, listed.json["valid"]) == (1, False)
    assert len(listed.json["failures"]) >= len(lines)


def test_audit_of_what_is_no_dataset(arena: Arena, project: Path) -> None:
    assert "none: no such directory" in arena("dataset", "audit", project / "none").error
    outcome = arena("dataset", "audit", project)
    assert outcome.status == 1
    assert "it is not a dataset directory" in outcome.error
