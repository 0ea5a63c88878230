"""Checkpoint selection: the rule, its ties, what it refuses, and properties that hold for any candidates."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import ArenaError, EvaluationError
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.gates import protocol_gates
from arena_pipeline.provenance.files import write_json
from arena_pipeline.sft.labels import plain_rows
from arena_pipeline.sft.rows import content_sha256
from arena_pipeline.sft.selection import Candidate, Eligibility, read_candidate, require_scored_on, select

ROOT = Path(__file__).parents[2]


def summary(
    step: int | None = 30, act: dict[str, Any] | None = None, broadcast: dict[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    """A perfect checkpoint's summary but for what is given."""

    def phase(examples: int, changes: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "examples": examples,
            "schema_valid": 1.0,
            "supported": 1.0,
            "legal": 1.0,
            "exact": 1.0,
            **(changes or {}),
        }

    act_figures, broadcast_figures = phase(52, act), phase(223, broadcast)
    return {
        "split": "validation",
        "step": step,
        "examples": 275,
        "schema_valid": 1.0,
        "supported": 1.0,
        "legal": 1.0,
        "exact": 0.5,
        "selection_score": (broadcast_figures["exact"] + act_figures["exact"]) / 2,
        "act": act_figures,
        "broadcast": broadcast_figures,
        **top,
    }


def candidate(*arguments: Any, **changes: Any) -> Candidate:
    body = summary(*arguments, **changes)
    return Candidate(f"step-{body['step']}/summary.json", body)


@pytest.mark.parametrize(
    ("act", "broadcast", "failures"),
    [
        ({"schema_valid": 0.995}, {}, []),
        ({"schema_valid": 0.9949}, {}, ["action_schema"]),
        ({}, {"schema_valid": 0.99}, []),
        ({}, {"schema_valid": 0.9899}, ["broadcast_schema"]),
        ({}, {"supported": 0.9999}, ["unsupported_facts"]),
        ({"legal": 0.95}, {}, []),
        ({"legal": 0.9499}, {}, ["legal_actions"]),
        ({"supported": 0.0, "exact": 0.0}, {"legal": 0.0, "exact": 0.0}, []),
        (
            {"schema_valid": 0.9, "legal": 0.9},
            {"schema_valid": 0.9, "supported": 0.9},
            ["action_schema", "broadcast_schema", "unsupported_facts", "legal_actions"],
        ),
    ],
)
def test_eligibility(act: dict[str, Any], broadcast: dict[str, Any], failures: list[str]) -> None:
    result = select([candidate(30, act, broadcast)])
    assert result["candidates"][0]["failures"] == failures
    assert (result["selected_step"], result["num_eligible"]) == ((None, 0) if failures else (30, 1))


POLICY = GatePolicy.load(ROOT / "data" / "gates.toml")
STRICTER = replace(
    POLICY, thresholds={**POLICY.thresholds, "action_schema": 0.999, "broadcast_schema": 0.995, "legal_actions": 1.0}
)


def test_the_specifications_rates_are_those_of_the_committed_policy() -> None:
    assert Eligibility.of_gates(POLICY.thresholds) == Eligibility()


