"""GLUE from the hub's `glue` data set.

The command line (tasks/__main__.py) puts the hub's libraries off line unless runtime.download is set: then the data
set comes out of their local cache, where `make fetch` has put it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from include.artifacts import sha256
from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks.sources.base import Columns, Record, Source, to_records
from tasks.sources.lines import Row, nul_problem

REPOSITORY = "nyu-mll/glue"


class HubDataset(Source):
    """A configuration of the data set, one hub split for each of ours."""

    def __init__(self, task: Task) -> None:
        super().__init__({})
        self.task = task
        self.splits = {split: _load(task, split) for split in SPLITS}

    def file(self, split: str) -> str:
        """Repository, configuration and split."""
        return "/".join((REPOSITORY, *_hub_place(self.task, split)))

    def remarks(self, split: str) -> list[str]:
        """None: the hub's files are Arrow."""
        return []

    def fingerprint(self) -> str:
        """Of the cached files that the rows are read from."""
        files = [Path(entry["filename"]) for split in SPLITS for entry in self.splits[split].cache_files]
        return hashlib.sha256("".join(sha256(file) for file in files).encode()).hexdigest()

    def records(self, split: str) -> Iterator[Record]:
        """The rows of the split; the hub's label ids become labels as GLUE's files write them."""
        hub = self.task.hub
        assert hub is not None  # the experiment has checked it
        sentences = hub.sentences or self.task.sentences
        names = [*sentences, "label", "idx"]
        columns = Columns(len(names), tuple(range(len(sentences))), len(sentences), None)
        if split == "test":
            columns = Columns(len(names), columns.sentences, None, index=len(sentences) + 1)
        return to_records(self._rows(split, names), columns, self.file(split))

    def _rows(self, split: str, names: list[str]) -> Iterator[Row]:
        data = self.splits[split]
        missing = sorted(set(names) - set(data.column_names))
        if missing:
            raise BadInput(
                f"{self.file(split)} has no column {missing[0]}; found: {', '.join(data.column_names)}. "
                "Is the cached data set another version? Remove it and fetch it again"
            )
        for number, values in enumerate(data.select_columns(names), start=1):
            fields = [self._as_text(name, values[name]) for name in names]
            text = "\t".join(fields)
            yield Row(number, fields, nul_problem(text), text)

    def _as_text(self, name: str, value: Any) -> str:
        labels = self.task.labels
        if name == "label" and isinstance(value, int) and 0 <= value < len(labels):
            return labels[value]
        return "" if value is None else str(value)


def _hub_place(task: Task, split: str) -> tuple[str, str]:
    """Configuration and split; the diagnostic set `ax` is a configuration of its own with nothing but a test split."""
    hub = task.hub
    assert hub is not None
    if split == "test" and hub.test == "ax":
        return "ax", "test"
    return hub.config, {"train": "train", "dev": hub.dev, "test": hub.test}[split]


def _load(task: Task, split: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    config, name = _hub_place(task, split)
    try:
        return datasets.load_dataset(REPOSITORY, config, split=name)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{REPOSITORY}/{config}/{name} is not in the hub's local cache ({str(error).splitlines()[0]}): "
            "fetch it with `make fetch`, or set runtime.download"
        ) from error
