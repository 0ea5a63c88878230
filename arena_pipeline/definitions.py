"""The Dagster code location."""

from arena_pipeline.jobs import build_definitions

defs = build_definitions()
