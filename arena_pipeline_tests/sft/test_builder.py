"""Building: partitions and workers change nothing, whole or nothing, and what is refused before any work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.builder import Shard, build_dataset, plain_shard, targeted_shard
from arena_pipeline.sft.loading import load_dataset
from arena_pipeline.sft.rows import content_sha256, merged_content_sha256
from arena_pipeline_tests.sft.corpus import SPLITS, read_bodies

FILES = {"train.jsonl", "validation.jsonl", "test.jsonl", "manifest.json"}


def left_behind(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_exactly_the_four_files(small_directory: Path) -> None:
    assert {path.name for path in small_directory.iterdir()} == FILES
    assert left_behind(small_directory.parent) == ["dataset"]


def test_manifest_text(small_directory: Path) -> None:
    text = (small_directory / "manifest.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@settings(max_examples=15)
@given(cuts=st.sets(st.integers(1, 11)))
def test_any_partition_gives_the_lines_and_the_hash_of_one_build(
    pack: PromptPack, small_directory: Path, cuts: set[int]
) -> None:
    bounds = [0, *sorted(cuts), 12]
    parts = [plain_shard(pack, range(low, high)) for low, high in pairwise(bounds)]
    parts.append(_targeted(pack))
    for split in SPLITS:
        lines = "".join(line for part in parts for line in part.lines[split])
        assert lines == (small_directory / f"{split}.jsonl").read_text(encoding="utf-8")
    manifest = json.loads((small_directory / "manifest.json").read_text(encoding="utf-8"))
    assert merged_content_sha256(sorted(part.ids) for part in parts) == manifest["content_sha256"]
    rejections: Counter[str] = Counter()
    for part in parts:
        rejections.update(part.rejections)
    assert dict(rejections) == manifest["rejections"]


_made: dict[str, Shard] = {}


def _targeted(pack: PromptPack) -> Shard:
    if not _made:
        _made["targeted"] = targeted_shard(pack, 0)
    return _made["targeted"]


def test_workers_change_nothing_but_their_number(pack: PromptPack, tmp_path: Path) -> None:
    build_dataset(tmp_path / "one", pack, num_seeds=300, workers=1)
    seen: list[tuple[str, int, int]] = []
    build_dataset(tmp_path / "two", pack, num_seeds=300, workers=2, progress=lambda *step: seen.append(step))
    for split in SPLITS:
        name = f"{split}.jsonl"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    one, two = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("one", "two"))
    assert (one.pop("generation_workers"), two.pop("generation_workers")) == (1, 2)
    assert one == two
    assert seen == [("dataset seeds", 0, 300), ("dataset seeds", 256, 300), ("dataset seeds", 300, 300)]


def test_another_start_seed_moves_every_base(pack: PromptPack, tmp_path: Path) -> None:
    manifest = build_dataset(tmp_path / "dataset", pack, num_seeds=3, start_seed=2_000)
    rows = [body["metadata"] for split in SPLITS for body in read_bodies(tmp_path / "dataset" / f"{split}.jsonl")]
    seeds: dict[str, list[int]] = {}
    for metadata in rows:
        seeds.setdefault(metadata.get("targeted_skill", ""), []).append(metadata["seed"])
    assert set(seeds[""]) == {2_000, 2_001, 2_002}
    assert min(seeds["WAIT"]) == 25_000_000
    assert 25_002_000 <= min(seeds["SCAN"]) < max(seeds["SCAN"]) < 25_004_000 <= min(seeds["TRANSFER"])
    assert sorted(seeds["SILENCE"]) == [*range(26_000_000, 26_000_512)]
    assert {skill: len(found) for skill, found in seeds.items() if skill} == {
        "WAIT": 32,
        "SCAN": 32,
        "TRANSFER": 32,
        "SILENCE": 512,
    }
    assert (manifest.num_seeds, manifest.start_seed) == (3, 2_000)
    assert load_dataset(tmp_path / "dataset").content_sha256 == content_sha256(
        body["id"] for split in SPLITS for body in read_bodies(tmp_path / "dataset" / f"{split}.jsonl")
    )


def test_skill_quotas_by_split(small_directory: Path) -> None:
    for split, quota in {"train": 24, "validation": 4, "test": 4}.items():
        skills = Counter(
            body["metadata"].get("targeted_skill", "") for body in read_bodies(small_directory / f"{split}.jsonl")
        )
        assert [skills[skill] for skill in ("WAIT", "SCAN", "TRANSFER")] == [quota] * 3


@pytest.mark.parametrize(
    ("num_seeds", "start_seed", "message"),
    [
        (1024, 1_000_000, "seed 1000003: reserved by evaluation manifest arena-frozen-60"),
        (1, 2_000_003, "seed 2000003: reserved by evaluation manifest arena-dev;"),
        (10**9, 0, "seed 1000003"),
        (1, 4_082_100, "seed 4082100: reserved by evaluation manifest arena-eval-600"),
        (1, -1, "start seed from 0"),
        (0, 0, "at least 1 seed"),
        (1, 10**8, "reserved for development"),
    ],
)
def test_seeds_that_are_refused_before_any_work(
    pack: PromptPack, tmp_path: Path, num_seeds: int, start_seed: int, message: str
) -> None:
    steps: list[tuple[str, int, int]] = []
    with pytest.raises(DatasetError, match=message):
        build_dataset(tmp_path / "dataset", pack, num_seeds, start_seed, progress=lambda *step: steps.append(step))
    assert steps == []
    assert left_behind(tmp_path) == []


def test_the_seed_before_a_frozen_one_is_allowed(pack: PromptPack, tmp_path: Path) -> None:
    build_dataset(tmp_path / "dataset", pack, num_seeds=3, start_seed=1_000_000)
    with pytest.raises(DatasetError, match="seed 1000003"):
        build_dataset(tmp_path / "other", pack, num_seeds=4, start_seed=1_000_000)


def test_nothing_is_overwritten(pack: PromptPack, tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "note.txt").write_text("mine")
    with pytest.raises(DatasetError, match="not empty"):
        build_dataset(occupied, pack, num_seeds=1)
    assert left_behind(occupied) == ["note.txt"]
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(DatasetError, match="not a directory"):
        build_dataset(file, pack, num_seeds=1)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="not a directory"):
        build_dataset(link, pack, num_seeds=1)
    assert left_behind(tmp_path) == ["file", "link", "occupied"]


def test_what_appears_meanwhile_is_left_alone(pack: PromptPack, tmp_path: Path) -> None:
    out = tmp_path / "dataset"

    def occupy(label: str, done: int, total: int) -> None:
        out.mkdir(exist_ok=True)
        (out / "note.txt").write_text("mine")

    with pytest.raises(DatasetError, match="left as it is"):
        build_dataset(out, pack, num_seeds=1, progress=occupy)
    assert left_behind(tmp_path) == ["dataset"]
    assert left_behind(out) == ["note.txt"]


def test_an_empty_directory_is_filled(pack: PromptPack, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "dataset"
    out.mkdir(parents=True)
    build_dataset(out, pack, num_seeds=1)
    assert {path.name for path in out.iterdir()} == FILES


def test_the_current_directory_is_filled(pack: PromptPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "here"
    out.mkdir()
    monkeypatch.chdir(out)
    build_dataset(Path(), pack, num_seeds=1)
    assert {path.name for path in out.iterdir()} == FILES


def test_an_interrupted_build_leaves_nothing(pack: PromptPack, tmp_path: Path) -> None:
    def interrupt(label: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_dataset(tmp_path / "dataset", pack, num_seeds=2, progress=interrupt)
    assert left_behind(tmp_path) == []


def test_two_builds_at_once(pack: PromptPack, tmp_path: Path) -> None:
    refused: list[str] = []

    def build_too(label: str, done: int, total: int) -> None:
        with pytest.raises(DatasetError) as caught:
            build_dataset(tmp_path / "dataset", pack, num_seeds=1)
        refused.append(str(caught.value))

    build_dataset(tmp_path / "dataset", pack, num_seeds=1, progress=build_too)
    assert refused
    assert all("another process is building it" in message for message in refused)
    assert left_behind(tmp_path) == ["dataset"]


_KILLED_BUILD = """
import os, signal, sys
from pathlib import Path
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.sft.builder import build_dataset
def kill(label, done, total):
    if done:
        os.kill(os.getpid(), signal.SIGKILL)
build_dataset(Path(sys.argv[1]), PromptPack("v", "b", "a", "o"), num_seeds=300, progress=kill)
"""


def test_after_a_killed_build_the_next_one_succeeds(pack: PromptPack, tmp_path: Path, small_directory: Path) -> None:
    out = tmp_path / "dataset"
    killed = subprocess.run([sys.executable, "-c", _KILLED_BUILD, str(out)], cwd=Path(__file__).parents[2], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert left_behind(tmp_path) == [".dataset.partial"]
    build_dataset(out, pack, num_seeds=12)
    assert left_behind(tmp_path) == ["dataset"]
    for name in FILES:
        assert (out / name).read_bytes() == (small_directory / name).read_bytes()
