"""Compute logits, for a batch or a whole split."""

from __future__ import annotations

import numpy as np
import torch

from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.models import Classifier
from tasks.encoder.windows import pool


@torch.inference_mode()
def predict_logits(model: Classifier, table: TokenTable, batch_tokens: int = 8192) -> Array:
    """Return the logits of all documents of a table, float32 [documents, outputs]: see `batch_logits`."""
    logits = np.empty((len(table), model.spec.outputs), np.float32)
    for indices in length_batches(table.lengths, batch_tokens=batch_tokens):
        logits[indices] = batch_logits(model, table, indices)
    return pool(logits, table.rows)


@torch.no_grad()  # and no more: weights that ranks have gathered here are used in the next training step, too
def batch_logits(model: Classifier, table: TokenTable, indices: Array) -> Array:
    """Compute the logits of the rows at some positions as one batch, float32 [len(indices), outputs].

    There is no dropout, and the training mode of the model is left as it was.
    """
    training = model.training
    model.eval()
    batch = table.batch(indices).to(model.device)
    logits: Array = model(batch.input_ids, batch.attention_mask, batch.token_type_ids).float().cpu().numpy()
    model.train(training)
    return logits
