"""A trained model as PyTorch computes it: the reference for all other forms."""

from __future__ import annotations

from pathlib import Path

import torch

from tasks.encoder.batching import Array
from tasks.encoder.loading import load_trained
from tasks.encoder.models import Classifier


class TorchBackend:
    """A trained model in PyTorch, in fp32.

    Attributes:
        model: the model, in evaluation mode.
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model.eval()

    @classmethod
    def open(cls, folder: Path) -> TorchBackend:
        """Load the model from its folder.

        Raises:
            BadInput: if files are missing or damaged.
        """
        return cls(load_trained(folder))

    @torch.inference_mode()
    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend."""
        device = self.model.device
        inputs = (torch.from_numpy(part).to(device) for part in (input_ids, attention_mask, token_type_ids))
        logits: Array = self.model(*inputs).float().cpu().numpy()
        return logits
