"""A trained model as onnxruntime computes it. This file is saved with packages: it imports nothing of the project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime

Array = npt.NDArray[Any]


class OnnxBackend:
    """A trained model in onnxruntime, in the precision of its file.

    Args:
        file: the ONNX file.
        threads: number of CPU threads; 0 for onnxruntime's choice.
    """

    def __init__(self, file: Path, threads: int = 0) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that wait leave their core to other processes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see tasks/inference/backend.py."""
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs = {name: value for name, value in batch.items() if name in self._inputs}
        logits: Array = self._session.run(["logits"], inputs)[0]
        return logits
