"""The response store: every raw reply of a model on disk, a batch at a time, before anything scores it.

A store is one JSON-lines file. Its first line binds it to a provider identity and a request list; each further line is
one finished batch with a hash of itself. Batches are a pure function of the request list, and a batch is written whole
and flushed to disk, in their order, as soon as it is answered: a killed run loses at most the batches that were being
answered, which are generated again whole, so a resumed store equals one that was never interrupted.

Source: evaluation specification, "Frozen-arena evaluation of a model"; issue 2, "no finished batch is lost".
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from arena_pipeline.errors import EvaluationError, IntegrityError
from arena_pipeline.lanes import open_lanes
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.hashing import canonical_json, sha256_json
from arena_pipeline.serving.requests import Completion, Provider, Request

FORMAT = "arena-responses-v1"
_ADVICE = "use another directory, or remove this file to generate the responses again"


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """How a request list is asked: its batches, and for each key the key of the request that is asked for it."""

    batches: tuple[tuple[Request, ...], ...]
    asked_as: Mapping[str, str]
    requests_sha256: str
    batch_size: int
    merge_identical: bool


def plan_requests(requests: Sequence[Request], batch_size: int, *, merge_identical: bool) -> RequestPlan:
    """Divide a request list into batches, as a pure function of the list's content and not of its order.

    Requests are sorted by prompt length in characters, then key, so that a batch pads little. With ``merge_identical``
    equal prompts are asked once, under the first of their keys. Raises ``EvaluationError`` for a repeated key or a
    batch size below 1.
    """
    if batch_size < 1:
        raise EvaluationError(f"batch size {batch_size}: at least 1 is needed")
    ordered = sorted(requests, key=lambda request: (len(request.prompt.system) + len(request.prompt.user), request.key))
    asked_as: dict[str, str] = {}
    first_key_of_prompt: dict[tuple[str, str], str] = {}
    unique: list[Request] = []
    for request in ordered:
        if request.key in asked_as:
            raise EvaluationError(f"request key {request.key!r} occurs twice in one request list; keys must be unique")
        representative = request.key
        if merge_identical:
            representative = first_key_of_prompt.setdefault((request.prompt.system, request.prompt.user), request.key)
        asked_as[request.key] = representative
        if representative == request.key:
            unique.append(request)
    batches = tuple(tuple(unique[start : start + batch_size]) for start in range(0, len(unique), batch_size))
    listing = sorted([request.key, request.phase, request.prompt.system, request.prompt.user] for request in requests)
    return RequestPlan(batches, asked_as, sha256_json(listing), batch_size, merge_identical)


class ResponseStore:
    """The append-only file of one request list's replies.

    Every method raises ``IntegrityError`` for a line whose bytes do not match the hash it carries, and
    ``EvaluationError`` where the file belongs to another request list, batch size or provider.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def header(self) -> dict[str, Any]:
        """The first line: ``format``, ``identity``, ``requests_sha256``, ``batch_size``, ``batches``, ``requests``."""
        records = self._records(self._bytes())
        if not records:
            raise EvaluationError(f"{self.path}: no responses are stored here")
        return records[0]

    def completions(self, requests: Sequence[Request]) -> dict[str, Completion]:
        """Every request's reply, read from disk alone; ``EvaluationError`` if a batch is missing.

        This is how rows, summaries and verdicts are computed again from saved responses.
        """
        header = self.header()
        plan = plan_requests(requests, header["batch_size"], merge_identical=header["merged_identical_prompts"])
        finished = self._finished(self._records(self._bytes()), plan)
        if len(finished) < len(plan.batches):
            raise EvaluationError(
                f"{self.path}: {len(finished)} of {len(plan.batches)} batches are finished; resume the generation first"
            )
        return _by_key(plan, finished)

    @contextmanager
    def writer(self, plan: RequestPlan, identity: dict[str, Any]) -> Iterator[BatchWriter]:
        """Create or resume the file, locked against a second writer; a half-written last record is cut off."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EvaluationError(
                    f"{self.path}: another process is writing these responses; wait for it or stop it"
                ) from None
            data = self._bytes()
            records = self._records(data)
            stream.truncate(data.rfind(b"\n") + 1)
            if not records:
                records = [_header(plan, identity)]
                _append(stream, records[0])
            finished = self._finished(records, plan)
            if (stored := records[0]["identity"]) != identity:
                raise EvaluationError(
                    f"{self.path}: these responses come from another provider"
                    f" ({_difference(stored, identity)}); {_ADVICE}"
                )
            yield BatchWriter(stream, finished)

    def _bytes(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    def _records(self, data: bytes) -> list[dict[str, Any]]:
        """All whole lines. What follows the last newline is a record whose writing was cut short: it is no record."""
        records = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            place = f"{self.path}:{number}"
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise EvaluationError(f"{place}: not a JSON object, so it was changed after it was written; {_ADVICE}")
            claimed = record.pop("sha256", None)
            if claimed != (found := sha256_json(record)):
                raise IntegrityError(place, str(claimed), found, _ADVICE)
            records.append(record)
        return records

    def _finished(self, records: list[dict[str, Any]], plan: RequestPlan) -> list[list[Completion]]:
        expected = _header(plan, records[0].get("identity"))
        if records[0] != expected:
            raise EvaluationError(
                f"{self.path}: these responses answer another request list"
                f" ({_difference(records[0], expected)}); {_ADVICE}"
            )
        finished = []
        for index, record in enumerate(records[1:]):
            question = _question(index, plan.batches[index]) if index < len(plan.batches) else {}
            if question != {name: record.get(name) for name in ("index", "request_keys", "prompts_sha256")}:
                raise EvaluationError(f"{self.path}:{index + 2}: not batch {index} of this request list; {_ADVICE}")
            finished.append([Completion(**completion) for completion in record["completions"]])
        return finished


class BatchWriter:
    """An open, locked store: the batches it holds, and how to add the next."""

    def __init__(self, stream: BinaryIO, finished: list[list[Completion]]) -> None:
        self._stream = stream
        self.finished = finished

    def append(self, batch: Sequence[Request], completions: list[Completion]) -> None:
        """Write one finished batch and flush it to disk; on return it survives a crash."""
        record = _question(len(self.finished), batch)
        _append(self._stream, record | {"completions": [asdict(completion) for completion in completions]})
        self.finished.append(completions)


def collect(
    requests: Sequence[Request],
    provider: Provider,
    store: ResponseStore,
    batch_size: int,
    progress: Progress = silent,
) -> dict[str, Completion]:
    """Ask for every reply that the store lacks and return all of them by request key.

    ``progress`` is called as (file name without suffix, requests asked so far, requests to ask). Raises
    ``EvaluationError`` if the store belongs to another provider identity, request list or batch size, is being written
    by another process, or if the provider does not return one completion per request.
    """
    plan = plan_requests(requests, batch_size, merge_identical=not provider.reads_case)
    total = sum(len(batch) for batch in plan.batches)
    identity = json.loads(canonical_json(provider.identity))
    with store.writer(plan, identity) as writer, open_lanes(provider.lanes) as lanes:
        done = sum(len(completions) for completions in writer.finished)
        progress(store.path.stem, done, total)
        remaining = plan.batches[len(writer.finished) :]
        for batch, completions in zip(remaining, lanes(provider.respond, remaining), strict=True):
            if len(completions) != len(batch):
                raise EvaluationError(
                    f"{store.path}: the provider returned {len(completions)} completions for {len(batch)} requests"
                )
            writer.append(batch, completions)
            done += len(batch)
            progress(store.path.stem, done, total)
        return _by_key(plan, writer.finished)


def _question(index: int, batch: Sequence[Request]) -> dict[str, Any]:
    return {
        "index": index,
        "request_keys": [request.key for request in batch],
        "prompts_sha256": sha256_json([[request.prompt.system, request.prompt.user] for request in batch]),
    }


def _header(plan: RequestPlan, identity: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "identity": identity,
        "requests_sha256": plan.requests_sha256,
        "requests": len(plan.asked_as),
        "merged_identical_prompts": plan.merge_identical,
        "batch_size": plan.batch_size,
        "batches": len(plan.batches),
    }


def _append(stream: BinaryIO, record: dict[str, Any]) -> None:
    stream.write(canonical_json(record | {"sha256": sha256_json(record)}).encode("ascii") + b"\n")
    stream.flush()
    os.fsync(stream.fileno())


def _by_key(plan: RequestPlan, finished: list[list[Completion]]) -> dict[str, Completion]:
    answered = {
        request.key: completion
        for batch, completions in zip(plan.batches, finished, strict=True)
        for request, completion in zip(batch, completions, strict=True)
    }
    return {key: answered[representative] for key, representative in plan.asked_as.items()}


def _difference(stored: dict[str, Any], now: dict[str, Any]) -> str:
    names = sorted(name for name in stored.keys() | now.keys() if stored.get(name) != now.get(name))
    return ", ".join(f"{name} was {stored.get(name)!r} and is now {now.get(name)!r}" for name in names)
