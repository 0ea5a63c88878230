"""Stand-ins for models in tests of the evaluator: they answer with text, under a model's identity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from arena_pipeline.arena.prompts import PromptPack, displayed_from_user
from arena_pipeline.arena.protocol import EMPTY_BROADCAST, encode_broadcast
from arena_pipeline.evaluation.scripted_provider import ScriptedProvider
from arena_pipeline.provenance.hashing import canonical_json, sha256_text
from arena_pipeline.serving.requests import Completion, Request

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "arena_pipeline_tests" / "golden"
BASE_SHA256 = "b" * 64
ADAPTER_SHA256 = "a" * 64


@cache
def pack() -> PromptPack:
    return PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")


def identity(adapter: str | None = None, **changes: Any) -> dict[str, Any]:
    """A language model's identity."""
    return {
        "kind": "transformers",
        "base_sha256": BASE_SHA256,
        "adapter_sha256": adapter,
        "version": "1",
        "dtype": "float32",
        "decoding": {"greedy": True, "max_new_tokens": 224},
        **changes,
    }


class RamblingPlayer:
    """Reads prompts alone: chooses by the prompt's hash, and one reply in ``broken`` is cut off in its middle."""

    reads_case = False
    lanes = 1

    def __init__(self, adapter: str | None = None, broken: int = 7, **changes: Any) -> None:
        self.identity = identity(adapter, **changes)
        self.broken = broken
        self.asked: list[Request] = []

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        self.asked += requests
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Completion:
        number = int(sha256_text(request.prompt.user)[:8], 16)
        text = encode_broadcast(EMPTY_BROADCAST)
        if request.phase == "ACT":
            shown = displayed_from_user(request.prompt.user)
            text = canonical_json({"action_id": shown[number % len(shown)]["id"]})
        if number % self.broken == 0:
            return Completion(text[: len(text) // 2], "length", 100, 224)
        return Completion(text, "stop", 100, len(text))


class Impersonator:
    """Answers as a script does, under a model's identity."""

    reads_case = True
    lanes = 1

    def __init__(self, script: str, adapter: str | None = None, **changes: Any) -> None:
        self.identity = identity(adapter, **changes)
        self._script = ScriptedProvider(script)

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        return self._script.respond(requests)


class Listener(Impersonator):
    """Plays the optimum when it is told what the teammates really mean to do, and waits otherwise."""

    def __init__(self, adapter: str | None = None) -> None:
        super().__init__("oracle", adapter)
        self._waiting = ScriptedProvider("wait")

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        heard = [request.condition not in ("dropped", "shuffled") for request in requests]
        return [
            (self._script if listens else self._waiting).respond([request])[0]
            for request, listens in zip(requests, heard, strict=True)
        ]
