"""The examples of a package: texts, with the logits that each form had for them when the model was packaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from include.artifacts import write_json
from include.fields.results import Packaging
from include.stages import BadInput
from tasks.inference.changes import Changes
from tasks.inference.packaged_model import DESCRIPTION, Array, PackagedModel

#: The file with the examples.
EXAMPLES = "examples.json"


def write_examples(folder: Path, texts: Sequence[list[str]]) -> None:
    """Write examples for every form that a package offers."""
    described = json.loads((folder / DESCRIPTION).read_bytes())
    offered = [form["name"] for form in described["forms"] if form["offered"]]
    logits = {name: _logits(PackagedModel(folder, name), texts).tolist() for name in offered}
    write_json(folder / EXAMPLES, {"texts": texts, "logits": logits})


def check_examples(package: PackagedModel, form: str, folder: Path) -> None:
    """Raise BadInput if a form's answers to its examples have changed by more than a form's answers may.

    That is by default or in the package, because limits of 0 would refuse another processor, which rounds otherwise.
    """
    examples = json.loads((folder / EXAMPLES).read_bytes())
    default, own = Packaging(), Packaging.model_validate(json.loads((folder / DESCRIPTION).read_bytes())["limits"])
    limits = Packaging(
        max_mean_change=max(default.max_mean_change, own.max_mean_change),
        max_tail_change=max(default.max_tail_change, own.max_tail_change),
    )
    expected = np.array(examples["logits"][form], np.float32)
    found = _shares(package, _logits(package, examples["texts"]))
    if reasons := Changes.of(found, _shares(package, expected)).reasons(limits):
        raise BadInput(
            f"{folder / EXAMPLES}: {form} does not answer as it did when it was packaged ({'; '.join(reasons)}): "
            "package the model again on a machine like this one"
        )


def _logits(package: PackagedModel, texts: Sequence[list[str]]) -> Array:
    # One at a time: one batch of all would keep a service's requests waiting.
    return np.concatenate([package.logits([[text] for text in row]) for row in zip(*texts, strict=True)])


def _shares(package: PackagedModel, logits: Array) -> Array:
    """Return the probabilities of all labels, or scores as shares of the task's range."""
    if package.score_range is None:
        return package.probabilities(logits)
    low, high = package.score_range
    return (logits - low) / (high - low)
