"""Open a model for the service, and check that it answers as it did when it was packaged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from include.stages import BadInput
from tasks.encoder.spec import described_head, read_values
from tasks.inference.examples import EXAMPLES, check_examples
from tasks.inference.packaged_backends import MODEL, Form, computable, fastest, padded_length
from tasks.inference.packaged_model import DESCRIPTION, PackagedModel

#: Maximum number of tokens of the batches that warm a model. OpenVINO takes tens of milliseconds for the first batch of
#: a shape. That is little compared with a larger batch, which would keep the model that answers waiting.
WARM_TOKENS = 128


@dataclass(frozen=True)
class ServedModel:
    """A model and what it is called."""

    name: str
    version: str  # in the registry; of a folder the key of the package
    form: str  # what computes, such as "openvino-bf16"
    package: PackagedModel

    def shapes(self, batch_tokens: int) -> list[tuple[int, int]]:
        """Return the shapes of batches, [rows, tokens], of which the first takes much longer than later ones."""
        longest = self.package.max_length
        lengths = sorted({min(padded_length(length), longest) for length in range(1, longest + 1)})
        if not self.form.startswith("openvino"):  # only OpenVINO prepares itself for a shape
            return [(1, length) for length in lengths]
        most = {length: max(1, min(batch_tokens, WARM_TOKENS) // length) for length in lengths}
        # The rows of a batch are a power of two.
        return [(1 << power, length) for length in lengths for power in range(most[length].bit_length())]

    def warm(self, shape: tuple[int, int]) -> None:
        """Compute a batch of a shape."""
        zeros, ones = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        self.package.backend.logits(zeros, ones, zeros)


def open_model(folder: Path, name: str, version: str, threads: int) -> ServedModel:
    """Load the fastest form of a package that this machine can compute, and check its answers to the examples.

    With 0 threads, the model computes with one per core.
    """
    if not (folder / DESCRIPTION).is_file():
        raise BadInput(f"{folder} is not a package, because it has no {DESCRIPTION}: name the folder of a package")
    if not (folder / EXAMPLES).is_file():
        raise BadInput(
            f"{folder} has no {EXAMPLES}, because it was made by an earlier version: package the model again and, if "
            "it is registered, register and promote it again"
        )
    try:
        form = _fastest(folder, json.loads((folder / DESCRIPTION).read_bytes())["forms"])
        package = PackagedModel(folder, form, threads, lambda model: _in_torch(model, threads))
        _check_head(package, folder / MODEL)
        check_examples(package, form, folder)
    except BadInput:
        raise
    except Exception as error:  # whatever a damaged file makes a library raise
        raise BadInput(f"{folder} cannot be loaded ({error!r:.500}): package the model again") from error
    return ServedModel(name, version, form, package)


def _in_torch(model: Path, threads: int) -> Any:
    import torch  # which the image of the service does not have

    from tasks.inference.trained_model import TrainedModel

    return TrainedModel(str(model), str(model)).open(threads or torch.get_num_threads())


def _check_head(package: PackagedModel, model: Path) -> None:
    head = described_head(model, read_values(model))
    labels = [] if head.kind == "regression" else head.names
    if (package.kind, package.labels) != (head.kind, labels):
        raise BadInput(
            f"{model.parent / DESCRIPTION} describes a {package.kind} of {package.labels}, but {model} is a "
            f"{head.kind} of {labels}: package the model again"
        )


def _fastest(folder: Path, forms: list[Form]) -> str:
    offered = [form for form in forms if form["offered"]]
    found = [form for form in offered if computable(form)]
    if not found:
        libraries = ", ".join(sorted({form["engine"] for form in offered}))
        raise BadInput(
            f"{folder} offers only forms of {libraries}, which cannot be computed here: package the model on a machine "
            "where onnxruntime or OpenVINO agrees with PyTorch"
        )
    return str(fastest(found)["name"])
