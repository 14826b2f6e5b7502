"""A trained model as OpenVINO computes it. This file is saved with packages: it imports only one that is saved too."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import openvino

from .shapes import padded_length, padded_rows

Array = npt.NDArray[Any]
_HINTS = {"fp32": "f32", "bf16": "bf16"}


class OpenVinoBackend:
    """A trained model in OpenVINO.

    Args:
        file: the model's .xml file; its weights are in the .bin file beside it.
        precision: in what the CPU computes matrix products; the weights are stored in fp32.
        longest: maximum length of an input in tokens.
        threads: number of CPU threads; 0 for OpenVINO's choice.
    """

    def __init__(self, file: Path, precision: Literal["fp32", "bf16"], longest: int, threads: int = 0) -> None:
        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "PERFORMANCE_HINT": "LATENCY"}
        if threads:
            options["INFERENCE_NUM_THREADS"] = threads
        self._model = openvino.Core().compile_model(file, "CPU", options)
        self._inputs = {value.any_name for value in self._model.inputs}
        self._longest = longest
        self._alone = Lock()  # calls of a compiled model share their inputs and outputs, and MLflow calls from threads

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see tasks/inference/backend.py."""
        rows, tokens = input_ids.shape
        shape = padded_rows(rows), max(tokens, min(self._longest, padded_length(tokens)))
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs = {name: _padded(value, shape) for name, value in batch.items() if name in self._inputs}
        inputs["attention_mask"][rows:, 0] = 1  # so that no mean is over nothing
        with self._alone:
            logits: Array = self._model(inputs)["logits"][:rows]
        return logits.copy()


def computes(precision: str) -> bool:
    """Return whether this processor computes in a precision.

    OpenVINO emulates bf16 on a processor that lacks it, and takes minutes where fp32 takes seconds.
    """
    return precision != "bf16" or "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _padded(values: Array, shape: tuple[int, int]) -> Array:
    padded = np.zeros(shape, values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded
