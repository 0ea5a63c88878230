"""`arena eval` and `arena compare`: scripts and models outside Dagster; adapters on sealed cases only by the ledger."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena_pipeline.arena.manifests import MANIFESTS, manifest_sha256
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.cli.judgement import opening_of
from arena_pipeline.cli.project import find_project
from arena_pipeline.experiments import load_experiment
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.ledger import Ledger, Opening, sealed_set_sha256, sqlite_url
from arena_pipeline.provenance.pins import RecordedPins
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.resources.locations import ledger_address
from arena_pipeline.serving.adapters import adapter_sha256
from arena_pipeline.serving.loading import base_sha256
from arena_pipeline.sft.builder import build_dataset
from arena_pipeline.sft.loading import load_dataset
from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena, Outcome, arena_process
from arena_pipeline_tests.cli.models import BASE, add_adapter, add_base, add_experiment

CASES = ("--manifest", "arena-dev:3")


def test_the_oracle(arena: Arena, project: Path) -> None:
    out = project / "oracle"
    shown = arena("eval", "--provider", "oracle", "--out", out, *CASES)
    assert (shown.status, shown.err) == (0, "")
    assert "arena-dev:3, 3 cases" in shown.out
    assert f"rows and summary are in {out}" in shown.out
    summary = read_json(out / "summary.json")
    assert {figures["mean_regret"] for figures in summary["conditions"].values()} == {0.0}
    assert len((out / "rows.jsonl").read_text().splitlines()) == 3

    responses = {path.name: path.read_bytes() for path in out.glob("responses-*.jsonl")}
    assert len(responses) == 2
    again = arena("eval", "--provider", "oracle", "--out", out, *CASES, "--json")
    assert again.json == summary
    assert {path.name: path.read_bytes() for path in out.glob("responses-*.jsonl")} == responses


def test_a_script_on_a_sealed_manifest(arena: Arena, project: Path) -> None:
    arguments = ("--provider", "scripted:independent_local", "--manifest", "arena-frozen-60", "--json")
    outcome = arena("eval", "--out", project / "local", *arguments)
    assert outcome.json["model"]["name"] == "independent_local"
    assert outcome.json["conditions"]["generated"]["mean_regret"] > 0
    assert not (project / "storage" / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--provider", "orakel"), "'orakel': allowed are oracle, scripted:wait, scripted:independent_local"),
        (("--provider", "scripted:oracle"), "'scripted:oracle': allowed are"),
        (("--provider", "independent_local"), "allowed are"),
        (("--manifest", "arena-test"), "manifest 'arena-test': allowed are arena-frozen-60"),
        (("--manifest", "arena-dev:61"), "must be within 1..60"),
        (("--experiment", "none"), "no file data/experiments/none.toml; there are: micro"),
        (("--adapter", "x"), "--adapter x: oracle has no weights; leave it out, or use --provider transformers"),
        (("--model", "x"), "--model x: oracle has no weights"),
        (("--prompts", "x", "--dataset", "y"), "--dataset and --prompts: give one of them"),
        (("--provider", "transformers", "--model", "none"), "none: not a base model (no config.json)"),
        (("--batch-size", "0"), "'--batch-size'"),
    ],
)
def test_wrong_usage(arena: Arena, project: Path, arguments: tuple[str, ...], message: str) -> None:
    given = ("--provider", "oracle", "--out", "out", *CASES)
    outcome = arena("eval", *given, *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error
    assert not Path("out").exists()


def test_a_directory_of_another_evaluation_is_left_alone(arena: Arena, project: Path) -> None:
    arena("eval", "--provider", "oracle", "--out", project / "out", *CASES)
    before = (project / "out" / "summary.json").read_bytes()
    outcome = arena("eval", "--provider", "scripted:wait", "--out", project / "out", *CASES)
    assert outcome.status == 1
    assert "this directory holds another evaluation (model differs)" in outcome.error
    assert (project / "out" / "summary.json").read_bytes() == before


def test_prompts_come_from_the_dataset_in_use(arena: Arena, project: Path) -> None:
    pack = project / "other.toml"
    text = (project / "data" / "prompts" / "arena-v2-open.toml").read_text()
    pack.write_text(text.replace('version = "arena-v2-open"', 'version = "other"'))
    built = ("dataset", "build", "--prompts", pack, "--seeds", 1, "--start-seed", 100_000)
    arena(*built, "--out", project / "elsewhere")
    arena(*built, "--out", project / "data" / "arena_sft_micro")

    def version(*arguments: object) -> str:
        name = "-".join(map(str, arguments)).replace("/", "_") or "default"
        played = arena("eval", "--provider", "oracle", "--out", project / name, *CASES, *arguments, "--json")
        return str(played.json["prompt_version"])

    assert version() == "arena-v2-open"
    assert version("--prompts", pack) == "other"
    assert version("--dataset", project / "elsewhere") == "other"
    assert version("--experiment", "micro") == "other"


def test_a_model_and_its_adapter_are_compared(arena: Arena, project: Path) -> None:
    base = add_base(project)
    add_experiment(project, "mine", "micro", ("batch_size = 64", "batch_size = 64\nmax_new_tokens = 8"))
    adapter = add_adapter(base, project / "adapter", seed=1)
    played = ("eval", "--provider", "transformers", "--manifest", "arena-dev:2", "--experiment", "mine")
    untouched = arena(*played, "--out", project / "base", "--json")
    assert untouched.json["model"]["adapter_sha256"] is None
    tuned = arena(*played, "--model", project / BASE, "--adapter", adapter, "--out", project / "sft", "--json")
    assert tuned.json["model"]["base_sha256"] == untouched.json["model"]["base_sha256"]
    assert tuned.json["model"]["adapter_sha256"]

    compared = arena("compare", project / "base", project / "sft", "--json")
    assert compared.json["cases"] == 2
    assert compared.json["tuned_model"] == tuned.json["model"]
    shown = arena("compare", project / "base", project / "sft")
    assert "SFT - base on arena-dev:2, 2 cases" in shown.out
    assert "generated minus dropped (SFT)" in shown.out

    rows = project / "sft" / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"reward":', '"reward":1', 1))
    broken = arena("compare", project / "base", project / "sft")
    assert broken.status == 1
    assert "rows.jsonl:1: " in broken.error


def test_what_cannot_be_compared(arena: Arena, project: Path) -> None:
    for name, cases in (("oracle", "arena-dev:2"), ("wait", "arena-dev:2"), ("other", "arena-dev:3")):
        script = "oracle" if name != "wait" else "scripted:wait"
        arena("eval", "--provider", script, "--out", project / name, "--manifest", cases)
    assert "the models differ in name" in arena("compare", project / "oracle", project / "wait").error
    assert "manifest is 'arena-dev:2' for the base" in arena("compare", project / "oracle", project / "other").error
    missing = arena("compare", project / "oracle", project / "none")
    assert missing.status == 1
    assert "none/evaluation.json: no such file" in missing.error


def test_a_sealed_comparison_takes_the_level_of_its_opening(project: Path) -> None:
    find_project().export()
    ledger = Ledger(ledger_address())
    for ordinal, adapter in enumerate(("a" * 64, "b" * 64), start=1):
        ledger.open("0" * 64, str(ordinal) * 64, f"experiment-{ordinal}", adapter, "run")

    def opening(adapter: str | None, manifest: str) -> int:
        model = {"adapter_sha256": adapter}
        return opening_of([{**case._asdict(), "model": model} for case in MANIFESTS[manifest]])

    assert opening("b" * 64, "arena-frozen-60") == 2
    assert opening("a" * 64, "arena-frozen-60") == 1
    assert opening("c" * 64, "arena-frozen-60") == opening(None, "arena-frozen-60") == 1
    assert opening("b" * 64, "arena-dev") == 1


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in base model, a small dataset and two adapters, where an experiment of a project names them."""
    template = tmp_path_factory.mktemp("adapters")
    base = add_base(template)
    for seed in (1, 2):
        add_adapter(base, template / f"adapter-{seed}", seed)
    pack = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
    build_dataset(template / "data" / "mine", pack, num_seeds=2, start_seed=100_000)
    return template


