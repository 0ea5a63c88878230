"""The verdict as a whole: from scored directories to promotion, claim and the table a person reads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.baselines import baselines
from arena_pipeline.evaluation.evidence import ArenaEvidence, Evidence, SealedEvidence
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.gates import GATE_NAMES
from arena_pipeline.evaluation.runner import evaluate, recompute
from arena_pipeline.evaluation.statistics import z_of_opening
from arena_pipeline.evaluation.verdict import IMITATION_LIMIT, build_verdict, development_gates
from arena_pipeline.evaluation.verdict_table import render_verdict
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline_tests.evaluation.players import (
    ADAPTER_SHA256,
    BASE_SHA256,
    ROOT,
    Impersonator,
    Listener,
    RamblingPlayer,
    identity,
    pack,
)

MANIFEST = "arena-dev:30"
IDS_SHA256 = {"validation": "1" * 64, "test": "2" * 64}
POLICY = GatePolicy.load(ROOT / "data" / "gates.toml")
OPENING = {
    "sealed_set": "5" * 64,
    "experiment_identity": "e" * 64,
    "experiment_name": "tiny",
    "adapter_sha256": ADAPTER_SHA256,
    "run_id": "1",
    "opened_at": "2026-11-30T12:00:00+00:00",
    "ordinal": 1,
}


def split_summary(split: str, legal: int = 52, step: int | None = 240) -> dict[str, Any]:
    def phase(n: int, legal: int, **extra: Any) -> dict[str, Any]:
        counts = {"schema_valid": n, "supported": n, "legal": legal, "exact": legal}
        return {"examples": n, "counts": counts, **{key: count / n for key, count in counts.items()}, **extra}

    return {
        "split": split,
        "step": step,
        "examples": 275,
        "act": phase(52, legal),
        "broadcast": phase(223, 223, facts=500, unsupported_facts=0),
        "ids_sha256": IDS_SHA256[split],
        "model": identity(ADAPTER_SHA256),
    }


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    players = {
        "waiting": Impersonator("wait"),
        "rambling": RamblingPlayer(),
        "local": Impersonator("independent_local", ADAPTER_SHA256),
        "listening": Listener(ADAPTER_SHA256),
        "worse": RamblingPlayer(ADAPTER_SHA256),
    }
    found = {}
    for name, player in players.items():
        found[name] = tmp_path_factory.mktemp(name)
        evaluate(found[name], MANIFEST, pack(), player, batch_size=64)
    return found


@pytest.fixture(scope="module")
def arena(directories: dict[str, Path]) -> Callable[[str, str], ArenaEvidence]:
    rows = {name: recompute(directory).rows for name, directory in directories.items()}
    table = baselines(MANIFEST)
    return lambda base, tuned: ArenaEvidence(rows[base], rows[tuned], table)


@pytest.fixture
def evidence(arena: Callable[[str, str], ArenaEvidence]) -> Evidence:
    """A promotion with a coordination claim: every gate passes."""
    listening = arena("waiting", "listening")
    return Evidence(
        experiment="tiny",
        code_version="1.0",
        policy=POLICY,
        dataset_version="arena-sft-v3",
        dataset_sha256="d" * 64,
        manifest_sha256=listening.tuned_rows[0]["manifest_sha256"],
        base_sha256=BASE_SHA256,
        adapter_sha256=ADAPTER_SHA256,
        selection={"selected_step": 240, "best_scoring_step": 240, "num_eligible": 3},
        validation=split_summary("validation"),
        ids_sha256=IDS_SHA256,
        sealed=SealedEvidence(split_summary("test", step=None), listening, opening=1),
        openings=(OPENING,),
    )


def with_arena(evidence: Evidence, arena: ArenaEvidence) -> Evidence:
    assert evidence.sealed
    return replace(evidence, sealed=replace(evidence.sealed, arena=arena))


def statuses(verdict: dict[str, Any]) -> dict[str, str]:
    return {gate["name"]: gate["status"] for gate in verdict["gates"]}


def test_all_gates_pass(evidence: Evidence) -> None:
    verdict = build_verdict(evidence)
    assert list(statuses(verdict)) == list(GATE_NAMES)
    assert set(statuses(verdict).values()) == {"passed"}
    assert (verdict["promoted"], verdict["coordination_claim"]) == (True, True)
    assert verdict["test_openings"] == [OPENING]
    for key in ("base_sha256", "adapter_sha256", "dataset_sha256", "manifest_sha256", "code_version", "experiment"):
        assert verdict[key] == getattr(evidence, key)
    assert verdict["policy_sha256"] == POLICY.sha256
    for gate in verdict["gates"]:
        assert {"name", "passed", "figure", "threshold", "interval", "n", "diagnosis"} <= set(gate)
        assert (gate["passed"], gate["diagnosis"]) == (True, "")


def test_a_verdict_is_json_and_computed_again_equal(
    evidence: Evidence, directories: dict[str, Path], arena: Callable[[str, str], ArenaEvidence]
) -> None:
    verdict = build_verdict(evidence)
    saved = json.loads(canonical_json(verdict))
    again = ArenaEvidence(
        recompute(directories["waiting"]).rows,
        [json.loads(line) for line in (directories["listening"] / "rows.jsonl").read_text().splitlines()],
        json.loads(json.dumps(arena("waiting", "listening").baselines)),
    )
    assert json.loads(canonical_json(build_verdict(with_arena(evidence, again)))) == saved


def test_imitation_is_a_warm_start_without_a_claim(
    evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]
) -> None:
    imitation = replace(with_arena(evidence, arena("waiting", "local")), dataset_version="arena-sft-v2")
    verdict = build_verdict(imitation)
    assert (verdict["promoted"], verdict["coordination_claim"]) == (True, False)
    assert verdict["conclusion"] == "promoted as a warm start, no coordination claim"
    gates = {gate["name"]: gate for gate in verdict["gates"]}
    for name in ("communication_useful", "communication_semantic"):
        assert (gates[name]["passed"], gates[name]["figure"], gates[name]["interval"]) == (False, 0, [0, 0])
        assert gates[name]["power"] == "effect_below_delta"
    assert IMITATION_LIMIT in verdict["notes"]
    assert build_verdict(replace(imitation, dataset_version="arena-sft-v3"))["promoted"] is True
    assert IMITATION_LIMIT not in build_verdict(evidence)["notes"]


def test_no_better_than_the_base_is_not_promoted(
    evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]
) -> None:
    verdict = build_verdict(with_arena(evidence, arena("rambling", "worse")))
    assert (verdict["promoted"], verdict["coordination_claim"]) == (False, False)
    assert statuses(verdict)["oracle_regret"] == "failed"
    assert "oracle_regret" in verdict["conclusion"]
    regret = next(gate for gate in verdict["gates"] if gate["name"] == "oracle_regret")
    assert (regret["figure"], regret["power"]) == (0, "effect_below_delta")


def test_no_claim_without_promotion(evidence: Evidence) -> None:
    assert evidence.sealed
    failing = replace(evidence, sealed=replace(evidence.sealed, test=split_summary("test", legal=40, step=None)))
    verdict = build_verdict(failing)
    assert statuses(verdict)["communication_useful"] == "passed"
    assert statuses(verdict)["test_confirmation"] == "failed"
    assert (verdict["promoted"], verdict["coordination_claim"]) == (False, False)


def test_standing_shows_a_crippled_base(evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]) -> None:
    verdict = build_verdict(evidence)
    standing = {row["player"]: row["mean_regret"] for row in verdict["standing"]}
    assert set(standing) == {"exact_solver", "independent_local", "random_legal", "base", "sft"}
    assert standing["exact_solver"] == standing["sft"] == 0
    assert [row["mean_regret"] for row in verdict["standing"]] == sorted(standing.values())
    assert standing["base"] > standing["random_legal"]
    assert ["worse than random_legal" in note for note in verdict["notes"]] == [True]
    weaker = copy.deepcopy(arena("waiting", "listening"))
    for figures in weaker.baselines["policies"]:
        if figures["policy"] == "random_legal":
            figures["mean_oracle_regret"] = standing["base"]
    assert build_verdict(with_arena(evidence, weaker))["notes"] == []
    assert verdict["arena_replies"]["sft"]["strict_message_rate"] == 1.0
    assert set(verdict["arena_replies"]["base"]["strict_action_rate"]) == {
        "generated",
        "dropped",
        "reference",
        "shuffled",
    }


def test_a_later_opening_judges_with_wider_intervals(evidence: Evidence) -> None:
    assert evidence.sealed
    earlier = {**OPENING, "experiment_name": "earlier", "adapter_sha256": "c" * 64}
    second = replace(
        evidence,
        sealed=replace(evidence.sealed, opening=2),
        openings=({**OPENING, "ordinal": 2}, earlier),
    )
    verdict = build_verdict(second)
    assert (verdict["opening"], verdict["interval_level"]) == (2, 0.975)
    assert len(verdict["test_openings"]) == 2
    first = {gate["name"]: gate for gate in build_verdict(evidence)["gates"]}
    for gate in verdict["gates"]:
        if gate["name"] in ("oracle_regret", "communication_useful", "communication_semantic"):
            before = first[gate["name"]]
            ratio = (gate["interval"][1] - gate["figure"]) / (before["interval"][1] - before["figure"])
            assert ratio == pytest.approx(z_of_opening(2) / 1.96)
        if gate["name"] in ("action_schema", "legal_actions"):
            assert gate["interval"] == first[gate["name"]]["interval"]
    assert [opening["experiment_name"] for opening in verdict["test_openings"]] == ["earlier", "tiny"]
    with pytest.raises(EvaluationError, match="opening 2: the ledger lists 1"):
        build_verdict(replace(second, openings=(OPENING,)))
    with pytest.raises(EvaluationError, match="opening 2: adapter_sha256"):
        build_verdict(replace(second, openings=(OPENING, {**earlier, "ordinal": 2})))


def test_what_the_ledger_adds_later_does_not_change_a_verdict(evidence: Evidence) -> None:
    completed = {**OPENING, "completed_at": "2026-12-01T00:00:00+00:00", "verdict_sha256": "f" * 64}
    later = {**OPENING, "ordinal": 2, "experiment_name": "later"}
    assert build_verdict(replace(evidence, openings=(completed, later))) == build_verdict(evidence)


def test_none_eligible(evidence: Evidence) -> None:
    verdict = build_verdict(
        replace(
            evidence,
            selection={"selected_step": None, "best_scoring_step": 90, "num_eligible": 0},
            validation=split_summary("validation", legal=40, step=90),
            sealed=None,
            closed_because="no checkpoint is eligible",
            openings=(),
        )
    )
    assert (verdict["promoted"], verdict["coordination_claim"], verdict["test_openings"]) == (False, False, [])
    assert statuses(verdict) == {
        name: {"legal_actions": "failed"}.get(name, "passed" if index < 4 else "not_evaluated")
        for index, name in enumerate(GATE_NAMES)
    }
    assert verdict["conclusion"] == "not promoted: no checkpoint is eligible"
    assert (verdict["selected_step"], verdict["judged_step"]) == (None, 90)
    assert all("no checkpoint is eligible" in gate["diagnosis"] for gate in verdict["gates"][4:])


def test_a_rehearsal_promotes_nothing(evidence: Evidence) -> None:
    verdict = build_verdict(replace(evidence, result=False))
    assert all(gate["passed"] for gate in verdict["gates"])
    assert (verdict["result"], verdict["promoted"], verdict["coordination_claim"]) == (False, False, False)
    assert verdict["conclusion"].startswith("a rehearsal")


def test_sealed_sets_stay_closed_while_dev_fails(
    evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]
) -> None:
    development = arena("rambling", "worse")
    gates = development_gates(evidence.validation, development, POLICY)
    assert [gate.name for gate in gates] == list(GATE_NAMES[:6])
    assert [gate.name for gate in gates if not gate.passed] == ["oracle_regret", "order_robustness"]
    closed = replace(
        evidence, sealed=None, development=development, closed_because="oracle_regret fails on arena-dev:30"
    )
    verdict = build_verdict(closed)
    assert verdict["promoted"] is False
    assert verdict["conclusion"] == "not promoted: oracle_regret fails on arena-dev:30"
    assert [gate["name"] for gate in verdict["development"]["gates"]] == list(GATE_NAMES[:6])
    assert verdict["development"]["manifest"] == MANIFEST
    with pytest.raises(EvaluationError, match="must say why"):
        build_verdict(replace(closed, closed_because=""))
    assert all(gate.passed for gate in development_gates(evidence.validation, arena("waiting", "local"), POLICY))


def other_model(summary: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**summary, "model": {**summary["model"], **changes}}


def without_ids(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "ids_sha256"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda e: replace(e, validation=split_summary("test")), "validation: split"),
        (lambda e: replace(e, validation=split_summary("validation", step=120)), "validation: step"),
        (lambda e: replace(e, validation=other_model(e.validation, adapter_sha256="c" * 64)), "validation: adapter"),
        (lambda e: replace(e, validation=other_model(e.validation, base_sha256="c" * 64)), "validation: base"),
        (lambda e: replace(e, validation={**e.validation, "ids_sha256": "3" * 64}), "validation: ids_sha256 is '33"),
        (lambda e: replace(e, validation=without_ids(e.validation)), "validation: ids_sha256 is None"),
        (lambda e: replace(e, sealed=replace(e.sealed, test=split_summary("validation"))), "test: split"),
        (
            lambda e: replace(e, sealed=replace(e.sealed, test={**e.sealed.test, "ids_sha256": "1" * 64})),
            "test: ids_sha256 is '11.*the verdict is about '22",
        ),
        (lambda e: replace(e, sealed=replace(e.sealed, test=without_ids(e.sealed.test))), "test: ids_sha256 is None"),
        (
            lambda e: replace(e, sealed=replace(e.sealed, test=other_model(e.sealed.test, adapter_sha256=None))),
            "test: adapter",
        ),
        (lambda e: replace(e, manifest_sha256="0" * 64), "sealed arena: manifest_sha256"),
        (lambda e: replace(e, adapter_sha256="c" * 64), "adapter_sha256"),
        (lambda e: replace(e, base_sha256="c" * 64), "base_sha256"),
        (
            lambda e: replace(e, selection={"selected_step": None, "best_scoring_step": 240}),
            "no checkpoint was eligible",
        ),
        (
            lambda e: with_arena(e, replace(e.sealed.arena, base_rows=e.sealed.arena.tuned_rows)),
            "sealed arena of the base: adapter_sha256",
        ),
        (lambda e: with_arena(e, replace(e.sealed.arena, tuned_rows=e.sealed.arena.tuned_rows[:-1])), "manifest"),
        (
            lambda e: with_arena(
                e, replace(e.sealed.arena, baselines={**e.sealed.arena.baselines, "manifest_sha256": ""})
            ),
            "baselines: manifest_sha256",
        ),
    ],
)
def test_evidence_that_does_not_belong_together_is_refused(
    evidence: Evidence, change: Callable[[Evidence], Evidence], named: str
) -> None:
    with pytest.raises(EvaluationError, match=named):
        build_verdict(change(evidence))


def shown(verdict: dict[str, Any]) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(render_verdict(verdict))
    return console.export_text()


def test_the_table(evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]) -> None:
    imitation = replace(with_arena(evidence, arena("waiting", "local")), dataset_version="arena-sft-v2")
    text = shown(build_verdict(imitation))
    for name in (*GATE_NAMES, "independent_local", "random_legal", "exact_solver"):
        assert name in text
    assert " ".join(text.split()).count(IMITATION_LIMIT) == 1
    assert "tiny: promoted as a warm start, no coordination claim" in text
    assert "opened by 1 experiment of this instance; this is opening 1" in text
    assert "strict messages 100.0%" in text


def line_of(text: str, part: str) -> list[str]:
    """The cells of a table's only row of that name."""
    rows = (line for line in text.splitlines() if "│" in line)
    (found,) = (line for line in rows if line.strip("│").split("│")[0].strip() == part)
    return [cell.strip() for cell in found.strip("│").split("│")]