@pytest.mark.parametrize("policy", [POLICY, STRICTER])
@pytest.mark.parametrize("rate", [0.0, 0.9499, 0.95, 0.9899, 0.99, 0.9949, 0.995, 0.9989, 0.999, 1.0])
@pytest.mark.parametrize("phase", ["act", "broadcast"])
@pytest.mark.parametrize("figure", ["schema_valid", "supported", "legal"])
def test_what_is_eligible_is_what_passes_the_protocol_gates(
    policy: GatePolicy, phase: str, figure: str, rate: float
) -> None:
    """Selection and verdict look at the same summary, so they must not say different things of it."""
    changed = summary(**{phase: {figure: rate}})
    broadcast = changed["broadcast"]
    # As the scorer writes it: facts are counted, and without a well-formed message none is supported.
    if broadcast["schema_valid"] == 0:
        broadcast["supported"] = 0.0
    broadcast["unsupported_facts"] = 0 if broadcast["schema_valid"] == 0 or broadcast["supported"] == 1 else 3
    failed = [gate.name for gate in protocol_gates(changed, policy) if not gate.passed]
    assert Eligibility.of_gates(policy.thresholds).failures(changed) == failed


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # The score first.
        (candidate(60, {"exact": 0.9}, {"exact": 0.9}), candidate(30, {"exact": 0.81}, {"exact": 0.98})),
        # Equal scores: broadcast exact, also where the two sums differ in their last bit.
        (candidate(60, {"exact": 0.8}, {"exact": 0.9}), candidate(30, {"exact": 0.85}, {"exact": 0.85})),
        (candidate(60, {"exact": 0.1}, {"exact": 0.7}), candidate(30, {"exact": 0.4}, {"exact": 0.4})),
        # Equal exact rates: broadcast supported (a looser rule leaves both eligible), then action legal.
        (candidate(60, {}, {"supported": 1.0}), candidate(30, {}, {"supported": 0.99})),
        (candidate(60, {"legal": 0.99}), candidate(30, {"legal": 0.98})),
        # All equal: the earlier step.
        (candidate(30), candidate(60)),
        # The whole-split rates and the other columns never decide.
        (candidate(30, {"schema_valid": 0.996}), candidate(60, {"schema_valid": 1.0})),
        (candidate(30, {}, {"legal": 0.1}), candidate(60, {}, {"legal": 1.0})),
        (candidate(30, {"supported": 0.1}, loss=9.0), candidate(60, loss=0.001)),
    ],
)
def test_order(better: Candidate, worse: Candidate) -> None:
    loose = Eligibility(broadcast_supported=0.9)
    for pair in ([better, worse], [worse, better]):
        assert select(pair, eligibility=loose)["selected_step"] == better.step


def test_ineligible_candidates_are_not_selected_however_good() -> None:
    best = candidate(90, {}, {"supported": 0.999})
    good = candidate(60, {"exact": 0.7}, {"exact": 0.7})
    result = select([best, good])
    assert (result["selected_step"], result["best_scoring_step"], result["num_eligible"]) == (60, 90, 1)
    assert [(entry["step"], entry["eligible"]) for entry in result["candidates"]] == [(60, True), (90, False)]


def test_none_eligible_gives_each_ones_failures() -> None:
    result = select([candidate(60, {"legal": 0.5}), candidate(30, {}, {"schema_valid": 0.5, "exact": 0.5})])
    assert (result["selected_step"], result["num_eligible"], result["best_scoring_step"]) == (None, 0, 60)
    assert {entry["step"]: entry["failures"] for entry in result["candidates"]} == {
        30: ["broadcast_schema"],
        60: ["legal_actions"],
    }


def test_differences_to_the_base() -> None:
    base = Candidate("base/summary.json", summary(None, {"exact": 0.2}, {"exact": 0.5, "schema_valid": 0.3}))
    result = select([candidate(30, {"exact": 0.6}, {"exact": 0.9})], base)
    assert result["base_selection_score"] == 0.35
    assert result["candidates"][0]["score_difference_to_base"] == 0.4
    assert "score_difference_to_base" not in select([candidate(30)])["candidates"][0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"split": "test"}, "split is 'test'"),
        ({"split": None}, "split"),
        ({"examples": 0}, "examples is 0"),
        ({"examples": True}, "examples is True"),
        ({"exact": None}, "exact is None"),
        ({"exact": float("nan")}, "exact is nan"),
        ({"legal": 1.01}, r"legal is 1\.01"),
        ({"selection_score": 0.5}, r"selection_score is 0\.5"),
        ({"selection_score": None}, "selection_score is None"),
        ({"act": None}, "'act' is missing"),
        ({"broadcast": {"examples": 223}}, "broadcast.schema_valid is None"),
        ({"act": {**summary()["act"], "legal": "1.0"}}, "act.legal is '1.0'"),
        ({"act": {**summary()["act"], "examples": 52.0}}, "act.examples is 52.0"),
    ],
)
def test_summaries_that_say_too_little_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(EvaluationError, match=named):
        Candidate("a/summary.json", {**summary(), **change})


@pytest.mark.parametrize("step", [None, -1, 1.5, True, "30"])
def test_a_checkpoint_has_a_step(step: Any) -> None:
    with pytest.raises(EvaluationError, match="step is"):
        select([Candidate("a/summary.json", {**summary(), "step": step})])


