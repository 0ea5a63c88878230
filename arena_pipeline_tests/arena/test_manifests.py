"""The manifests against the specification's hashes and the golden frozen cases."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from arena_pipeline.arena.manifests import (
    EVALUATION_SEEDS,
    FROZEN_CASES,
    MANIFESTS,
    SEALED_MANIFESTS,
    Case,
    frozen_manifest_sha256,
    manifest_sha256,
)

SPECIFIED = {
    "arena-frozen-60": ("b53bfc523043ec71cc69f851d0819511c5a9f0b4f09520898f30954bbe874b29", 60),
    "arena-dev": ("af40b38b74181c2db917de1d8246d537b164a52bc402586fae88ae8d5364e2b3", 60),
    "arena-dev-600": ("c1e674ff6ed4444d8b6e4cd1c17f7aaf7380390b819ba71012d8e5f586b0fbb3", 600),
    "arena-eval-600": ("fff7676efcbc06c1f33d6c214f650f9ab2ab4a6834e84d64d829372d1beaa01f", 600),
}
OWN = {"arena-dev-150": ("ad2b6a150a435d958af4d79b0f4a94d88efba6246451721752fb3bd516207caf", 150)}


def test_there_are_no_other_manifests() -> None:
    assert set(MANIFESTS) == set(SPECIFIED) | set(OWN)
    assert set(SEALED_MANIFESTS) == {"arena-frozen-60", "arena-eval-600"}


@pytest.mark.parametrize("name", sorted(SPECIFIED | OWN))
def test_hash_and_length(name: str) -> None:
    digest, count = (SPECIFIED | OWN)[name]
    assert (manifest_sha256(MANIFESTS[name]), len(MANIFESTS[name])) == (digest, count)


def test_frozen_cases() -> None:
    assert frozen_manifest_sha256() == SPECIFIED["arena-frozen-60"][0]
    assert FROZEN_CASES[0] == Case(1_000_003, 12, "balanced")
    assert FROZEN_CASES[59] == Case(1_008_086, 14, "defensive")


def test_the_short_form_of_dev_600_is_a_fair_sample_of_it() -> None:
    cases = MANIFESTS["arena-dev-150"]
    assert set(cases) < set(MANIFESTS["arena-dev-600"])
    assert set(Counter((case.size, case.style) for case in cases).values()) <= {16, 17}
    assert Counter(case.size for case in cases) == {12: 50, 13: 50, 14: 50}


def test_any_changed_case_changes_the_hash() -> None:
    changed = (*FROZEN_CASES[:-1], FROZEN_CASES[-1]._replace(size=12))
    assert manifest_sha256(changed) != frozen_manifest_sha256()


def test_seed_ranges_are_disjoint() -> None:
    """Dataset, manifests, development and pre-training seeds never meet."""
    assert len(EVALUATION_SEEDS) == sum(count for _, count in SPECIFIED.values())
    ranges = [
        range(1024),
        *(range(cases[0].seed, cases[-1].seed + 1) for cases in map(MANIFESTS.__getitem__, SPECIFIED)),
        range(5_000_000, 5_006_000),
        range(6_000_000, 6_000_512),
        range(10**11, 10**12),
    ]
    for left, right in itertools.pairwise(ranges):
        assert left.stop <= right.start
