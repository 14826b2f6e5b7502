"""A folder in the layout of the GLUE release: <folder>/SST-2/train.tsv and so on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from include.glue import SPLITS, Split, Task
from include.paths import user_path
from include.stages import BadInput
from tasks.sources.base import Columns, Record, Source, to_records
from tasks.sources.header import hint
from tasks.sources.lines import Row, read_header, read_rows

_INDEX_COLUMNS = ("index", "id")


class GlueFolder(Source):
    """A task's three TSV files; the folder may also be the task's own, without the others beside it."""

    def __init__(self, folder: str, task: Task) -> None:
        root = user_path(folder)
        if not root.is_dir():
            raise BadInput(f"data.path {root} is no folder: give the one that holds {task.splits['train'].file}")
        self.task = task
        super().__init__({split: _find(root, task.splits[split].file) for split in SPLITS})

    def records(self, split: str) -> Iterator[Record]:
        """The rows of the split's file, whose columns must be just those of the registry."""
        path, layout = self.paths[split], self.task.splits[split]
        rows = read_rows(path)
        if layout.header:
            _check_header(path, rows, layout, self.task.name)
        return to_records(rows, _columns(self.task, split), str(path))


def _find(root: Path, file: str) -> Path:
    path = root / file
    return path if path.parent.is_dir() else root / path.name


def _check_header(path: Path, rows: Iterator[Row], layout: Split, task: str) -> None:
    expected = " ".join(layout.columns)
    found = tuple(read_header(path, rows, expected))
    if found != layout.columns:
        raise BadInput(
            f"{path} line 1: expected the columns {expected}, in this order and tab-separated; found: "
            f"{' '.join(found)[:200]}{hint(found, layout.columns)}. Is it another task's file (data.task is {task})? "
            "For a layout of your own write data.source: files"
        )


def _columns(task: Task, split: str) -> Columns:
    names = task.splits[split].columns
    sentences = tuple(names.index(name) for name in task.sentences)
    if split != "test":
        return Columns(len(names), sentences, names.index(task.label))
    return Columns(len(names), sentences, None, 0 if names[0] in _INDEX_COLUMNS else None)
