"""The card says truly where the adapter lies."""

from __future__ import annotations

from pathlib import Path

from arena_pipeline.assets.card import adapter_folder
from arena_pipeline.provenance.artifacts import ArtifactStore, stage_key


def test_the_adapters_folder_is_given_below_the_storage_directory(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    key = stage_key("selected_checkpoint", inputs={}, config={}, code_version="1")
    with store.work("selected_checkpoint", key) as scratch:
        (scratch / "output" / "adapter").mkdir(parents=True)
        (scratch / "output" / "adapter" / "adapter_config.json").write_text("{}")
        chosen = store.commit("selected_checkpoint", key, scratch / "output", inputs={}, config={}, code_version="1")
    assert (tmp_path / adapter_folder(chosen) / "adapter_config.json").is_file()
    assert not Path(adapter_folder(chosen)).is_absolute()
