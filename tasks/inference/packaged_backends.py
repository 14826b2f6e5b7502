"""The forms in which a package computes. This file is saved with packages, so it imports nothing of the project.

OpenVINO takes tens of milliseconds for the first batch of every shape, so there must not be too many shapes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from threading import Lock, local
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: What package.json says of a form.
Form = dict[str, Any]
#: The folder with the model in transformers' format, which has the tokenizer too.
MODEL = "model"
#: Short lengths are multiples of STEP.
STEP = 4
#: What forms are used for, and the measurements in package.json that say how fast they are there.
Use = Literal["prediction", "serving"]
USES: dict[Use, tuple[str, ...]] = {"prediction": ("one_thread",), "serving": ("one_client", "many_clients")}
#: Forms are equally fast if their speeds differ by no more than this share.
NEAR = 0.03
_ENGINES = ("torch", "onnxruntime", "openvino")
#: The number of a token's features, and of inputs of an output's weights, that share a scale in int8.
GROUP = 64
#: What OpenVINO calls a precision. In int8, it is that of what is not quantized, where the processor has no bf16.
_HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
#: The models that transformers lacks: their module of tasks/encoder and its class, by the model_type in config.json.
_OWN = {
    "pooled-encoder": ("pooled_encoder", "PooledEncoderForSequenceClassification"),
    "tfidf": ("tfidf", "TfidfForSequenceClassification"),
    "text-cnn": ("text_cnn", "TextCNNForSequenceClassification"),
}


def obstacle(form: Form) -> str:
    """Return why a form cannot be computed here; "" if it can."""
    if form["engine"] not in _ENGINES or not find_spec(form["engine"]):
        return f"{form['engine']} is not installed here"
    if form["engine"] == "openvino" and not computes(form["precision"]):
        return f"this processor does not compute in {form['precision']}"
    return ""


@cache
def openvino_core() -> Any:
    """Return OpenVINO, which stays loaded: with its last core, it frees the stack on which signals are handled."""
    import openvino

    return openvino.Core()


def computes(precision: str) -> bool:
    """Return whether this processor computes in a precision. OpenVINO would emulate bf16 in minutes, not seconds."""
    return precision != "bf16" or "BF16" in openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def times_torch(form: Form, use: Use) -> float:
    """Return the speed of a form for a use, relative to PyTorch: the geometric mean of what was measured for it."""
    return math.prod(float(form["speeds"][name]["times_torch"]) for name in USES[use]) ** (1 / len(USES[use]))


def fastest(forms: Sequence[Form], use: Use) -> Form:
    """Return the fastest form for a use; of forms that are nearly as fast, one without PyTorch is preferred.

    PyTorch takes a second to import, and several hundred megabytes.
    """
    least = (1 - NEAR) * max(times_torch(form, use) for form in forms)
    near = [form for form in forms if times_torch(form, use) >= least]
    return max(near, key=lambda form: (form["engine"] != "torch", times_torch(form, use)))


def file_of(folder: Path, form: Mapping[str, Any]) -> Path:
    """Return the file of a form, or for PyTorch the model's folder. Raise ValueError if it is not in the package."""
    name = PurePosixPath(form["file"])
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"the file {form['file']!r} of the form {form['name']!r} is not in the package")
    return folder / (MODEL if form["engine"] == "torch" else name)


def backend_of(file: Path, engine: str, precision: str, longest: int, threads: int = 0, streams: int = 1) -> Any:
    """Load a model's file in "onnxruntime" or "openvino". Raise ValueError if the library is another one."""
    if engine == "onnxruntime":
        return OnnxBackend(file, threads)
    if engine == "openvino":
        return OpenVinoBackend(file, precision, longest, threads, streams)  # type: ignore[arg-type]  # of package.json
    raise ValueError(f"there is no form of {engine!r}")