def test_the_table_shows_the_parts_of_gates(evidence: Evidence) -> None:
    assert evidence.sealed
    missed = replace(evidence, sealed=replace(evidence.sealed, test=split_summary("test", legal=40, step=None)))
    verdict = build_verdict(missed)
    text = shown(verdict)
    gates = {gate["name"]: gate for gate in verdict["gates"]}
    after = text[text.index("test_confirmation") :]
    assert line_of(after, "legal_actions")[1:5] == ["FAIL", "40", "0.7692", ">= 0.95"]
    assert line_of(after, "action_schema")[1:5] == ["pass", "52", "1", ">= 0.995"]
    assert line_of(after, "unsupported_facts")[1:5] == ["pass", "0", "0", "<= 0"]
    details = gates["order_robustness"]["details"]
    for play, paired in details["regret_increase"].items():
        assert line_of(text, f"regret increase, {play}")[1:4] == ["pass", "", f"{paired['mean']:.4g}"]
    for play, rate in details["strict_action_rate"].items():
        assert line_of(text, f"strict actions, {play}")[3] == f"{rate:.4g}"
    for play, fall in details["strict_action_fall"].items():
        assert line_of(text, f"fall of strict actions, {play}")[3] == f"{fall:.4g}"


def test_the_table_of_a_closed_verdict(evidence: Evidence) -> None:
    closed = replace(evidence, sealed=None, closed_because="no checkpoint is eligible", openings=())
    text = shown(build_verdict(closed))
    assert text.count("not evaluated") == 5
    assert " ".join(text.split()).count("not_evaluated: no checkpoint is eligible") == 1, "said once, of all five gates"
    assert "oracle_regret, order_robustness, test_confirmation, communication_useful, communication_semantic:" in text
    assert "opened by 0 experiments" in text


def test_the_table_of_a_closed_verdict_shows_development(
    evidence: Evidence, arena: Callable[[str, str], ArenaEvidence]
) -> None:
    closed = replace(
        evidence, sealed=None, development=arena("rambling", "worse"), closed_because="oracle_regret", openings=()
    )
    verdict = build_verdict(closed)
    text = shown(verdict)
    assert f"Gates on {MANIFEST} and validation" in text
    assert "Arena replies, sft: strict messages" in text
    plain = " ".join(text.split())
    assert f"Standing on the development manifest {MANIFEST}, messages generated" in plain
    for gate in verdict["development"]["gates"]:
        assert plain.count(f"{gate['name']}: {gate['diagnosis']}") == (0 if gate["passed"] else 1)
