"""Logits of a whole split, batch by batch."""

from __future__ import annotations

import numpy as np
import torch

from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.models import Classifier


def predict_logits(model: Classifier, table: TokenTable, batch_tokens: int = 8192) -> Array:
    """Logits of every row in table order, float32 [rows, outputs]; the model runs where it is, without dropout."""
    logits = np.empty((len(table), model.spec.outputs), np.float32)
    for indices in length_batches(table.lengths, batch_tokens=batch_tokens):
        logits[indices] = batch_logits(model, table, indices)
    return logits


@torch.inference_mode()
def batch_logits(model: Classifier, table: TokenTable, indices: Array) -> Array:
    """Logits of the rows at these positions, float32 [len(indices), outputs], without dropout."""
    training = model.training
    model.eval()
    batch = table.batch(indices).to(model.device)
    logits: Array = model(batch.input_ids, batch.attention_mask, batch.token_type_ids).float().cpu().numpy()
    model.train(training)
    return logits