@pytest.fixture
def sealed(project: Path, adapters: Path) -> Path:
    """An experiment with a sealed manifest and two adapters, its base and dataset recorded as `arena run` does it."""
    shutil.copytree(adapters, project, dirs_exist_ok=True)
    add_experiment(
        project,
        "mine",
        "tiny-cpu",
        ("\nbatch_size = 16", "\nbatch_size = 4\nmax_new_tokens = 1"),
        ("arena_sft_stage1", "mine"),
    )
    files = hash_tree(project / BASE)
    recorded = RecordedPins(project / "storage" / "recorded_pins.json")
    recorded.record("base_models", BASE, "stand-in", tree_sha256(files), files)
    dataset = load_dataset(project / "data" / "mine")
    recorded.record("datasets", "data/mine", DATASET, dataset.content_sha256, dataset.file_hashes)
    return project


DATASET = "arena-v2-open/100000+2"


def open_for(project: Path, adapter: str) -> Opening:
    """Write the ledger's row as the asset test_evaluation does."""
    seeds = [row.seed for row in load_dataset(project / "data" / "mine").rows("test")]
    return Ledger(sqlite_url(project / "storage" / "ledger.sqlite")).open(
        sealed_set_sha256(seeds, manifest_sha256(MANIFESTS["arena-frozen-60"])),
        load_experiment("mine", project).identity,
        "mine",
        adapter_sha256(project / adapter),
        "run-1",
    )


