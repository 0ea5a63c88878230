"""The corpus as token arrays: generated and encoded in parallel, batched by length."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.base_models.corpus.documents import CorpusMixture, Message, documents
from arena_pipeline.base_models.tokenizer import IM_END, IM_START
from arena_pipeline.progress import Progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DOCUMENTS_PER_SHARD: Final = 8192
_LENGTH_WINDOW: Final = 16384


@dataclass(frozen=True)
class Corpus:
    """Token ids (uint16) of all documents end to end, whether each belongs to a reply, and where documents start."""

    tokens: NDArray[np.uint16]
    replies: NDArray[np.bool_]
    starts: NDArray[np.int64]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per document."""
        return np.diff(self.starts)

    def batches(self, tokens_per_batch: int, seed: int) -> list[NDArray[np.int64]]:
        """Document numbers per batch: shuffled, then grouped by like length so that little is padded."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.lengths))
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), _LENGTH_WINDOW):
            window = order[start : start + _LENGTH_WINDOW]
            window = window[np.argsort(self.lengths[window], kind="stable")]
            cut = 0
            while cut < len(window):
                size = 1
                while cut + size < len(window) and (size + 1) * self.lengths[window[cut + size]] <= tokens_per_batch:
                    size += 1
                batches.append(window[cut : cut + size])
                cut += size
        random.Random(seed).shuffle(batches)
        return batches


def encode_document(tokenizer: Tokenizer, messages: list[Message]) -> tuple[list[int], list[bool]]:
    """A conversation's token ids in the chat format, and which of them are a reply's (its end of turn included)."""
    (start,), (end,) = tokenizer.encode(IM_START).ids, tokenizer.encode(IM_END).ids
    pieces = tokenizer.encode_batch_fast([piece for role, content in messages for piece in (f"{role}\n", content)])
    newline = tokenizer.encode("\n").ids
    ids: list[int] = []
    replies: list[bool] = []
    for number, (role, _) in enumerate(messages):
        head = [start, *pieces[2 * number].ids]
        body = [*pieces[2 * number + 1].ids, end]
        ids += head + body + newline
        replies += [False] * len(head) + [role == "assistant"] * len(body) + [False] * len(newline)
    return ids, replies


def shard(
    job: tuple[int, int, PromptPack, CorpusMixture, str],
) -> tuple[NDArray[np.uint16], NDArray[np.bool_], list[int]]:
    """Tokens, reply marks and document lengths of (seed, documents, prompts, mixture, tokenizer file)."""
    # One shard, one process, one thread: threads of many processes would fight for the cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    seed, count, pack, mixture, tokenizer_file = job
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokens: list[int] = []
    replies: list[bool] = []
    lengths: list[int] = []
    for messages in documents(seed, count, pack, mixture):
        ids, mask = encode_document(tokenizer, messages)
        tokens += ids
        replies += mask
        lengths.append(len(ids))
    return np.array(tokens, dtype=np.uint16), np.array(replies, dtype=np.bool_), lengths


def build_corpus(
    count: int,
    seed: int,
    pack: PromptPack,
    mixture: CorpusMixture,
    tokenizer_file: Path,
    workers: int,
    progress: Progress,
) -> Corpus:
    """Generate and encode ``count`` documents in ``workers`` processes; the result does not depend on their number."""
    jobs = [
        (seed * 1_000_000 + number, min(DOCUMENTS_PER_SHARD, count - start), pack, mixture, str(tokenizer_file))
        for number, start in enumerate(range(0, count, DOCUMENTS_PER_SHARD))
    ]
    tokens: list[NDArray[np.uint16]] = []
    replies: list[NDArray[np.bool_]] = []
    lengths = [0]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done, (ids, mask, sizes) in enumerate(pool.map(shard, jobs), start=1):
            tokens.append(ids)
            replies.append(mask)
            lengths += sizes
            progress("corpus shards", done, len(jobs))
    return Corpus(np.concatenate(tokens), np.concatenate(replies), np.cumsum(lengths))


def tokenizer_texts(seed: int, count: int, pack: PromptPack, mixture: CorpusMixture) -> Iterator[str]:
    """Message texts to train the tokenizer on."""
    for messages in documents(seed, count, pack, mixture):
        for role, content in messages:
            yield f"{role}\n{content}"
