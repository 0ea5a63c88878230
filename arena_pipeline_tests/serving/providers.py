"""Stand-in providers for tests of the response store: what they answer follows from the request, and they count."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from arena_pipeline.serving.requests import ChatPrompt, Completion, Request


class EchoProvider:
    """Answers with its prompt's user text reversed; kills its own process when asked for batch number ``dies_at``."""

    def __init__(self, name: str = "echo", *, reads_case: bool = False, dies_at: int | None = None) -> None:
        self.identity: dict[str, Any] = {"kind": "test", "name": name, "stops": (1, 2)}
        self.reads_case = reads_case
        self.lanes = 1
        self.asked: list[tuple[str, ...]] = []
        self._dies_at = dies_at

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        if len(self.asked) == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.asked.append(tuple(request.key for request in requests))
        return [
            Completion(request.prompt.user[::-1], "stop", len(request.prompt.user), 1 + len(request.key))
            for request in requests
        ]


def sample_requests(number: int = 23) -> list[Request]:
    """Requests of several lengths, one in five repeating an earlier prompt, with non-ASCII text and newlines."""
    requests = []
    for index in range(number):
        content = index if index % 5 else 1
        text = f"u{content}é\n" + "x" * (content * 7 % 11)
        requests.append(Request(f"case-{index:03d}", "ACT", ChatPrompt("system", text), case=index))
    return requests
