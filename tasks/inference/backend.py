"""The forms in which a trained model computes its logits."""

from __future__ import annotations

from typing import Protocol

from tasks.encoder.batching import Array


class Backend(Protocol):
    """A trained model in a form that computes logits. A form that wants few shapes pads its batches itself."""

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch.

        Args:
            input_ids: token ids, int64 [rows, tokens].
            attention_mask: 1 for tokens and 0 for padding, int64 [rows, tokens].
            token_type_ids: segment of each token, int64 [rows, tokens]. It is ignored if the encoder has no segments.

        Returns:
            Logits, or scores in the task's own range for a regression, float32 [rows, outputs].
        """
