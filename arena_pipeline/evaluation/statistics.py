"""Statistics of paired comparisons: exact means, normal and Wilson intervals, sign-flip test, detectable effects.

Nothing here rounds: reward and regret differences are put on their grid where they are formed (``cases.py``).

Source: evaluation specification, "Frozen-arena evaluation of a model" and "The sealed sets open once".
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from arena_pipeline.errors import EvaluationError

Interval = tuple[float, float]

Z_95: Final = 1.96
"""The multiplier of a two-sided 95% interval, as the specification writes it."""
ALPHA: Final = 0.05
POWER_FACTOR: Final = 2.80
"""z(97.5%) + z(80%), rounded up as the specification writes it: 80% power in a two-sided 5% test."""
SIGN_FLIP_TRIALS: Final = 100_000
SIGN_FLIP_SEED: Final = 0

_TIE_TOLERANCE: Final = 1e-12
_BITS_AT_ONCE: Final = 1 << 22


def z_of_opening(opening: int, alpha: float = ALPHA) -> float:
    """The multiplier of intervals after the ``opening``-th opening of a sealed set: their level is 1 - alpha / opening.

    The first opening's 95% interval uses 1.96 exactly. Raises ``EvaluationError`` for an opening below 1.
    """
    if opening < 1:
        raise EvaluationError(f"opening {opening} of a sealed set: openings are counted from 1")
    if opening == 1 and alpha == ALPHA:
        return Z_95
    return statistics.NormalDist().inv_cdf(1 - alpha / opening / 2)


def mean(values: Sequence[float]) -> float:
    """The exact rational mean of the values, rounded once to a float."""
    return float(statistics.mean(_checked(values)))


def stdev(values: Sequence[float]) -> float:
    """The n - 1 standard deviation; 0.0 for a single value."""
    return float(statistics.stdev(values)) if len(_checked(values)) > 1 else 0.0


def mean_interval(values: Sequence[float], z: float = Z_95) -> Interval:
    """mean -+ z s / sqrt(n), s being the n - 1 standard deviation; a single value m gives (m, m)."""
    center = mean(values)
    margin = z * stdev(values) / math.sqrt(len(values))
    return center - margin, center + margin


def wilson(successes: int, n: int, z: float = Z_95) -> Interval:
    """The Wilson score interval of a rate, clipped to [0, 1] after computing.

    Raises ``EvaluationError`` unless 0 <= successes <= n and n >= 1.
    """
    if not 0 <= successes <= n or n == 0:
        raise EvaluationError(f"Wilson interval of {successes} of {n}: needs 0 <= successes <= n and n >= 1")
    rate = successes / n
    square = z * z / n
    center = rate + square / 2
    margin = z * math.sqrt(rate * (1 - rate) / n + square / (4 * n))
    return max(0.0, (center - margin) / (1 + square)), min(1.0, (center + margin) / (1 + square))


def sign_flip_p(values: Sequence[float], trials: int = SIGN_FLIP_TRIALS) -> float:
    """Two-sided sign-flip randomization test of mean zero: p = (hits + 1) / (trials + 1).

    A trial draws one ``getrandbits(1)`` of a fresh ``random.Random(0)`` per value, in order: 1 keeps the value's
    sign, 0 flips it. It is a hit if |mean| >= |observed mean| - 1e-12.
    """
    array = np.array(_checked(values), dtype=np.float64)
    threshold = abs(mean(values)) - _TIE_TOLERANCE
    generator = _python_generator(SIGN_FLIP_SEED)
    rows_at_once = max(1, _BITS_AT_ONCE // array.size)
    hits = 0
    for start in range(0, trials, rows_at_once):
        rows = min(rows_at_once, trials - start)
        kept = _one_bit_draws(generator, rows * array.size).reshape(rows, array.size)
        means = (kept * 2.0 - 1.0) @ array / array.size
        hits += int(np.count_nonzero(np.abs(means) >= threshold))
    return (hits + 1) / (trials + 1)


def smallest_detectable_effect(values: Sequence[float]) -> float:
    """The smallest mean that this many values with this spread could have shown: 2.80 s / sqrt(n)."""
    return POWER_FACTOR * stdev(values) / math.sqrt(len(values))


def _python_generator(seed: int) -> np.random.MT19937:
    """numpy's Mersenne Twister in the state of ``random.Random(seed)``, so that a million draws cost milliseconds."""
    _, internal, _ = random.Random(seed).getstate()
    generator = np.random.MT19937()
    generator.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(internal[:-1], dtype=np.uint32), "pos": internal[-1]},
    }
    return generator


def _one_bit_draws(generator: np.random.MT19937, count: int) -> NDArray[np.float64]:
    """The next ``count`` values of ``getrandbits(1)``: the top bit of each 32-bit output."""
    return (generator.random_raw(count) >> np.uint64(31)).astype(np.float64)


def _checked(values: Sequence[float]) -> Sequence[float]:
    if not values:
        raise EvaluationError("statistics of no values: at least one is needed")
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise EvaluationError(f"value {index} is {value!r}: statistics need finite numbers")
    return values
