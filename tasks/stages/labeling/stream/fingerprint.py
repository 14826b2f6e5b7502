"""What the stage stream reads besides its inputs."""

from __future__ import annotations

import uuid

from include.answers import MODEL_VERSION, reserved
from include.experiment import Experiment
from include.runs import Run
from include.sections import Streaming
from include.stages import BadInput
from tasks.stages.labeling.stream.label import COLUMNS
from tasks.stages.labeling.stream.source import check_source


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a text that never comes again: more rows may have come since the stage ended in this run."""
    check_source(experiment.streaming)
    _check_names(experiment.streaming)
    return uuid.uuid4().hex


def _check_names(streaming: Streaming) -> None:
    """Raise BadInput if the columns of the labeled rows would not have different names. Spark ignores their case."""
    for name in streaming.texts:
        if name.casefold() in (*COLUMNS, MODEL_VERSION, "batch") or reserved(name):
            raise BadInput(f"the column {name!r} has a name that the labeled rows need: rename it where it is written")
    if streaming.text.casefold() == streaming.text2.casefold():
        raise BadInput(f"streaming.text and streaming.text2 are both {streaming.text!r}: name two columns")
