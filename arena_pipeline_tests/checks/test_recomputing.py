"""What is computed again must have been generated as the experiment says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from arena_pipeline.checks.recomputing import _require_model
from arena_pipeline.errors import EvaluationError
from arena_pipeline.experiments import Serving

SERVING = Serving(backend="transformers", batch_size=64, dtype="float32", device="cpu")
MODEL = {"kind": "transformers", "base_sha256": "b", "adapter_sha256": None, "dtype": "float32", "batch_size": 64}


@pytest.mark.parametrize("other", [{"kind": "scripted"}, {"dtype": "bfloat16"}, {"batch_size": 1}, {"tokens": 4}])
def test_replies_of_other_serving_are_refused(other: dict[str, Any]) -> None:
    reader: Any = SimpleNamespace(
        artifact=str, base_model=lambda _: SimpleNamespace(sha256="b"), experiment=SimpleNamespace(serving=SERVING)
    )
    _require_model(reader, "x", MODEL | {"decoding": {"max_new_tokens": 224}}, None)
    changed = MODEL | {"decoding": {"max_new_tokens": other.get("tokens", 224)}} | other
    with pytest.raises(EvaluationError, match="materialize it again"):
        _require_model(reader, "x", changed, None)
