"""Tables and plots: what Dagster accepts, in sizes that a browser can take (known trouble 48)."""

from __future__ import annotations

import base64
import io
import os
from typing import Any

import pytest
from dagster import AssetMaterialization

from arena_pipeline.resources import metadata
from arena_pipeline.resources.metadata import MOST_BYTES, MOST_ROWS, fenced, markdown, plot, table


def records(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(record.data) for record in table(rows).records]


def test_a_table_takes_rows_of_any_shape() -> None:
    found = records([{"a": 1, "b": None}, {"a": 0.5, "c": {"x": [1]}}, {"b": True, "c": "text"}])
    assert found == [
        {"a": 1, "b": None, "c": None},
        {"a": 0.5, "b": None, "c": "{'x': [1]}"},
        {"a": None, "b": True, "c": "text"},
    ]
    assert AssetMaterialization("asset", metadata={"table": table([]), "rows": table([{"a": 1}])})


def test_a_long_table_says_how_much_is_left_out() -> None:
    found = records([{"case": number, "regret": 0.0} for number in range(MOST_ROWS + 7)])
    assert len(found) == MOST_ROWS + 1
    assert found[-1] == {"case": "... 7 more rows", "regret": None}
    assert len(records([{"case": number} for number in range(MOST_ROWS)])) == MOST_ROWS


def test_long_markdown_is_cut_and_says_so() -> None:
    assert markdown("short").md_str == "short"
    found = markdown("ü" * MOST_BYTES).md_str or ""
    assert len(found.encode()) < MOST_BYTES + 100
    assert found.endswith("(cut: too long to show)")


def pixels(text: str) -> Any:
    from matplotlib.image import imread

    prefix, _, encoded = text.partition("base64,")
    assert prefix == "![Loss](data:image/png;"
    return imread(io.BytesIO(base64.b64decode(encoded.removesuffix(")"))))


def test_a_plot_is_a_picture_on_an_opaque_white_ground() -> None:
    text = plot("Loss", lambda axes: axes.plot([0, 1, 2], [3, 2, 1])).md_str or ""
    found = pixels(text)
    assert len(text) < MOST_BYTES
    assert found[..., 3].min() == 1.0, "readable on a dark page too"
    assert found[0, 0, :3].min() == 1.0
    assert found[..., :3].min() < 0.5, "something is drawn"


def test_a_picture_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MOST_BYTES", 1000)
    text = plot("Loss", lambda axes: axes.plot([0, 1], [0, 1])).md_str or ""
    assert "too many to show" in text
    assert "base64" not in text


def test_plots_leave_no_global_state() -> None:
    """A figure of pyplot would stay in memory for the life of the process."""
    import matplotlib

    plot("Loss", lambda axes: axes.plot([0, 1], [0, 1]))
    from matplotlib import _pylab_helpers

    assert _pylab_helpers.Gcf.get_all_fig_managers() == []
    assert matplotlib.get_backend().lower() == os.environ["MPLBACKEND"].lower()


def test_a_brought_text_is_fenced_and_cannot_leave_its_fence() -> None:
    assert fenced("<b>*x*</b>") == "```\n<b>*x*</b>\n```"
    assert fenced("a\n````\nb").splitlines() == ["`````", "a", "````", "b", "`````"]
