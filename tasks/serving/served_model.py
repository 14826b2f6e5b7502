"""Open a model for the service, and check that it answers as it did when it was packaged."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from include.fields.results import FormName
from include.stages import BadInput
from tasks.encoder.spec import described_head, read_values
from tasks.inference.capacity import Capacity
from tasks.inference.chosen_form import choose, guard_of, log_guard
from tasks.inference.examples import EXAMPLES, check_examples
from tasks.inference.packaged_backends import MODEL, padded_length
from tasks.inference.packaged_model import DESCRIPTION, PackagedModel

#: Maximum number of tokens and rows of the batches that warm a model. OpenVINO takes milliseconds more for the first
#: batch of a shape. Larger batches would keep the model that answers waiting.
WARM_TOKENS, WARM_ROWS = 64, 8
#: The processor time that a container may take in a period, or "max", and the period, both in microseconds.
QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class ServedModel:
    """A model and what it is called."""

    name: str
    version: str  # in the registry; of a folder the key of the package
    form: str  # what computes, such as "openvino-bf16"
    package: PackagedModel
    capacity: Capacity | None = None

    def shapes(self, batch_tokens: int) -> list[tuple[int, int]]:
        """Return the shapes of batches, [rows, tokens], of which the first takes much longer than later ones."""
        longest = self.package.max_length
        lengths = sorted({min(padded_length(length), longest) for length in range(1, longest + 1)})
        if not self.form.startswith("openvino"):  # only OpenVINO prepares itself for a shape
            return [(1, length) for length in lengths]
        most = {length: max(1, min(batch_tokens, WARM_TOKENS) // length) for length in lengths}
        return [(rows, length) for length in lengths for rows in range(1, min(most[length], WARM_ROWS) + 1)]

    def warm(self, shape: tuple[int, int]) -> None:
        """Compute a batch of a shape."""
        zeros, ones = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        self.package.backend.logits(zeros, ones, zeros)


def threads_of(wanted: int) -> int:
    """Return the number of threads that compute: as many as the settings want; for 0, one per core, within a quota."""
    return wanted or min(len(os.sched_getaffinity(0)), _cores_of_quota())


def _cores_of_quota() -> int:
    with suppress(OSError, ValueError):  # there is none
        quota, period = map(int, QUOTA.read_text(encoding="ascii").split())
        return math.ceil(quota / period)
    return os.cpu_count() or 1


def open_model(
    folder: Path, name: str, version: str, threads: int, wanted: FormName = "auto", max_risk: float | None = None
) -> ServedModel:
    """Load the wanted form of a package, or the fastest for a service, and check its answers to the examples.

    It is called from `threads_of(threads)` threads, and computes each call in one.
    """
    if not (folder / DESCRIPTION).is_file():
        raise BadInput(f"{folder} is not a package, because it has no {DESCRIPTION}: name the folder of a package")
    if not (folder / EXAMPLES).is_file():
        raise BadInput(
            f"{folder} has no {EXAMPLES}, because it was made by an earlier version: package the model again and, if "
            "it is registered, register and promote it again"
        )
    try:
        form = str(choose(folder, "serving", wanted)["name"])
        package = PackagedModel(folder, form, 1, _in_torch, threads_of(threads))
        package.guard = guard_of(folder, form, max_risk)
        log_guard(package.guard, f"version {version}")
        _check_head(package, folder / MODEL)
        check_examples(package, form, folder)
    except BadInput:
        raise
    except Exception as error:  # whatever a damaged file makes a library raise
        raise BadInput(f"{folder} cannot be loaded ({error!r:.500}): package the model again") from error
    return ServedModel(name, version, form, package, Capacity.of(folder, form))


def _in_torch(model: Path) -> Any:
    import torch  # which the image of the service does not have

    from tasks.inference.trained_model import TrainedModel

    torch.set_num_threads(1)  # in all threads that have not computed with PyTorch yet
    return TrainedModel(str(model), str(model)).open(threads=1)


def _check_head(package: PackagedModel, model: Path) -> None:
    head = described_head(model, read_values(model))
    labels = [] if head.kind == "regression" else head.names
    if (package.kind, package.labels) != (head.kind, labels):
        raise BadInput(
            f"{model.parent / DESCRIPTION} describes a {package.kind} of {package.labels}, but {model} is a "
            f"{head.kind} of {labels}: package the model again"
        )
