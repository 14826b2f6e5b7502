"""The files and folders that an experiment names: which of them a stage reads, and whether it may.

Whoever may trigger a run may name any path. A deployment says in $SPARK_BERT_DATA below which folder they lie; the
artifact store, which holds datasets' versions and champions, may be named too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from include.experiment import Experiment
from include.glue import SPLITS
from include.stages import STAGES, BadInput
from spark_bert.places import data, home


def named(stage: str, experiment: Experiment) -> Iterator[str]:
    """The paths, as they are written, in the part of the experiment that the stage reads."""
    reads = STAGES[stage].reads
    if "data" in reads and experiment.data.path:
        yield experiment.data.path
    if "dataset" in reads and experiment.dataset.drop:
        yield experiment.dataset.drop
    if "pretraining" in reads and experiment.pretraining.text:
        yield experiment.pretraining.text
    if {"model", "model.name"} & set(reads) and experiment.model.name.startswith(("/", "./", "../", "~")):
        yield experiment.model.name


def check_inputs(stage: str, experiment: Experiment) -> None:
    """Raise BadInput, naming the path, when the stage would read what the deployment does not let it read."""
    root = os.environ.get("SPARK_BERT_DATA")
    if not root:
        return
    for text in (*named(stage, experiment), *_files(stage, experiment)):
        if not _below(text, Path(root)) and not is_stored(text):
            raise BadInput(f"{text} does not lie below {root}: put it there, or set SPARK_BERT_DATA to another folder")
    for run in experiment.submission.runs if "submission" in STAGES[stage].reads else ():
        if Path(run).name != run or not _below(str(home() / "runs" / run), home() / "runs"):
            raise BadInput(f"submission.runs names {run}: write the name of a folder below {home() / 'runs'}")


def is_stored(text: str) -> bool:
    """Whether the path lies in the artifact store, which every stage may read."""
    return Path(text).is_absolute() and _below(text, home() / "artifacts")


def _files(stage: str, experiment: Experiment) -> Iterator[str]:
    """The files of a files source, which are written beside its folder and could lead out of it."""
    if "data" in STAGES[stage].reads and experiment.data.source == "files":
        for split in SPLITS:
            yield str(Path(experiment.data.path, getattr(experiment.data, split)))


def _below(text: str, folder: Path) -> bool:
    """Whether the path, its links followed, lies in the folder. Raises BadInput for what can be no path."""
    try:
        return data(text).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # too long a name; links in a circle
        raise BadInput(f"{text!r} is no path: {error}") from None
