"""Micro-batches side by side: on a CPU every core computes one whole micro-batch, instead of all cores sharing each.

A small model's operations are too short for several threads to share: two cores that split each of them are busy two
thirds of the time, two cores that compute a micro-batch each are busy all of it. Every operation then runs in one
thread, and what the micro-batches give is added up in their order: the result is the same, to the last bit, on any
number of cores.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from arena_pipeline.experiments.recipe import Recipe

Item = TypeVar("Item")
Result = TypeVar("Result")


class Lanes(Protocol):
    """Applies a function to items, as many at a time as there are lanes; the results come in the items' order."""

    def __call__(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]: ...


def lane_count(recipe: Recipe, device: str, cores: int) -> int:
    """How many micro-batches of a recipe's optimizer step are computed at a time.

    One on an accelerator, which is filled by one; one with dropout, whose random numbers all come from one generator
    and would fall to the micro-batches in a chance order.
    """
    if device != "cpu" or recipe.dropout > 0:
        return 1
    return min(cores, recipe.effective_batch_size // recipe.micro_batch_size)


@contextmanager
def open_lanes(recipe: Recipe, device: str) -> Iterator[Lanes]:
    """The lanes of a training run on this machine's cores.

    Where a recipe's micro-batches can be computed side by side, each is computed in one thread, also by the single
    lane of a machine of one core.
    """
    cores = torch.get_num_threads()
    if lane_count(recipe, device, cores=2) == 1:
        yield map
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(lane_count(recipe, device, cores), "lane") as pool:
            yield pool.map
    finally:
        torch.set_num_threads(cores)


def return_memory() -> None:
    """Give freed memory back to the system, where the C library can be asked to.

    Batches differ in length, so what one step frees seldom fits the next, and the C library keeps it: after a few
    hundred steps a process would hold several times what it uses.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
