"""Compute logits, for a batch or a whole split."""

from __future__ import annotations

import numpy as np
import torch

from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.models import Classifier
from tasks.encoder.windows import pool


@torch.inference_mode()
def predict_logits(model: Classifier, table: TokenTable, batch_tokens: int = 8192) -> Array:
    """Compute the logits of all documents of a table, without dropout, on the model's device.

    Args:
        model: the model; its training mode is left as it was.
        table: the rows.
        batch_tokens: maximum number of tokens per batch, including padding.

    Returns:
        Logits in the order of the table, float32 [documents, outputs].
    """
    logits = np.empty((len(table), model.spec.outputs), np.float32)
    for indices in length_batches(table.lengths, batch_tokens=batch_tokens):
        logits[indices] = batch_logits(model, table, indices)
    return pool(logits, table.rows)


@torch.no_grad()  # and no more: weights that ranks have gathered here are used in the next training step, too
def batch_logits(model: Classifier, table: TokenTable, indices: Array) -> Array:
    """Compute the logits of some rows as one batch, without dropout, on the model's device.

    Args:
        model: the model; its training mode is left as it was.
        table: the table that holds the rows.
        indices: positions of the rows in the table.

    Returns:
        Logits, float32 [len(indices), outputs].
    """
    training = model.training
    model.eval()
    batch = table.batch(indices).to(model.device)
    logits: Array = model(batch.input_ids, batch.attention_mask, batch.token_type_ids).float().cpu().numpy()
    model.train(training)
    return logits
