"""One PostgreSQL cluster for all tests of this folder that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arena_pipeline_tests.postgres import throwaway_cluster


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[str]:
    with throwaway_cluster() as address:
        yield address
