"""Work side by side: on a CPU every core computes one whole batch, instead of all cores sharing each.

A small model's operations are too short for several threads to share: two cores that split each of them are busy two
thirds of the time, two cores that compute a batch each are busy all of it. Every operation then runs in one thread and
the results come in the batches' order, so they are the same, to the last bit, on any number of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Lanes(Protocol):
    """Applies a function to items, as many at a time as there are lanes; the results come in the items' order."""

    def __call__(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]: ...


@contextmanager
def open_lanes(count: int) -> Iterator[Lanes]:
    """``count`` lanes, each of one thread; a single one leaves to every operation all the threads that there are.

    What has not begun when the block ends, by an error or by Ctrl-C, never does.
    """
    if count == 1:
        yield map
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(count, "lane")
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
