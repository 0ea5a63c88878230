"""The shared lineage for the tests of this folder."""

from __future__ import annotations

from arena_pipeline_tests.lineages import copy, micro

__all__ = ["copy", "micro"]
