"""Whether a simpler model has done better on the same data, in another run of the home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from include.glue import TASKS
from include.runs import Run
from include.stages import BadInput

#: The kinds of models, the simplest first.
_KINDS = ("tfidf", "textcnn", "frozen", "encoder")


class Model(NamedTuple):
    """An evaluated model of a run."""

    run: str
    kind: str
    value: float
    seconds: float
    data: tuple[str, int]


def simpler_winner(run: Run, record: Mapping[str, Any]) -> str:
    """Say which simpler model has the better metric on the same dev rows; "" if there is none."""
    here = _model(record)
    if here is None:
        return ""
    better = [
        model
        for model in _others(run.folder)
        if model.data == here.data and _KINDS.index(model.kind) < _KINDS.index(here.kind) and model.value > here.value
    ]
    if not better:
        return ""
    best = max(better, key=lambda model: model.value)
    metric = TASKS[record["experiment"]["data"]["task"]].metric
    return (
        f"{best.kind} reaches {metric} {best.value:.4f} after {best.seconds:,.0f} s of training (run {best.run}), this "
        f"model {here.value:.4f} after {here.seconds:,.0f} s"
    )


def _others(folder: Path) -> Iterator[Model]:
    for file in folder.parent.glob("*/run.json"):
        try:
            model = _model(Run(file.parent).record())
        except (BadInput, OSError):  # a damaged record, or one of another user, is no news of this run
            continue
        if model is not None and file.parent != folder:
            yield model


def _model(record: Mapping[str, Any]) -> Model | None:
    """Return the model of a record; None if it has none that was evaluated."""
    stages, experiment = record["stages"], record.get("experiment", {})
    try:
        value = stages["evaluate"]["result"]["metrics"][TASKS[experiment["data"]["task"]].metric]
        data = stages["validate"]["key"], stages["preprocess"]["result"]["rows"]["dev"]
        return Model(
            record["run"], experiment["model"]["kind"], float(value), stages["train"]["result"]["seconds"], data
        )
    except (KeyError, TypeError):
        return None
