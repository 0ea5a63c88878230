"""Who may answer prompts of a sealed set: the last line of defence behind the ledger, just before the first prompt.

Source: evaluation specification, "The sealed sets open once".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from arena_pipeline.errors import SealedSetRefused


def plays_freely(identity: Mapping[str, Any]) -> bool:
    """Whether a provider needs no opening: the oracle, a script, or a base model with no adapter on it.

    Whether that base is untouched its hash alone cannot say: ``require_known_base`` compares it with what is known.
    A provider that cannot name its base's hash, such as a server somewhere, cannot show that it is untouched.
    """
    if identity.get("kind") == "scripted":
        return True
    return identity.get("base_sha256") is not None and identity.get("adapter_sha256") is None


def require_known_base(what: object, identity: Mapping[str, Any], known_bases: Collection[str]) -> None:
    """Raise ``SealedSetRefused`` unless a provider's base model, if it has one, is one of the known ones.

    ``what`` names what was asked for; ``known_bases`` are the hashes of the pinned base models, and of those recorded
    when an experiment first loaded them. A fine-tune merged into its base has no adapter, but is nobody's base.
    """
    if identity.get("kind") == "scripted":
        return
    base = identity.get("base_sha256")
    if base not in known_bases:
        raise SealedSetRefused(
            f"{what}: its cases are sealed and the model's base, of sha256 {base}, is neither pinned nor recorded, so "
            "it may be fine-tuned already; pin it under base_models in data/pins.toml, let an experiment that names "
            "it record it (arena run --experiment NAME --until base_model), or look at arena-dev"
        )


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
