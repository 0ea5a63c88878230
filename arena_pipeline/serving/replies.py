"""How a raw reply and what the strict parser made of it are recorded, in the arena's rows and in a split's verdicts."""

from __future__ import annotations

from typing import Any

from arena_pipeline.arena.parser import Verdict
from arena_pipeline.serving.requests import Completion


def reply_record(completion: Completion, verdict: Verdict) -> dict[str, Any]:
    """The reply as it came, its lengths in tokens, and the verdict's code and three flags."""
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "valid": verdict.valid,
        "error": verdict.error,
        "schema_valid": verdict.schema_valid,
        "supported": verdict.supported,
        "legal": verdict.legal,
    }