PLAYED = ("--provider", "transformers", "--manifest", "arena-frozen-60")


def interrupted(project: Path, *arguments: object) -> Outcome:
    """Run a command in a process of its own and interrupt it when its first batch of replies is on disk."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    store = project / "out" / "responses-broadcast.jsonl"
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not store.exists() or store.read_bytes().count(b"\n") < 2:
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGINT)
        found, error = child.communicate(timeout=60)
    return Outcome(child.returncode, found, error)


def test_an_adapter_plays_the_sealed_manifest_that_was_opened_for_it(arena: Arena, sealed: Path) -> None:
    command = ("eval", *PLAYED, "--experiment", "mine", "--out", sealed / "out", "--adapter")
    opening = open_for(sealed, "adapter-1")
    first = interrupted(sealed, *command, sealed / "adapter-1")
    assert first.status == 130
    assert first.error.endswith("run the same command again: it goes on after the last batch")
    assert f"opening 1 of sealed set {opening.sealed_set}" in first.out
    stored = (sealed / "out" / "responses-broadcast.jsonl").read_bytes()

    shutil.rmtree(sealed / "out")
    second = arena(*command, sealed / "adapter-2")
    assert second.status == 1
    assert f"was opened for experiment mine on {opening.opened_at} by adapter {opening.adapter_sha256}" in second.error
    assert not (sealed / "out").exists()

    resumed = interrupted(sealed, *command, sealed / "adapter-1")
    assert "opening 1 of sealed set " in resumed.out
    assert (sealed / "out" / "responses-broadcast.jsonl").read_bytes().startswith(stored)
    assert arena("ledger", "show", "--json").json == [opening.to_dict()]


def refused(arena: Arena, project: Path, *arguments: object) -> str:
    outcome = arena("eval", *PLAYED, "--out", project / "out", *arguments)
    assert outcome.status == 1
    assert not (project / "out").exists()
    return outcome.error


def test_an_evaluation_opens_no_sealed_set_itself(arena: Arena, sealed: Path) -> None:
    given = ("--experiment", "mine", "--adapter", sealed / "adapter-1")
    error = refused(arena, sealed, *given)
    assert "was not opened for experiment mine as it is now; arena run --experiment mine opens it" in error
    assert arena("ledger", "show", "--json").json == []


def test_a_sealed_set_is_not_asked_again(arena: Arena, sealed: Path) -> None:
    opening = open_for(sealed, "adapter-1")
    some = "a" * 64
    ledger = Ledger(sqlite_url(sealed / "storage" / "ledger.sqlite"))
    ledger.complete(opening, responses=some, rows=some, summaries=some, verdict=some)
    error = refused(arena, sealed, "--experiment", "mine", "--adapter", sealed / "adapter-1")
    assert "is complete for experiment mine since" in error


def test_the_dataset_that_names_a_sealed_set_must_be_known(arena: Arena, sealed: Path) -> None:
    open_for(sealed, "adapter-1")
    given = ("--experiment", "mine", "--adapter", sealed / "adapter-1")
    recorded = sealed / "storage" / "recorded_pins.json"
    known = read_json(recorded)
    write_json(recorded, known | {"datasets": {}})
    assert f"data/mine: neither pinned nor recorded as datasets.{DATASET}" in refused(arena, sealed, *given)
    known["datasets"]["data/mine"][DATASET]["files"]["test.jsonl"] = "0" * 64
    write_json(recorded, known)
    assert f"data/mine/test.jsonl: expected sha256 {'0' * 64}, found" in refused(arena, sealed, *given)


def test_a_base_model_plays_sealed_cases_only_if_it_is_known(arena: Arena, sealed: Path) -> None:
    """A fine-tune merged into its base has no adapter, but it is no untouched base."""
    merged = sealed / "merged"
    shutil.copytree(sealed / BASE, merged)
    config = merged / "config.json"
    config.write_text(config.read_text() + "\n")
    found = base_sha256(merged)
    error = refused(arena, sealed, "--experiment", "mine", "--model", merged)
    assert f"the model's base, of sha256 {found}, is neither pinned nor recorded" in error
    assert "or look at arena-dev" in error
    assert "neither pinned nor recorded" in refused(arena, sealed, "--model", merged, "--adapter", sealed / "adapter-1")

    played = ("eval", *PLAYED, "--experiment", "mine", "--out", sealed / "out")
    assert interrupted(sealed, *played).status == 130, "the recorded base plays"
    shutil.rmtree(sealed / "out")
    pins = sealed / "data" / "pins.toml"
    pins.write_text(pins.read_text() + f'\n[base_models.other]\nsha256 = "{found}"\n')
    assert interrupted(sealed, *played, "--model", merged).status == 130, "and so does a pinned one"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "sealed, and opens once for an experiment; name it with --experiment"),
        (("--experiment", "mine", "--manifest", "arena-frozen-60:5"), "mine opens arena-frozen-60, all of it"),
        (("--experiment", "mine", "--manifest", "arena-eval-600"), "mine opens arena-frozen-60, all of it"),
        (("--experiment", "micro"), "micro opens arena-dev:2, all of it"),
        (("--experiment", "mine", "--batch-size", "8"), "--batch-size: an experiment's sealed manifest is played as"),
        (("--experiment", "mine", "--prompts", "{root}/data/prompts/arena-v2-open.toml"), "--prompts: an experiment's"),
        (("--experiment", "mine", "--model", f"{{root}}/{BASE}"), "--model: an experiment's sealed manifest"),
    ],
)
def test_an_adapter_cannot_play_sealed_cases_otherwise(
    arena: Arena, sealed: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = [argument.format(root=sealed) for argument in arguments]
    model = () if "mine" in given else ("--model", sealed / BASE)
    outcome = arena("eval", *PLAYED, "--adapter", sealed / "adapter-1", "--out", sealed / "out", *model, *given)
    assert outcome.status == 2
    assert message in outcome.error
    assert not (sealed / "out").exists()
    assert arena("ledger", "show", "--json").json == []


def test_an_evaluation_in_a_process_of_its_own(project: Path) -> None:
    outcome = arena_process("eval", "--provider", "oracle", "--out", project / "out", *CASES, "--json", cwd=project)
    assert (outcome.status, outcome.json["cases"]) == (0, 3)
