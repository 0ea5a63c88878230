"""Progress goes to whoever attached, else to the log, and there not too often."""

from __future__ import annotations

import logging

import pytest

from arena_pipeline.resources import progress
from arena_pipeline.resources.progress import attach, reporter


def test_an_attached_callable_gets_every_report_while_it_is_attached(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, int, int]] = []
    with attach(lambda *report: seen.append(report)):
        report = reporter(logging.getLogger("step"))
        report("replies", 1, 9)
        report("replies", 2, 9)
    assert seen == [("replies", 1, 9), ("replies", 2, 9)]
    assert caplog.records == []
    caplog.set_level(logging.INFO)
    reporter(logging.getLogger("step"))("replies", 3, 9)
    assert len(seen) == 2


def test_the_log_gets_a_label_at_most_every_ten_seconds_and_its_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    report = reporter(logging.getLogger("step"))
    for second in range(25):
        now[0] = 100.0 + second
        report("replies", second, 25)
    report("solving", 4, 0)
    report("replies", 25, 25)
    assert [record.message for record in caplog.records] == [
        "replies: 0 of 25",
        "replies: 10 of 25",
        "replies: 20 of 25",
        "solving: 4",
        "replies: 25 of 25",
    ]
