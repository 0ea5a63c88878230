"""Scoring replies to rows: every fault lands in its own rate, and everything follows from the saved responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import ArenaError, DatasetError, EvaluationError, SealedSetRefused
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.serving.requests import Completion, Request
from arena_pipeline.sft.labels import plain_rows, silence_rows, skill_rows
from arena_pipeline.sft.rows import Row, content_sha256
from arena_pipeline.sft.scoring import recompute_scores, score_rows, score_split, summarize_scores
from arena_pipeline.sft.selection import Candidate, select
from arena_pipeline.sft.splits import split_for_seed

ROOT = Path(__file__).parents[2]
PACK = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
MODEL = {"kind": "transformers", "base_sha256": "b" * 64, "adapter_sha256": "a" * 64}


def rows_of(split: str, seeds: int = 9) -> list[Row]:
    chosen = [seed for seed in range(500) if split_for_seed(seed) == split][:seeds]
    return [row for seed in chosen for row in plain_rows(PACK, seed, Counter())]


ROWS = rows_of("validation")
BROADCASTS = [row for row in ROWS if row.phase == "BROADCAST"]
ACTS = [row for row in ROWS if row.phase == "ACT"]


class Answerer:
    """Replies to each row with its label, or with what is given for its id."""

    reads_case = False
    lanes = 1

    def __init__(self, rows: Sequence[Row], replies: dict[str, str] | None = None, **changes: Any) -> None:
        self.identity = {**MODEL, **changes}
        self.asked = 0
        self._replies = {row.id: row.label for row in rows} | (replies or {})

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += len(requests)
        return [Completion(self._replies[request.key], "stop", 9, 9) for request in requests]


def scored(replies: dict[str, str], rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    completions = {row.id: Completion(replies.get(row.id, row.label), "stop") for row in rows}
    return summarize_scores(score_rows(rows, completions), rows, step=30, model=MODEL)


def test_labels_score_perfectly() -> None:
    summary = scored({})
    for figures in (summary, summary["act"], summary["broadcast"]):
        assert [figures[key] for key in ("schema_valid", "supported", "legal", "exact")] == [1.0] * 4
    assert (summary["split"], summary["step"], summary["selection_score"]) == ("validation", 30, 1.0)
    assert (summary["examples"], summary["act"]["examples"]) == (len(ROWS), len(ACTS))
    assert summary["broadcast"]["examples"] == len(BROADCASTS) == 36
    assert summary["broadcast"]["facts"] == sum(len(json.loads(row.label)["facts"]) for row in BROADCASTS)
    assert summary["broadcast"]["unsupported_facts"] == 0
    assert summary["ids_sha256"] == content_sha256(row.id for row in ROWS)
    assert summary["model"] == MODEL


def test_a_summary_is_what_selection_reads() -> None:
    assert select([Candidate("summary.json", scored({}))])["selected_step"] == 30


def test_targeted_and_silence_rows_are_scored_on_their_own_states() -> None:
    rows = [row for skill in ("WAIT", "SCAN", "TRANSFER") for row in skill_rows(PACK, skill, 0, Counter())]
    silent = [row for row in silence_rows(PACK, 0) if row.split == "validation"][:5]
    rows = [row for row in rows if row.split == "validation"] + silent
    summary = scored({}, rows)
    assert summary["exact"] == 1.0
    assert summary["act"]["examples"] == 12
    assert (summary["broadcast"]["empty_share"], summary["broadcast"]["facts"]) == (1.0, 0)


def broadcast(change: Callable[[dict[str, Any]], None]) -> tuple[Row, str]:
    """A row whose label has at least two facts, and the label changed."""
    row = next(row for row in BROADCASTS if len(json.loads(row.label)["facts"]) >= 2)
    body = json.loads(row.label)
    change(body)
    return row, json.dumps(body)


def false_value(body: dict[str, Any]) -> None:
    body["facts"][0]["value"] = body["facts"][0]["value"] % 3 + 1


@pytest.mark.parametrize(
    ("change", "wrong", "unsupported"),
    [
        (lambda body: body.update(extra=1), ["schema_valid", "legal", "exact"], 0),
        (lambda body: body.update(request_resource=True), ["schema_valid", "legal", "exact"], 0),
        (false_value, ["supported", "exact"], 1),
        (lambda body: body.update(intent={"type": "SCAN", "target": "V00"}), ["legal", "exact"], 0),
        (lambda body: body["facts"].reverse(), ["exact"], 0),
        (lambda body: body["facts"].clear(), ["exact"], 0),
    ],
)
def test_each_fault_of_a_broadcast_lands_in_its_rate(
    change: Callable[[dict[str, Any]], None], wrong: list[str], unsupported: int
) -> None:
    row, reply = broadcast(change)
    figures = scored({row.id: reply})["broadcast"]
    assert [key for key in ("schema_valid", "supported", "legal", "exact") if figures[key] < 1] == wrong
    assert figures["unsupported_facts"] == unsupported
    assert all(figures["counts"][key] == 35 for key in wrong)


def test_supported_is_among_the_schema_valid() -> None:
    row, reply = broadcast(false_value)
    others = [other for other in BROADCASTS if other is not row]
    figures = scored({row.id: reply, others[0].id: "no", others[1].id: "{"})["broadcast"]
    assert figures["schema_valid"] == 34 / 36
    assert figures["supported"] == 33 / 34
    assert (figures["legal"], figures["exact"]) == (34 / 36, 33 / 36)


def test_faults_of_actions() -> None:
    first = ACTS[0]
    other = '{"action_id":"A1"}' if first.label == '{"action_id":"A0"}' else '{"action_id":"A0"}'
    n = len(ACTS)
    for reply, expected in (
        (other, (1.0, 1.0, 1.0, (n - 1) / n)),
        ('{"action_id":"A999"}', (1.0, (n - 1) / n, (n - 1) / n, (n - 1) / n)),
        ('{"action_id":"A01"}', ((n - 1) / n, 1.0, (n - 1) / n, (n - 1) / n)),
        (f"Sure: {first.label}", ((n - 1) / n, 1.0, (n - 1) / n, (n - 1) / n)),
    ):
        figures = scored({first.id: reply})["act"]
        assert tuple(figures[key] for key in ("schema_valid", "supported", "legal", "exact")) == expected, reply


def test_values_are_compared_and_not_texts() -> None:
    replies = {row.id: json.dumps(json.loads(row.label), indent=1) for row in ROWS}
    assert all(replies[row.id] != row.label for row in ROWS)
    assert scored(replies)["exact"] == 1.0


def test_nothing_well_formed_supports_nothing() -> None:
    summary = scored({row.id: "" for row in ROWS})
    assert (summary["schema_valid"], summary["supported"], summary["selection_score"]) == (0.0, 0.0, 0.0)


def test_replies_cut_at_the_limit_are_counted() -> None:
    completions = {row.id: Completion(row.label, "length" if row is ACTS[0] else "stop") for row in ROWS}
    summary = summarize_scores(score_rows(ROWS, completions), ROWS, step=None, model=MODEL)
    counts = (summary["cut_at_token_limit"], summary["act"]["cut_at_token_limit"])
    assert (*counts, summary["broadcast"]["cut_at_token_limit"]) == (1, 1, 0)


def test_every_row_is_answered_or_nothing_is_scored() -> None:
    completions = {row.id: Completion(row.label, "stop") for row in ROWS}
    del completions[ROWS[5].id]
    with pytest.raises(EvaluationError, match=ROWS[5].id):
        score_rows(ROWS, completions)


def test_verdicts_must_be_the_rows() -> None:
    verdicts = score_rows(ROWS, {row.id: Completion(row.label, "stop") for row in ROWS})
    for wrong in (verdicts[:-1], verdicts[::-1], [*verdicts, verdicts[0]]):
        with pytest.raises(EvaluationError, match="each once and in order"):
            summarize_scores(wrong, ROWS, step=30, model=MODEL)


def test_a_summary_is_of_one_split_and_both_phases() -> None:
    with pytest.raises(EvaluationError, match=r"\['train', 'validation'\]"):
        scored({}, [*ROWS, *rows_of("train", 1)])
    with pytest.raises(EvaluationError, match="0 ACT"):
        scored({}, BROADCASTS)


def test_a_wrong_label_is_the_datasets_fault() -> None:
    bad = Row.of(ACTS[0].system, ACTS[0].user, '{"action_id":"A999"}', ACTS[0].metadata)
    with pytest.raises(DatasetError, match=f"{bad.id}.*action_id_range"):
        scored({}, [bad, *BROADCASTS])


def test_a_scored_directory_is_resumed_and_computed_again(tmp_path: Path) -> None:
    class Stopping(Answerer):
        def respond(self, requests: Sequence[Request]) -> list[Completion]:
            if self.asked >= 8:
                raise KeyboardInterrupt
            return super().respond(requests)

    with pytest.raises(KeyboardInterrupt):
        score_split(tmp_path, ROWS, Stopping(ROWS), step=30, batch_size=4)
    assert not (tmp_path / "summary.json").exists()
    again = Answerer(ROWS)
    summary = score_split(tmp_path, ROWS, again, step=30, batch_size=4)
    assert again.asked == len(ROWS) - 8
    assert summary == read_json(tmp_path / "summary.json") == recompute_scores(tmp_path, ROWS)
    with pytest.raises(EvaluationError, match="another provider"):
        score_split(tmp_path, ROWS, Answerer(ROWS, adapter_sha256="c" * 64), step=30, batch_size=4)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    body = read_json(path)
    change(body)
    write_json(path, body)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("summary.json", lambda path: edit(path, lambda body: body.update(exact=1.0))),
        ("summary.json", lambda path: edit(path, lambda body: body["broadcast"].update(unsupported_facts=0))),
        ("summary.json", lambda path: edit(path, lambda body: body.pop("ids_sha256"))),
        ("verdicts.jsonl", lambda path: path.write_text(path.read_text().replace('"exact":false', '"exact":true', 1))),
        ("verdicts.jsonl", lambda path: path.write_text("".join(path.read_text().splitlines(True)[1:]))),
        ("responses.jsonl", lambda path: path.write_text(path.read_text().replace("A", "B", 1))),
        ("responses.jsonl", lambda path: path.write_text("".join(path.read_text().splitlines(True)[:-1]))),
        ("verdicts.jsonl", Path.unlink),
        ("responses.jsonl", Path.unlink),
        ("summary.json", Path.unlink),
    ],
)
def test_a_changed_scored_directory_is_found(name: str, change: Callable[[Path], Any], tmp_path: Path) -> None:
    row, reply = broadcast(false_value)
    score_split(tmp_path, ROWS, Answerer(ROWS, {row.id: reply}), step=30, batch_size=8)
    recompute_scores(tmp_path, ROWS)
    change(tmp_path / name)
    with pytest.raises(ArenaError, match=name.replace(".", r"\.")):
        recompute_scores(tmp_path, ROWS)


def test_other_rows_are_not_what_was_scored(tmp_path: Path) -> None:
    score_split(tmp_path, ROWS, Answerer(ROWS), step=30, batch_size=8)
    with pytest.raises(EvaluationError, match="request list"):
        recompute_scores(tmp_path, ROWS[:-1])


def test_the_test_split_needs_an_opening_for_this_adapter(tmp_path: Path) -> None:
    rows = rows_of("test")
    tuned = Answerer(rows)
    for opened_for in (None, "c" * 64):
        with pytest.raises(SealedSetRefused, match="a" * 64):
            score_split(tmp_path, rows, tuned, step=None, batch_size=8, opened_for_adapter=opened_for)
    assert tuned.asked == 0
    summary = score_split(tmp_path / "sft", rows, tuned, step=None, batch_size=8, opened_for_adapter="a" * 64)
    assert (summary["split"], summary["step"], summary["exact"]) == ("test", None, 1.0)
    score_split(tmp_path / "base", rows, Answerer(rows, adapter_sha256=None), step=None, batch_size=8)
