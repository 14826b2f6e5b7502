"""The windows of a stream: closed as soon as there are enough rows, and compared with the training rows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from include.artifacts import write_json
from include.drift_windows import file_name
from include.experiment import Experiment
from include.stages import BadInput
from tasks.scoring.drift import Profile, read_profile
from tasks.scoring.drift_windows import drift_windows
from tasks.stages.labeling.stream.batches import Batches

log = logging.getLogger(__name__)


def close_windows(batches: Batches, experiment: Experiment, run: str) -> None:
    """Write a file for each window that the committed batches have filled since the last one.

    A process that is killed here leaves windows out, and the next one finds them, because the batches are still there.
    """
    folder = batches.folder / "windows"
    folder.mkdir(exist_ok=True)
    last = max((int(file.stem.rpartition("-")[2]) for file in folder.glob("*-*.json")), default=-1)
    manifests = list(batches.after(last))
    models = {one["model_version"]: one["model"] for one in manifests}
    if len(models) < 2 and sum(one["rows"] for one in manifests) < experiment.streaming.window_rows:
        return  # no window is full, so the words of the training rows and of the batches need not be read
    references = {version: found for version, model in models.items() if (found := _reference(model))}
    tallies = [batches.tally(one["batch"]) for one in manifests]
    for window in drift_windows(tallies, experiment.streaming.window_rows, references, experiment.dataset):
        first, last = window.first, window.tally.batch
        for reason in window.reasons:
            log.warning("batches %d to %d: %s", first, last, reason)
        more = {"run": run, "query": manifests[0]["query"]}
        write_json(folder / file_name(first, last), {**window.as_json(), **more})


def closed(folder: Path) -> list[dict[str, Any]]:
    """Return the windows of a stream, the first ones first."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in (folder / "windows").glob("*-*.json")]
    return sorted(found, key=lambda window: int(window["first"]))


def _reference(model: str) -> Profile | None:
    """Return the training rows of a model, whose folder lies in that of its package; None if they are not known."""
    try:
        return read_profile(Path(model).parent)
    except BadInput as error:
        log.warning("windows are not compared with the training: %s", error)
        return None
