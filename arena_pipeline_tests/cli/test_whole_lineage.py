"""The command line on a finished lineage of `micro`: verdict, gates, standing, tampering, Ctrl-C in mid-generation."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena
from arena_pipeline_tests.lineages import Lineage, flip_byte, materialized, replaced

RUN = ("run", "--experiment", "micro")
GATES = ("gates", "--experiment", "micro")


@pytest.fixture
def finished(copy: Lineage, monkeypatch: pytest.MonkeyPatch) -> Lineage:
    """A copy of the finished lineage, in which commands work."""
    for name in ("ARENA_STORAGE_DIR", "ARENA_LEDGER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(copy.root))
    # What commands export, set here so that it is undone after the test.
    for name, path in (("ARENA_STORAGE_DIR", copy.storage), ("DAGSTER_HOME", copy.root)):
        monkeypatch.setenv(name, str(path))
    monkeypatch.chdir(copy.root)
    return copy


def saved_verdict(lineage: Lineage) -> dict[str, Any]:
    verdict = materialized(lineage, "gate_verdicts").read_json("verdict.json")
    assert isinstance(verdict, dict)
    return verdict


def test_a_second_run_recomputes_nothing_and_shows_the_verdict(arena: Arena, finished: Lineage) -> None:
    shown = arena(*RUN)
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[:21]] == ["reused"] * 21
    assert lines[21] == "nothing was recomputed: all 21 stages were there, every byte verified again"
    assert "Gates of micro" in shown.out
    assert "micro: a rehearsal, whose figures mean nothing: nothing is promoted" in shown.out
    adapter = next(line for line in lines if line.startswith("adapter: ")).removeprefix("adapter: ")
    assert (finished.root / adapter / "adapter_model.safetensors").is_file()

    found = arena(*RUN, "--json").json
    assert found["verdict"] == saved_verdict(finished)
    assert found["computed"] == []
    assert Path(found["adapter_path"]) == finished.root / adapter
    assert Path(found["verdict_path"]).is_file()

    # The line to try it is a command that works.
    line = next(line for line in lines if line.startswith("try it: arena "))
    command = shlex.split(line.removeprefix("try it: arena "))
    tried = arena(*command, "--manifest", "arena-dev:1", "--json")
    assert tried.status == 0
    assert tried.json["model"]["adapter_sha256"] == saved_verdict(finished)["adapter_sha256"]
    assert (finished.root / "storage" / "tried-micro" / "rows.jsonl").is_file()


def test_gates_and_standing(arena: Arena, finished: Lineage) -> None:
    shown = arena(*GATES)
    assert (shown.status, shown.err) == (1, ""), "a rehearsal is never promoted"
    assert "Gates of micro" in shown.out
    found = arena(*GATES, "--json")
    assert (found.status, found.json) == (1, saved_verdict(finished))
    assert "communication gates cannot be won" in shown.out.replace("\n", " ")

    (micro,) = arena("--json").json
    assert micro == {
        "experiment": "micro",
        "stage": "21 of 21: adapter_card",
        "verdict": saved_verdict(finished)["conclusion"],
        "next": "arena gates --experiment micro",
    }


def test_gates_compute_from_the_saved_replies_up(arena: Arena, finished: Lineage) -> None:
    responses = materialized(finished, "sft_dev_evaluation").file("responses-action.jsonl")
    flip_byte(responses, 5000)
    outcome = arena(*GATES)
    assert outcome.status == 1
    assert f"{responses}: expected sha256" in outcome.error
    flip_byte(responses, 5000)
    assert "Gates of micro" in arena(*GATES).out

    def promote(directory: Path) -> None:
        path = directory / "verdict.json"
        write_json(path, read_json(path) | {"promoted": True})

    # Replaced, hash and record and all: what it says does still not follow from the replies.
    with finished.reader() as reader, replaced(reader, "gate_verdicts", promote):
        outcome = arena(*GATES)
    assert outcome.status == 1
    assert "gate_verdicts, verdict.json: promoted is True instead of False, computed again" in outcome.error


def test_a_verdict_beside_figures_that_it_was_not_made_from_is_told(arena: Arena, finished: Lineage) -> None:
    """Somebody materialized the base's evaluation again, and nothing behind it."""

    def change(directory: Path) -> None:
        (directory / "note").write_text("")

    with finished.reader() as reader, replaced(reader, "base_dev_evaluation", change):
        outcome = arena(*GATES)
        assert outcome.status == 1
        assert "communication_comparison, experiment micro: made from base_dev_evaluation " in outcome.error
        assert "; materialize communication_comparison, then gate_verdicts again" in outcome.error
        (micro,) = arena("--json").json
        assert "gate_verdicts, experiment micro: made from base_dev_evaluation " in micro["verdict"]
    assert "Gates of micro" in arena(*GATES).out


def test_ctrl_c_in_mid_generation_loses_no_finished_batch(arena: Arena, finished: Lineage) -> None:
    finished.edit_experiment("batch_size = 64", "batch_size = 2")
    command = [sys.executable, "-c", PROGRAM, *RUN, "--until", "base_dev_evaluation"]
    work = finished.storage / "artifacts" / "work" / "base_dev_evaluation"

    def stored() -> bytes:
        return b"".join(path.read_bytes() for path in work.glob("*/output/responses-broadcast.jsonl"))

    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while stored().count(b"\n") < 2:
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=120)
    assert child.returncode == 130
    assert error.count("\n") == 1
    assert "goes on from here, no finished batch is lost" in error
    assert out.splitlines()[-1].startswith("stopped   base_dev_evaluation")
    kept = stored()
    assert kept.count(b"\n") >= 2

    again = arena(*RUN, "--until", "base_dev_evaluation", "--json")
    assert again.status == 0
    assert "base_dev_evaluation" in again.json["computed"]
    responses = materialized(finished, "base_dev_evaluation").read_bytes("responses-broadcast.jsonl")
    whole_lines = kept[: kept.rfind(b"\n") + 1]
    assert responses.startswith(whole_lines)
    assert json.loads(responses.splitlines()[0])["batch_size"] == 2
