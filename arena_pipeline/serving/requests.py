"""What is asked of a model and what comes back: the types every provider, runner and store share.

Source: evaluation specification, "Frozen-arena evaluation of a model"; dataset specification, "Prompts".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from arena_pipeline.arena.prompts import Phase

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The two texts of a prompt: the phase's system text and the compact JSON user message."""

    system: str
    user: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt in chat form, as chat templates and OpenAI-compatible servers take it."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a provider.

    ``key`` is unique in its request list and names the question in the response store. ``case``, ``agent_id``,
    ``permutation`` and ``condition`` say where the question comes from. Scripts read the first two; language models see
    nothing but the prompt.
    """

    key: str
    phase: Phase
    prompt: ChatPrompt
    agent_id: str = ""
    case: Any = None
    permutation: int = 0
    condition: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """One raw reply: its text without the end-of-turn token, why it ended, and its lengths in tokens.

    ``completion_tokens`` counts the end-of-turn token where there was one. Providers without a tokenizer report 0.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Provider(Protocol):
    """Whatever answers requests: a script, a model in this process, or a server."""

    @property
    def identity(self) -> dict[str, Any]:
        """JSON object of all that decides the replies: kind, weights, template, version, dtype, batches, decoding."""
        ...

    @property
    def reads_case(self) -> bool:
        """Whether replies depend on ``Request.case`` and not on the prompt alone.

        False for every language model: identical prompts are then asked once. True for the oracle and scripts, which
        know the whole state: identical prompts of two cases may deserve different replies.
        """
        ...

    @property
    def lanes(self) -> int:
        """How many batches are best answered side by side; replies must not depend on it."""
        ...

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer one batch, in order. Called from as many threads at a time as there are ``lanes``."""
        ...
