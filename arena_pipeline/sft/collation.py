"""Padding encoded rows into batches, and the order in which a run reads them.

Rows are padded on the right; labels are positions, not token values, so padding can never be supervised (known trouble
7). Packing is not offered: every row keeps a sequence of its own (known trouble 9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arena_pipeline.errors import TrainingError
from arena_pipeline.sft.encoding import EncodedRow

IGNORED = -100


def training_order(
    row_ids: Sequence[str], rows: Mapping[str, EncodedRow], effective_batch_size: int
) -> list[EncodedRow]:
    """The rows of a mixture in the order in which micro-batches take them.

    Step k trains on exactly the k-th ``effective_batch_size`` drawn ids. Within a step rows are sorted by length (then
    by place of drawing), so that its micro-batches pad little; the loss, a mean over the whole step, does not depend on
    that. Raises ``TrainingError`` for a drawn id that is no row.
    """
    order: list[EncodedRow] = []
    for start in range(0, len(row_ids), effective_batch_size):
        step = row_ids[start : start + effective_batch_size]
        missing = next((row_id for row_id in step if row_id not in rows), None)
        if missing is not None:
            raise TrainingError(f"mixture: draw {start} ff. names row {missing}, which is not a training row")
        order.extend(sorted((rows[row_id] for row_id in step), key=lambda row: len(row.input_ids)))
    return order


def in_batches(rows: Sequence[EncodedRow], size: int) -> list[Sequence[EncodedRow]]:
    """The rows in their order, ``size`` at a time; the last batch may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def collate(rows: Sequence[EncodedRow], pad_token_id: int, weights: Mapping[str, float]) -> dict[str, Any]:
    """Tensors of shape (rows, longest row): ``input_ids``, ``attention_mask``, ``labels`` and ``loss_weights``.

    Outside the supervised tokens ``labels`` is -100 and ``loss_weights`` 0; inside, the weight is the row's phase's.
    """
    import torch

    length = max(len(row.input_ids) for row in rows)
    shape = (len(rows), length)
    input_ids = torch.full(shape, pad_token_id, dtype=torch.long)
    attention_mask = torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, IGNORED, dtype=torch.long)
    loss_weights = torch.zeros(shape, dtype=torch.float32)
    for index, row in enumerate(rows):
        ids = torch.tensor(row.input_ids, dtype=torch.long)
        end = len(row.input_ids)
        input_ids[index, :end] = ids
        attention_mask[index, :end] = 1
        labels[index, row.reply_start : end] = ids[row.reply_start :]
        loss_weights[index, row.reply_start : end] = weights[row.phase]
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": labels,
        "loss_weights": loss_weights,
    }


def reply_losses(model: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Per-token negative log-likelihoods of a batch's supervised tokens and their weights, two 1-D float32 tensors.

    Logits are computed only for the columns in which some row has a supervised next token, which bounds their memory
    for large vocabularies.
    """
    import torch

    targets = batch["labels"][:, 1:]
    supervised = targets != IGNORED
    columns = supervised.any(dim=0).nonzero().flatten()
    logits = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        use_cache=False,
        logits_to_keep=columns,
    ).logits
    chosen = supervised[:, columns]
    losses = torch.nn.functional.cross_entropy(logits[chosen].float(), targets[:, columns][chosen], reduction="none")
    return losses, batch["loss_weights"][:, 1:][:, columns][chosen]
