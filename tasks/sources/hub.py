"""GLUE from the hub's `glue` data set.

Unless runtime.download is set, the command line (tasks/__main__.py) puts the hub's libraries into offline mode. They
then read the data set from their local cache, which `make fetch` fills.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks import outside
from tasks.sources.base import Columns, Record, Source
from tasks.sources.lines import Row, nul_problem

REPOSITORY = "nyu-mll/glue"


class HubDataset(Source):
    """One configuration of the data set, with one hub split for each split of the task.

    Raises:
        BadInput: If a split is neither cached nor downloadable.
    """

    def __init__(self, task: Task) -> None:
        super().__init__({})
        self.task = task
        self._loaded = {split: _load(task, split) for split in SPLITS}

    def file(self, split: str) -> str:
        """Return the repository, the configuration and the split, separated by slashes."""
        return "/".join((REPOSITORY, *_hub_place(self.task, split)))

    def remarks(self, split: str) -> list[str]:
        """Return an empty list: the hub's files are Arrow, not text."""
        return []

    def fingerprint(self) -> str:
        """Return a digest of the cached files that the rows are read from."""
        files = [Path(entry["filename"]) for split in SPLITS for entry in self._loaded[split].cache_files]
        return hashlib.sha256("".join(outside.digest(file) for file in files).encode()).hexdigest()

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of the split, with the hub's label ids converted to the labels of GLUE's own files."""
        hub = self.task.hub
        assert hub is not None  # the experiment's validation guarantees it
        sentences = hub.sentences or self.task.sentences
        names = [*sentences, "label", "idx"]
        columns = Columns(len(names), tuple(range(len(sentences))), itemgetter(len(sentences)))
        if split == "test":
            columns = Columns(len(names), columns.sentences, None, index=len(sentences) + 1)
        return self.to_records(self._rows(split, names), columns, split)

    def _rows(self, split: str, names: list[str]) -> Iterator[Row]:
        data = self._loaded[split]
        missing = sorted(set(names) - set(data.column_names))
        if missing:
            raise BadInput(
                f"{self.file(split)} has no column {missing[0]}; found: {', '.join(data.column_names)}. "
                "The cached data set may be another version: remove it and fetch it again"
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
    """Return the configuration and the split. The diagnostic set `ax` is a separate configuration with a test split."""
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
