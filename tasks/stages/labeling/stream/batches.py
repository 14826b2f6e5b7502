"""The labeled batches of a stream, each a folder that is there whole or not at all, and the drift windows of them."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from include.artifacts import sync, write_json
from include.drift_windows import file_name
from include.experiment import Experiment
from include.scratch import scratch_folder
from include.stages import BadInput
from tasks.scoring.drift import Profile, Tally, drift_windows, read_profile
from tasks.stages.labeling.stream.label import ASIDE

log = logging.getLogger(__name__)

#: Parquet readers ignore files whose names begin with an underscore.
MANIFEST, TALLY, ASIDE_FILE = "_manifest.json", "_tally.json", f"{ASIDE}.jsonl"
#: The folder of Spark's checkpoint, in that of the stream.
CHECKPOINT = "checkpoint"


class Batches:
    """The batches of the stream in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._folder, self._checkpoint = folder, folder / "batches", folder / CHECKPOINT

    def find(self, number: int) -> dict[str, Any] | None:
        """Return the manifest of a batch; None if it is not committed. Raise BadInput if it is of an earlier query."""
        file = self._path(number) / MANIFEST
        if not file.is_file():
            return None
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if manifest["query"] != self._query:
            raise BadInput(
                f"{file.parent} was labeled before the stream's checkpoint was removed, so it is not known which rows "
                "are new: choose another streaming.name, or remove the whole folder of the stream to label all rows "
                "again"
            )
        return manifest

    def committed(self, number: int) -> bool:
        """Return whether a batch that Spark asks for is committed. Raise BadInput if its rows are others."""
        if number and self.find(number - 1) is None:
            raise BadInput(
                f"{self._path(number - 1)} is missing, but its rows count as read: put it back, or remove the whole "
                "folder of the stream to label all rows again"
            )
        manifest = self.find(number)
        if manifest is not None and manifest["offsets"] != self._offsets(number):
            raise BadInput(
                f"{self._path(number)} has other rows than the stream's checkpoint says, which is an older copy: "
                "restore both from the same copy, or remove the whole folder of the stream to label all rows again"
            )
        return manifest is not None

    def after(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield the manifests of the committed batches after this one, in order."""
        while (manifest := self.find(number := number + 1)) is not None:
            yield manifest

    @contextmanager
    def writing(self, number: int) -> Iterator[Path]:
        """Yield a folder for the files of a batch. It becomes visible with `commit` only."""
        self._folder.mkdir(exist_ok=True)
        with scratch_folder(self._folder, f".batch={number}") as folder:
            whole = folder / "whole"
            whole.mkdir()
            yield whole

    def commit(self, whole: Path, manifest: dict[str, Any]) -> None:
        """Make the files of a batch visible, all at once."""
        for unfinished in whole.glob(".*"):  # of an attempt of a task that failed
            unfinished.unlink(missing_ok=True)
        _join_aside(whole)
        number = manifest["batch"]
        write_json(whole / MANIFEST, {**manifest, "query": self._query, "offsets": self._offsets(number)})
        sync(whole)
        # Spark does not do this. If the power fails, the batch must not be there without what it has read.
        sync(self._checkpoint / "offsets" / str(number))
        sync(self._checkpoint / "offsets")
        whole.rename(self._path(number))
        sync(self._folder)

    def tally(self, number: int) -> Tally:
        """Return what was counted in a committed batch."""
        return Tally.from_json(json.loads((self._path(number) / TALLY).read_text(encoding="utf-8")))

    @cached_property
    def _query(self) -> str:
        """Return the id of the streaming query, which numbers its batches from 0."""
        return str(json.loads((self._checkpoint / "metadata").read_text(encoding="utf-8"))["id"])

    def _offsets(self, number: int) -> list[str]:
        """Return where the rows of a batch end, as Spark writes it: a version, settings, and a line for each source."""
        return (self._checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2:]

    def _path(self, number: int) -> Path:
        return self._folder / f"batch={number}"


def close_windows(batches: Batches, experiment: Experiment, run: str) -> None:
    """Write a file for each window that the committed batches have filled since the last one that was written."""
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


def _join_aside(folder: Path) -> None:
    with (folder / ASIDE_FILE).open("wb") as stream:
        for part in sorted(folder.glob(f"{ASIDE}-*.jsonl")):
            with part.open("rb") as some:
                shutil.copyfileobj(some, stream)
            part.unlink()
    sync(folder / ASIDE_FILE)
