"""Who may answer prompts of a sealed set: the last line of defence behind the ledger, just before the first prompt.

Source: evaluation specification, "The sealed sets open once".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena_pipeline.errors import SealedSetRefused


def plays_freely(identity: Mapping[str, Any]) -> bool:
    """Whether a provider needs no opening: the oracle, a script, or a base model with no adapter on it.

    A provider that cannot name its base's hash, such as a server somewhere, cannot show that it is untouched.
    """
    if identity.get("kind") == "scripted":
        return True
    return identity.get("base_sha256") is not None and identity.get("adapter_sha256") is None


def require_opening(what: object, identity: Mapping[str, Any], opened_for_adapter: str | None) -> None:
    """Raise ``SealedSetRefused`` unless the provider plays freely or the ledger's opening is for its very adapter.

    ``what`` names the directory that the replies would go to; ``opened_for_adapter`` is the adapter SHA-256 of the
    ledger's opening, None where nothing was opened.
    """
    if plays_freely(identity):
        return
    adapter = identity.get("adapter_sha256")
    if adapter is None or opened_for_adapter != adapter:
        raise SealedSetRefused(
            f"{what}: its cases are sealed and the model's adapter is {adapter}, but the ledger's opening is for "
            f"{opened_for_adapter}; open the sealed set through the ledger, or look at arena-dev and validation"
        )
