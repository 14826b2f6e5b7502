"""A trained model as PyTorch computes it: the reference for all other forms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tasks.encoder.batching import Array
from tasks.encoder.loading import load_trained
from tasks.encoder.models import Classifier


class TorchBackend:
    """A trained model in PyTorch, in fp32.

    Args:
        model: the model, which is put into evaluation mode.
        threads: number of CPU threads.
    """

    def __init__(self, model: Classifier, threads: int) -> None:
        self._model, self._threads = model.eval(), threads

    @classmethod
    def open(cls, folder: Path, threads: int) -> TorchBackend:
        """Load the model from its folder.

        Raises:
            BadInput: if files are missing or damaged.
        """
        return cls(load_trained(folder), threads)

    @torch.inference_mode()
    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend."""
        device = self._model.device
        inputs = (torch.from_numpy(part).to(device) for part in (input_ids, attention_mask, token_type_ids))
        with _cpu_threads(self._threads):
            logits: Array = self._model(*inputs).float().cpu().numpy()
        return logits


@contextmanager
def _cpu_threads(number: int) -> Iterator[None]:
    """Let PyTorch compute with a number of threads within the block. The number belongs to the whole process."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