class OnnxBackend:
    """A trained model in onnxruntime, in the precision of its file, with a number of threads or 0 for its choice."""

    def __init__(self, file: Path, threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that wait leave their core to other processes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._inputs = {value.name for value in self._session.get_inputs()}

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend in tasks/inference/runner.py."""
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs = {name: value for name, value in batch.items() if name in self._inputs}
        logits: Array = self._session.run(["logits"], inputs)[0]
        return logits


class OpenVinoBackend:
    """A trained model in OpenVINO, for calls from as many threads at a time as there are streams.

    A call has the threads of all streams while there is no other, and of one stream otherwise. The threads are those of
    a stream, 0 for OpenVINO's choice.
    """

    def __init__(
        self,
        file: Path,
        precision: Literal["fp32", "bf16", "int8"],
        longest: int,
        threads: int = 0,
        streams: int = 1,
    ) -> None:
        others = "bf16" if precision == "int8" and computes("bf16") else precision
        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[others], "NUM_STREAMS": 1}
        options["ENABLE_CPU_PINNING"] = False  # or all Python workers of Spark compute on the first core
        if precision == "int8":
            options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = GROUP
        if threads:
            options["INFERENCE_NUM_THREADS"] = threads * streams
        core = openvino_core()
        self._alone = self._together = core.compile_model(file, "CPU", options)
        if streams > 1:
            self._together = core.compile_model(file, "CPU", {**options, "NUM_STREAMS": streams})
        self._inputs = {value.any_name for value in self._alone.inputs}
        first = {name: np.ones((1, STEP), np.int64) for name in self._inputs}
        requests = [self._together.create_infer_request() for _ in range(streams)]
        for request in requests:  # the first batch of each stream takes as long as several others
            request.start_async(first)
        for request in requests:
            request.wait()
        self._longest = longest
        self._requests = local()  # by model: a request has inputs and outputs of its own, which threads cannot share
        self._running, self._counting = 0, Lock()

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend in tasks/inference/runner.py."""
        rows, tokens = input_ids.shape
        shape = padded_rows(rows), max(tokens, min(self._longest, padded_length(tokens)))
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs = {name: _padded(value, shape) for name, value in batch.items() if name in self._inputs}
        inputs["attention_mask"][rows:, 0] = 1  # so that no mean is over nothing
        with self._counting:
            self._running += 1
            model = self._alone if self._running == 1 else self._together
        try:
            logits: Array = self._request(model).infer(inputs, share_inputs=True)["logits"][:rows]
        finally:
            with self._counting:
                self._running -= 1
        return logits

    def _request(self, model: Any) -> Any:
        requests = self._requests.__dict__
        if model not in requests:
            requests[model] = model.create_infer_request()
        return requests[model]


class TransformersBackend:
    """A trained model in plain transformers, in fp32. None of its classes is loaded from the model's folder."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification

        family: Any = AutoModelForSequenceClassification
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
        if kind in _OWN:
            module, name = _OWN[kind]
            family = getattr(import_module(f"..encoder.{module}", __package__), name)
        self._model = family.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        ).eval()
        # As in training: see EncoderWithHead.
        config = getattr(self._model.config, "encoder", self._model.config)
        self._segments = getattr(config, "type_vocab_size", 0) > 1

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend in tasks/inference/runner.py."""
        import torch

        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self._segments:
            inputs["token_type_ids"] = token_type_ids
        with torch.inference_mode():
            logits: Array = self._model(**{name: torch.from_numpy(value) for name, value in inputs.items()})[0].numpy()
        return logits


def padded_length(tokens: int) -> int:
    """Return the length to which a batch is padded.

    From 32 tokens on, there are four lengths between a power of two and the next one: 40, 48, 56, 64, 80, ...
    """
    return _rounded(tokens, STEP)


def padded_rows(rows: int) -> int:
    """Return the number of rows to which a batch is padded: up to 8 as it is, then 10, 12, 14, 16, 20, ..."""
    return _rounded(rows, 1)


def _rounded(count: int, least: int) -> int:
    step = max(least, (1 << (count - 1).bit_length()) >> 3)
    return -(-count // step) * step


def _padded(values: Array, shape: tuple[int, int]) -> Array:
    if values.shape == shape:
        return values
    padded = np.zeros(shape, values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded
