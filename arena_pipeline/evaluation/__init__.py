"""Frozen evaluation of a model in the arena, statistics, comparison, gates and verdict."""

from arena_pipeline.arena.manifests import FROZEN_CASES, frozen_manifest_sha256

__all__ = ["FROZEN_CASES", "frozen_manifest_sha256"]
