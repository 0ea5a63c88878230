"""Builds a dataset directory: streamed, whole or not at all (dataset specification, "Labels", "Rows, ids, hash")."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Final, TextIO

from arena_pipeline.arena.generation import GENERATOR_VERSION
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.arena.state import ARENA_VERSION
from arena_pipeline.errors import DatasetError
from arena_pipeline.progress import Progress, silent
from arena_pipeline.sft.directory import new_directory, refuse_existing
from arena_pipeline.sft.labels import (
    ROWS_PER_SKILL,
    SILENCE_ROWS,
    plain_rows,
    silence_rows,
    skill_rows,
    targeted_seed_ranges,
)
from arena_pipeline.sft.manifest import MANIFEST_FILE, DatasetManifest
from arena_pipeline.sft.metadata import ACTION_SKILLS, DATASET_VERSION
from arena_pipeline.sft.rows import Row, content_sha256
from arena_pipeline.sft.splits import SPLITS, refuse_evaluation_seeds

DEFAULT_SEEDS: Final = 1024
SEEDS_PER_SHARD: Final = 256
_WORTH_A_POOL: Final = 16 * SEEDS_PER_SHARD
"""From this many seeds on, starting processes costs less than it saves."""
_LAST_DATASET_SEED: Final = 10**11 - 1


@dataclass(slots=True)
class Shard:
    """The rows of a range of seeds, as lines by split in generation order, with their ids and counts."""

    lines: dict[str, list[str]] = field(default_factory=lambda: {split: [] for split in SPLITS})
    ids: list[str] = field(default_factory=list)
    phases: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in rows, in order."""
        for row in rows:
            self.lines[row.split].append(row.line())
            self.ids.append(row.id)
            self.phases[row.phase] += 1


def plain_shard(pack: PromptPack, seeds: range) -> Shard:
    """The plain rows of a range of seeds: the part of a dataset that can be split into any ranges."""
    shard = Shard()
    for seed in seeds:
        shard.add(plain_rows(pack, seed, shard.rejections))
    return shard


def targeted_shard(pack: PromptPack, start_seed: int) -> Shard:
    """The targeted and silence rows of a build, which are made once, whatever the number of seeds."""
    shard = Shard()
    for skill in ACTION_SKILLS:
        shard.add(skill_rows(pack, skill, start_seed, shard.rejections))
    shard.add(silence_rows(pack, start_seed))
    return shard


def build_dataset(
    out: Path,
    pack: PromptPack,
    num_seeds: int = DEFAULT_SEEDS,
    start_seed: int = 0,
    workers: int | None = None,
    progress: Progress = silent,
) -> DatasetManifest:
    """Build the dataset of ``num_seeds`` plain seeds from ``start_seed`` on into a new directory ``out``.

    ``workers`` is the number of processes; None takes one for small builds and every core for large ones. The files
    are the same for any number, but for the manifest's note of it. Raises ``DatasetError`` before any work if ``out``
    exists and is not empty or if a seed is not allowed; whatever goes wrong later leaves no ``out`` behind.
    """
    if num_seeds < 1 or start_seed < 0 or (workers is not None and workers < 1):
        raise DatasetError(
            f"{num_seeds} seeds from {start_seed} with {workers} workers: allowed are at least 1 seed, a start seed "
            "from 0 (a negative seed would repeat the state of its positive one) and at least 1 worker"
        )
    seeds = range(start_seed, start_seed + num_seeds)
    ranges = [seeds, *targeted_seed_ranges(start_seed)]
    refuse_evaluation_seeds(*ranges)
    if any(group[-1] > _LAST_DATASET_SEED for group in ranges):
        raise DatasetError(
            f"start seed {start_seed}: its rows would reach seed {_LAST_DATASET_SEED + 1}; seeds from there on are "
            "reserved for development"
        )
    refuse_existing(out)
    if workers is None:
        workers = (os.cpu_count() or 1) if num_seeds >= _WORTH_A_POOL else 1

    with new_directory(out) as partial:
        manifest = _write(partial, pack, seeds, workers, progress)
        (partial / MANIFEST_FILE).write_text(manifest.text(), encoding="utf-8")
    return manifest


def _write(directory: Path, pack: PromptPack, seeds: range, workers: int, progress: Progress) -> DatasetManifest:
    """Write the rows' files; the manifest is returned, not written."""
    ids: list[str] = []
    by_split: Counter[str] = Counter()
    by_phase: Counter[str] = Counter()
    rejections: Counter[str] = Counter()
    with ExitStack() as stack:
        files: dict[str, TextIO] = {
            split: stack.enter_context((directory / f"{split}.jsonl").open("w", encoding="utf-8", newline="\n"))
            for split in SPLITS
        }

        def take(shard: Shard) -> None:
            for split, lines in shard.lines.items():
                files[split].writelines(lines)
                by_split[split] += len(lines)
            ids.extend(shard.ids)
            by_phase.update(shard.phases)
            rejections.update(shard.rejections)

        done = 0
        progress("dataset seeds", done, len(seeds))
        for part, shard in _plain_shards(pack, seeds, workers):
            take(shard)
            done += len(part)
            progress("dataset seeds", done, len(seeds))
        take(targeted_shard(pack, seeds.start))
    return DatasetManifest(
        arena_version=ARENA_VERSION,
        content_sha256=content_sha256(ids),
        dataset_version=DATASET_VERSION,
        examples_by_phase=dict(by_phase),
        examples_by_split=dict(by_split),
        generation_workers=workers,
        generator_version=GENERATOR_VERSION,
        num_examples=len(ids),
        num_seeds=len(seeds),
        prompt_version=pack.version,
        rejections=dict(rejections),
        start_seed=seeds.start,
        targeted_mechanics_per_kind=ROWS_PER_SKILL,
        targeted_silence_examples=SILENCE_ROWS,
    )


def _plain_shards(pack: PromptPack, seeds: range, workers: int) -> Iterator[tuple[range, Shard]]:
    """The plain shards in order; with several workers, never more at once in memory than keep them busy."""
    parts = [seeds[start : start + SEEDS_PER_SHARD] for start in range(0, len(seeds), SEEDS_PER_SHARD)]
    if workers == 1:
        for part in parts:
            yield part, plain_shard(pack, part)
        return
    # Spawned, not forked: a forked child would inherit the threads and locks of whatever process builds.
    with ProcessPoolExecutor(workers, get_context("spawn"), _prepare_worker) as pool:
        pending: deque[tuple[range, Future[Shard]]] = deque()
        try:
            for part in parts:
                pending.append((part, pool.submit(plain_shard, pack, part)))
                if len(pending) > 2 * workers:
                    earlier, future = pending.popleft()
                    yield earlier, future.result()
            while pending:
                earlier, future = pending.popleft()
                yield earlier, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent is gone: a killed parent cannot tell its workers to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
