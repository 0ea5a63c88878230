"""`arena experiment`, `arena preflight`, `arena ledger`, `arena clean`, `arena select` and `arena base-model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.experiments import load_experiment
from arena_pipeline.provenance.artifacts import ArtifactStore, stage_key
from arena_pipeline.provenance.files import write_json
from arena_pipeline.provenance.ledger import Ledger, sqlite_url
from arena_pipeline.provenance.ledger_export import verify_export
from arena_pipeline_tests.cli.conftest import Arena

A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_experiments_are_listed(arena: Arena, project: Path) -> None:
    shown = arena("experiment", "list")
    assert shown.status == 0
    for name in ("micro", "stage1", "tiny-cpu", "Qwen3-4B-Instruct-2507", "none, a rehearsal"):
        assert name in shown.out
    listed = {entry["name"]: entry for entry in arena("experiment", "list", "--json").json}
    assert listed["stage1"]["machine"]["gpu"] is True
    assert listed["micro"]["identity"] == load_experiment("micro", project).identity
    (project / "data" / "experiments" / "broken.toml").write_text("resullt = false\n")
    broken = arena("experiment", "list")
    assert broken.status == 2
    assert "data/experiments/broken.toml: resullt: unknown key (did you mean result?)" in broken.err


def test_a_new_experiment_is_a_copy(arena: Arena, project: Path) -> None:
    made = arena("experiment", "new", "longer", "--from", "micro")
    assert made.status == 0
    assert "data/experiments/longer.toml: a copy of micro" in made.out
    assert "arena run --experiment longer" in made.out
    assert load_experiment("longer", project).identity == load_experiment("micro", project).identity
    again = arena("experiment", "new", "longer")
    assert again.status == 2
    assert "longer.toml: is there already" in again.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("../escape",), "experiment '../escape': name: found '../escape'"),
        (("Upper",), "experiment 'Upper': name: found 'Upper'"),
        (("new", "--from", "none"), "no file data/experiments/none.toml; there are: micro, stage1, tiny-cpu"),
    ],
)
def test_a_new_experiment_is_refused(arena: Arena, project: Path, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(project.rglob("*.toml"))
    outcome = arena("experiment", "new", *arguments)
    assert outcome.status == 2
    assert message in outcome.error
    assert sorted(project.rglob("*.toml")) == before


def test_preflight(arena: Arena, project: Path) -> None:
    missing = arena("preflight", "--experiment", "micro")
    assert missing.status == 1
    assert "MISSING base model: data/base_models/arena-tiny/config.json needed, found no such file" in missing.out
    (project / "data" / "base_models" / "arena-tiny").mkdir(parents=True)
    (project / "data" / "base_models" / "arena-tiny" / "config.json").write_text("{}")
    there = arena("preflight", "--experiment", "micro", "--json")
    assert there.json["checks"][-1]["found"] == "present"
    assert there.status == (0 if there.json["ok"] else 1)
    assert [check["name"] for check in there.json["checks"]] == ["memory", "free disk space", "base model"]
    assert "no file data/experiments/none.toml" in arena("preflight", "--experiment", "none").error


def test_preflight_notes_what_would_be_slow(
    arena: Arena, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = tmp_path / "cpuinfo"
    monkeypatch.setattr("arena_pipeline.experiments.preflight._CPU_DESCRIPTION", cpu)
    file = project / "data" / "experiments" / "tiny-cpu.toml"
    assert 'precision = "bfloat16"' in file.read_text()
    cpu.write_text("flags : avx2\n")
    assert "note    recipe.precision: this CPU has no bfloat16" in arena("preflight").out
    noted = arena("preflight", "--json")
    assert 'set recipe.precision to "float32"' in noted.json["notes"][0]
    cpu.write_text("flags : avx2 avx512_bf16\n")
    quiet = arena("preflight", "--json")
    assert quiet.json["notes"] == []
    assert quiet.status == noted.status, "a note changes no exit status"


def open_two(project: Path) -> None:
    ledger = Ledger(sqlite_url(project / "storage" / "ledger.sqlite"))
    first = ledger.open(A, B, "one", C, "run-1")
    ledger.open(A, C, "two", B, "run-2")
    ledger.complete(first, responses=A, rows=A, summaries=A, verdict=A)


def test_ledger(arena: Arena, project: Path) -> None:
    assert "no sealed set was opened" in arena("ledger", "show").out
    open_two(project)
    shown = arena("ledger", "show")
    assert "run-2" in shown.out
    assert "not yet" in shown.out
    listed = arena("ledger", "show", "--json").json
    assert [(entry["experiment_name"], entry["ordinal"]) for entry in listed] == [("one", 1), ("two", 2)]

    file = project / "docs" / "ledger.jsonl"
    assert f"{file}: 2 openings" in arena("ledger", "export", file).out
    assert [opening.to_dict() for opening in verify_export(file)] == listed
    assert arena("ledger", "verify", file, "--json").json == listed
    file.write_text(file.read_text().replace("run-2", "run-3"))
    changed = arena("ledger", "verify", file)
    assert changed.status == 1
    assert "ledger.jsonl, line 2: expected sha256" in changed.error
    assert "none.jsonl: no such file" in arena("ledger", "verify", project / "none.jsonl").error


def test_the_ledger_of_another_database(arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_LEDGER_URL", f"sqlite:///{project}/other.sqlite")
    assert arena("ledger", "show", "--json").json == []
    assert (project / "other.sqlite").exists()
    monkeypatch.setenv("ARENA_LEDGER_URL", "mysql://host/x")
    outcome = arena("ledger", "show")
    assert outcome.status == 2
    assert "allowed: sqlite:///FILE or postgresql://HOST/DATABASE" in outcome.error


def commit(store: ArtifactStore, text: str) -> str:
    decided: dict[str, Any] = {"inputs": {}, "config": text, "code_version": "1"}
    key = stage_key("made", **decided)
    with store.work("made", key) as scratch:
        (scratch / "file").write_text(text)
        return store.commit("made", key, scratch, **decided).sha256


def test_clean_removes_leftovers_and_on_demand_artifacts_but_never_the_ledger(arena: Arena, project: Path) -> None:
    assert "there was nothing to remove" in arena("clean").out
    open_two(project)
    store = ArtifactStore(project / "storage" / "artifacts")
    sha256 = commit(store, "kept")
    with store.work("unfinished", A) as scratch:
        (scratch / "half").write_bytes(bytes(1000))

    with store.work("running", B) as scratch:
        (scratch / "half").touch()
        first = arena("clean", "--json")
        assert first.json["removed"] == [f"work of unfinished/{A}"]
        assert first.json["freed_bytes"] >= 1000
        held = arena("clean", "--all-artifacts", "--yes")
        assert held.status == 1
        assert "running with key" in held.error
        assert "in use by process" in held.error
    assert store.open(sha256).read_bytes("file") == b"kept"

    unasked = arena("clean", "--all-artifacts")
    assert unasked.status == 2
    assert "the sealed sets were opened by one, two" in unasked.error
    assert "an opening that is complete is refused for ever" in unasked.error
    assert "add --yes to remove it" in unasked.error
    assert store.open(sha256).read_bytes("file") == b"kept"

    everything = arena("clean", "--all-artifacts", "--yes")
    assert everything.status == 0
    assert f"removed: artifact {sha256}" in everything.out
    assert not list((project / "storage" / "artifacts").iterdir())
    assert len(arena("ledger", "show", "--json").json) == 2
    assert commit(store, "kept") == sha256


def summary(step: int, exact: float = 1.0, supported: float = 1.0) -> dict[str, Any]:
    rates = {"schema_valid": 1.0, "supported": supported, "legal": 1.0, "exact": exact}
    phases = {"act": {"examples": 52, **rates}, "broadcast": {"examples": 223, **rates}}
    return {"split": "validation", "step": step, "examples": 275, **rates, "selection_score": exact, **phases}


def test_select(arena: Arena, project: Path) -> None:
    for step, exact, supported in ((10, 0.9, 1.0), (20, 0.95, 1.0), (30, 0.99, 0.99)):
        write_json(project / f"{step}.json", summary(step, exact, supported))
    write_json(project / "base.json", summary(0, 0.25))
    files = [project / f"{step}.json" for step in (30, 10, 20)]
    found = arena("select", *files, "--base", project / "base.json", "--json")
    assert found.status == 0
    assert (found.json["selected_step"], found.json["num_eligible"]) == (20, 2)
    assert found.json["candidates"][2]["failures"] == ["unsupported_facts"]
    assert found.json["candidates"][1]["score_difference_to_base"] == 0.7
    shown = arena("select", *files)
    assert "selected: step 20, among 2 eligible" in shown.out
    assert "fails unsupported_facts" in shown.out

    none = arena("select", files[0], "--json")
    assert (none.status, none.json["selected_step"]) == (1, None)
    assert "the best-scoring one is of step 30" in arena("select", files[0]).out


def test_select_refuses(arena: Arena, project: Path) -> None:
    write_json(project / "test.json", summary(10) | {"split": "test"})
    (project / "text.json").write_text("[]")
    for name, message in (
        ("test.json", "checkpoints are selected on validation alone"),
        ("text.json", "not a JSON object"),
        ("none.json", "none.json: no such file"),
    ):
        outcome = arena("select", project / name)
        assert (outcome.status, outcome.out) == (1, "")
        assert message in outcome.error


def test_base_model_build_is_wired(arena: Arena, project: Path) -> None:
    full = project / "full"
    full.mkdir()
    (full / "file").touch()
    (project / "recipe.toml").write_text("vocabulary = 'many'\n")
    wrong = arena("base-model", "build", "--out", project / "new", "--recipe", project / "recipe.toml")
    assert wrong.status == 2
    assert wrong.err.startswith(f"arena: {project / 'recipe.toml'}: vocabulary: found 'many'; allowed: ")
    assert f"{project / 'recipe.toml'}: phases: missing; add it" in wrong.err
    absent = arena("base-model", "build", "--out", project / "new")
    assert absent.status == 2
    assert "data/base_models/arena-tiny/build.toml" in absent.error
    assert not (project / "new").exists()


def test_base_model_build_finds_its_device_first(arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless told, it takes the GPU that torch sees, else the CPU; a wrong wish fails before anything is made."""
    import torch

    from arena_pipeline_tests.base_models.test_build import TINY_RECIPE

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = project / "recipe.toml"
    recipe.write_text(TINY_RECIPE)
    given = ("base-model", "build", "--recipe", recipe, "--workers", 1, "--out")
    assert "device cuda: " in arena(*given, project / "gpu", "--device", "cuda").error
    assert not list(project.glob("*gpu*"))
    assert arena(*given, project / "made", "--json").json["device"] == "cpu"
