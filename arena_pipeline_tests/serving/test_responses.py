"""The response store: pure batches, nothing finished is asked again, nothing half-written or changed is believed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.errors import EvaluationError, IntegrityError
from arena_pipeline.serving.requests import ChatPrompt, Completion, Request
from arena_pipeline.serving.responses import ResponseStore, collect, plan_requests
from arena_pipeline_tests.serving.providers import EchoProvider, sample_requests

BATCH = 4


def collected(path: Path, provider: EchoProvider | None = None) -> dict[str, Completion]:
    return collect(sample_requests(), provider or EchoProvider(), ResponseStore(path), BATCH)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=3)), max_size=20), st.integers(1, 5), st.randoms())
def test_batches_depend_on_the_requests_and_not_on_their_order(
    texts: list[tuple[str, str]], batch_size: int, shuffler: random.Random
) -> None:
    requests = [Request(f"k{index}", "ACT", ChatPrompt(system, user)) for index, (user, system) in enumerate(texts)]
    shuffled = list(requests)
    shuffler.shuffle(shuffled)
    plan = plan_requests(requests, batch_size, merge_identical=True)
    assert plan == plan_requests(shuffled, batch_size, merge_identical=True)
    asked = [request for batch in plan.batches for request in batch]
    assert len({request.prompt for request in asked}) == len(asked) == len({request.prompt for request in requests})
    lengths = [len(request.prompt.system) + len(request.prompt.user) for request in asked]
    assert lengths == sorted(lengths)
    prompts = {request.key: request.prompt for request in requests}
    assert plan.asked_as.keys() == prompts.keys()
    assert all(prompts[key] == prompts[asked_as] for key, asked_as in plan.asked_as.items())
    assert all(len(batch) == batch_size for batch in plan.batches[:-1])
    unmerged = plan_requests(requests, batch_size, merge_identical=False)
    assert sum(len(batch) for batch in unmerged.batches) == len(requests)


def test_every_request_is_answered_and_identical_prompts_are_asked_once(tmp_path: Path) -> None:
    provider = EchoProvider()
    replies = collected(tmp_path / "r.jsonl", provider)
    requests = sample_requests()
    assert {key: reply.text for key, reply in replies.items()} == {
        request.key: request.prompt.user[::-1] for request in requests
    }
    asked = [key for batch in provider.asked for key in batch]
    assert len(asked) == len({request.prompt for request in requests}) < len(requests)


def test_a_provider_that_reads_the_case_is_asked_every_request(tmp_path: Path) -> None:
    provider = EchoProvider(reads_case=True)
    collected(tmp_path / "r.jsonl", provider)
    assert sorted(key for batch in provider.asked for key in batch) == [request.key for request in sample_requests()]


def test_replies_are_read_back_from_disk_alone(tmp_path: Path) -> None:
    replies = collected(tmp_path / "r.jsonl")
    store = ResponseStore(tmp_path / "r.jsonl")
    assert store.completions(sample_requests()) == replies
    assert store.header()["identity"] == {"kind": "test", "name": "echo", "stops": [1, 2]}
    with pytest.raises(EvaluationError, match="another request list"):
        store.completions(sample_requests(22))
    with pytest.raises(EvaluationError, match="no responses are stored here"):
        ResponseStore(tmp_path / "absent.jsonl").header()


def test_a_complete_store_is_asked_nothing(tmp_path: Path) -> None:
    replies = collected(tmp_path / "r.jsonl")
    again = EchoProvider()
    assert collected(tmp_path / "r.jsonl", again) == replies
    assert again.asked == []


def test_a_run_killed_between_batches_asks_only_what_is_missing(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight.jsonl", tmp_path / "killed.jsonl"
    whole = EchoProvider()
    collected(straight, whole)
    program = (
        "import sys; from pathlib import Path; from arena_pipeline.serving.responses import ResponseStore, collect\n"
        "from arena_pipeline_tests.serving.providers import EchoProvider, sample_requests\n"
        f"collect(sample_requests(), EchoProvider(dies_at=3), ResponseStore(Path(sys.argv[1])), {BATCH})"
    )
    assert subprocess.run([sys.executable, "-c", program, str(killed)]).returncode == -signal.SIGKILL
    resumed = EchoProvider()
    collected(killed, resumed)
    assert resumed.asked == whole.asked[3:]
    assert killed.read_bytes() == straight.read_bytes()


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1))
def test_a_write_cut_off_at_any_byte_is_recovered(tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    replies = collected(path)
    whole = path.read_bytes()
    kept = whole[: int(cut * len(whole))]
    path.write_bytes(kept)
    resumed = EchoProvider()
    assert collected(path, resumed) == replies
    assert path.read_bytes() == whole
    assert len(resumed.asked) == whole.count(b"\n") - 1 - max(kept.count(b"\n") - 1, 0)


def test_an_unfinished_store_is_not_read_as_a_finished_one(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    collected(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EvaluationError, match="4 of 5 batches are finished"):
        ResponseStore(path).completions(sample_requests())


@pytest.mark.parametrize("line", [0, 2, 5])
def test_a_changed_byte_in_any_whole_line_is_found(tmp_path: Path, line: int) -> None:
    path = tmp_path / "r.jsonl"
    collected(path)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    lines[line] = lines[line].replace(b"x", b"y", 1) if line else lines[line].replace(b"echo", b"ecbo")
    path.write_bytes(b"".join(lines))
    with pytest.raises(IntegrityError, match=rf"r\.jsonl:{line + 1}: expected sha256 [0-9a-f]+, found"):
        collected(path)
    lines[line] = b"\x00" * 9 + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(EvaluationError, match="not a JSON object"):
        ResponseStore(path).completions(sample_requests())


def test_a_line_moved_out_of_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    collected(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    with pytest.raises(EvaluationError, match=r"r\.jsonl:2: not batch 0"):
        collected(path)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(EvaluationError, match=r"r\.jsonl:7: not batch 5"):
        collected(path)


def test_another_identity_request_list_or_batch_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    collected(path)
    with pytest.raises(EvaluationError, match=r"another provider \(name was 'echo' and is now 'other'\)"):
        collected(path, EchoProvider("other"))
    changed = sample_requests()
    changed[7] = Request(changed[7].key, "ACT", ChatPrompt("system", "changed"))
    with pytest.raises(EvaluationError, match="another request list"):
        collect(changed, EchoProvider(), ResponseStore(path), BATCH)
    with pytest.raises(EvaluationError, match="batch_size was 4 and is now 5"):
        collect(sample_requests(), EchoProvider(), ResponseStore(path), 5)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    class Reentrant(EchoProvider):
        def respond(self, requests: object) -> list[Completion]:
            collected(path)
            return []

    with pytest.raises(EvaluationError, match="another process is writing"):
        collected(path, Reentrant())


def test_a_short_answer_and_a_repeated_key_are_errors(tmp_path: Path) -> None:
    class Short(EchoProvider):
        def respond(self, requests: object) -> list[Completion]:
            return []

    with pytest.raises(EvaluationError, match="0 completions for 4 requests"):
        collected(tmp_path / "r.jsonl", Short())
    with pytest.raises(EvaluationError, match="'case-000' occurs twice"):
        plan_requests([*sample_requests(), sample_requests(1)[0]], 4, merge_identical=True)


def test_progress_and_file_format(tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    collect(
        sample_requests(),
        EchoProvider(),
        ResponseStore(tmp_path / "r.jsonl"),
        BATCH,
        lambda label, done, total: calls.append((label, done, total)),
    )
    assert calls == [("r", done, 18) for done in (0, 4, 8, 12, 16, 18)]
    header, *batches = map(json.loads, (tmp_path / "r.jsonl").read_text(encoding="ascii").splitlines())
    assert (header["requests"], header["batches"], len(batches)) == (23, 5, 5)
    assert batches[0].keys() == {"index", "request_keys", "prompts_sha256", "completions", "sha256"}
    assert collect([], EchoProvider(), ResponseStore(tmp_path / "empty.jsonl"), BATCH) == {}


class Crossing(EchoProvider):
    """Answers two batches side by side or none: each waits for the other; the even ones are answered last."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.lanes = 2
        self._meeting = threading.Barrier(2)
        self._odd_answered = threading.Semaphore(0)
        self._fails_at = fails_at

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        number = [batch[0].key for batch in BATCHES].index(requests[0].key)
        if number == self._fails_at:
            raise RuntimeError(f"batch {number}")
        if number < len(BATCHES) - len(BATCHES) % 2:
            self._meeting.wait(60)
            if number % 2:
                self._odd_answered.release()
            else:
                assert self._odd_answered.acquire(timeout=60)
        return super().respond(requests)


BATCHES = plan_requests(sample_requests(), BATCH, merge_identical=True).batches


def test_batches_answered_side_by_side_are_stored_in_their_order(tmp_path: Path) -> None:
    assert len(BATCHES) == 5
    replies = collected(tmp_path / "serial.jsonl")
    provider = Crossing()
    assert collected(tmp_path / "lanes.jsonl", provider) == replies
    assert provider.asked[0] == tuple(request.key for request in BATCHES[1]), "the second batch was answered first"
    assert (tmp_path / "lanes.jsonl").read_bytes() == (tmp_path / "serial.jsonl").read_bytes()


def test_an_error_in_one_lane_keeps_what_was_answered_before_it(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with pytest.raises(RuntimeError, match="batch 4"):
        collected(path, Crossing(fails_at=4))
    assert path.read_bytes().count(b"\n") == 1 + 4
    resumed = EchoProvider()
    collected(path, resumed)
    assert resumed.asked == [tuple(request.key for request in BATCHES[4])]
    collected(tmp_path / "serial.jsonl")
    assert path.read_bytes() == (tmp_path / "serial.jsonl").read_bytes()
