"""Lanes: side by side for certain, results in order, nothing begun after an error, threads given back."""

from __future__ import annotations

import threading

import pytest
import torch

from arena_pipeline.lanes import open_lanes

PATIENCE = 60


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    with open_lanes(count) as lanes:
        assert list(lanes(lambda item: item * item, range(40))) == [item * item for item in range(40)]


def test_as_many_items_at_a_time_as_there_are_lanes_each_in_one_thread() -> None:
    before = torch.get_num_threads()
    meeting = threading.Barrier(3)

    def meet(_: int) -> int:
        meeting.wait(PATIENCE)
        return torch.get_num_threads()

    with open_lanes(3) as lanes:
        assert list(lanes(meet, range(6))) == [1] * 6
    assert torch.get_num_threads() == before


def test_one_lane_is_the_calling_thread_with_all_its_threads() -> None:
    with open_lanes(1) as lanes:
        found = list(lanes(lambda _: (threading.get_ident(), torch.get_num_threads()), range(2)))
    assert found == [(threading.get_ident(), torch.get_num_threads())] * 2


def test_after_an_error_nothing_new_begins() -> None:
    before = torch.get_num_threads()
    begun: list[int] = []
    failed = threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 0:
            failed.set()
            raise ValueError("item 0")
        assert failed.wait(PATIENCE)
        if item == 1:
            # The other lane is held here until the block has ended, so that it can take up nothing more by then.
            assert ended.wait(PATIENCE)
        return item

    ended = threading.Event()
    items = 50
    with pytest.raises(ValueError, match="item 0"), open_lanes(2) as lanes:
        results = iter(lanes(work, range(items)))
        try:
            next(results)
        finally:
            threading.Timer(0, ended.set).start()
    assert len(begun) < items
    assert torch.get_num_threads() == before