def test_candidates_must_be_comparable() -> None:
    fewer = candidate(60, examples=274)
    with pytest.raises(EvaluationError, match=r"step-60.*274.*275"):
        select([candidate(30), fewer])
    with pytest.raises(EvaluationError, match="scored on"):
        select([candidate(30), candidate(60, {"examples": 53}, {"examples": 222})])
    with pytest.raises(EvaluationError, match="scored on"):
        select([candidate(30)], candidate(0, {"examples": 51}))
    with pytest.raises(EvaluationError, match="id-hashes differ"):
        select([candidate(30, ids_sha256="1" * 64), candidate(60, ids_sha256="2" * 64)])
    with pytest.raises(EvaluationError, match="id-hashes differ"):
        select([candidate(30, ids_sha256="1" * 64)], candidate(0, ids_sha256="2" * 64))
    with pytest.raises(EvaluationError, match="both are of step 30"):
        select([candidate(30), candidate(30)])
    with pytest.raises(EvaluationError, match="at least one"):
        select([])
    assert select([candidate(30, ids_sha256="1" * 64), candidate(60)])["selected_step"] == 30


def test_files_from_anywhere(tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", summary(120, train_loss=0.1, origin="another machine"))
    read = read_candidate(tmp_path / "summary.json")
    assert (read.step, read.source) == (120, str(tmp_path / "summary.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ArenaError, match=r"list\.json: not a JSON object"):
        read_candidate(tmp_path / "list.json")
    with pytest.raises(ArenaError, match=r"none\.json"):
        read_candidate(tmp_path / "none.json")


def test_the_graph_demands_the_whole_pinned_split() -> None:
    pack = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
    rows = [row for seed in range(3) for row in plain_rows(pack, seed, Counter())]
    act = sum(row.phase == "ACT" for row in rows)
    counts = {"act": {"examples": act}, "broadcast": {"examples": len(rows) - act}}
    ids = content_sha256(row.id for row in rows)

    def scored(step: int, **changes: Any) -> Candidate:
        return candidate(step, **counts, examples=len(rows), **{"ids_sha256": ids, **changes})

    eight = [scored(step) for step in range(8)]
    require_scored_on(eight, rows)
    with pytest.raises(EvaluationError, match="7 checkpoints"):
        require_scored_on(eight[:7], rows)
    require_scored_on(eight[:2], rows, at_least=2)
    with pytest.raises(EvaluationError, match="step-8"):
        require_scored_on([*eight, scored(8, ids_sha256="0" * 64)], rows)
    with pytest.raises(EvaluationError, match="id-hash None"):
        require_scored_on([*eight, scored(8, ids_sha256=None)], rows)
    with pytest.raises(EvaluationError, match="whole split"):
        require_scored_on(eight, rows[:-1])


rates = st.sampled_from([0.9, 0.94, 0.95, 0.98, 0.99, 0.995, 1.0])
figures = st.fixed_dictionaries({"schema_valid": rates, "supported": rates, "legal": rates, "exact": rates})
candidates = st.lists(
    st.builds(candidate, st.integers(0, 500), figures, figures), min_size=1, max_size=8, unique_by=lambda one: one.step
)


@given(candidates=candidates, seed=st.integers())
def test_the_order_of_files_does_not_matter(candidates: list[Candidate], seed: int) -> None:
    shuffled = copy.copy(candidates)
    random.Random(seed).shuffle(shuffled)
    assert select(shuffled) == select(candidates)


@given(candidates=candidates)
def test_the_selected_one_is_eligible_and_best(candidates: list[Candidate]) -> None:
    result = select(candidates)
    eligible = [one for one in candidates if not Eligibility().failures(one.summary)]
    assert result["num_eligible"] == len(eligible)
    assert (result["selected_step"] is None) == (not eligible)
    for one in eligible:
        chosen = next(other for other in candidates if other.step == result["selected_step"])
        assert chosen.score >= one.score
        assert one.rank() <= chosen.rank()


@given(candidates=candidates, figures=figures)
def test_an_ineligible_candidate_changes_nothing(candidates: list[Candidate], figures: dict[str, float]) -> None:
    ineligible = candidate(501, {**figures, "schema_valid": 0.5}, figures)
    with_it, without = select([*candidates, ineligible]), select(candidates)
    assert with_it["selected_step"] == without["selected_step"]
    assert with_it["num_eligible"] == without["num_eligible"]


@given(candidates=candidates)
def test_selecting_does_not_look_at_loss(candidates: list[Candidate]) -> None:
    with_loss = [
        Candidate(one.source, {**one.summary, "train_loss": -one.step, "validation_loss": one.step})
        for one in candidates
    ]
    assert select(with_loss) == select(candidates)
