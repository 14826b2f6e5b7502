"""A folder in the layout of the GLUE release: <folder>/SST-2/train.tsv and so on."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from include.glue import SPLITS, Split, Task
from include.paths import user_path
from include.stages import BadInput
from tasks.sources.base import Columns, Record, Source
from tasks.sources.header import hint
from tasks.sources.lines import Row, read_header, read_rows

_INDEX_COLUMNS = ("index", "id")


class GlueFolder(Source):
    """The three TSV files of a GLUE task.

    Args:
        folder: The folder of the GLUE release, or the folder of the task itself.
        task: The task, which names the files and their columns.

    Raises:
        BadInput: If the folder does not exist.
    """

    def __init__(self, folder: str, task: Task) -> None:
        root = user_path(folder)
        if not root.is_dir():
            raise BadInput(f"data.path {root} is not a folder: name the one that contains {task.splits['train'].file}")
        self.task = task
        super().__init__({split: _find(root, task.splits[split].file) for split in SPLITS})

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of the split's file, whose columns must be exactly those of the task registry."""
        path, layout = self.paths[split], self.task.splits[split]
        rows = read_rows(path)
        if layout.header:
            _check_header(path, rows, layout, self.task.name)
        return self.to_records(rows, _columns(self.task, split), split)


def _find(root: Path, file: str) -> Path:
    path = root / file
    return path if path.parent.is_dir() else root / path.name


def _check_header(path: Path, rows: Iterator[Row], layout: Split, task: str) -> None:
    expected = " ".join(layout.columns)
    found = tuple(read_header(path, rows, expected))
    if found != layout.columns:
        raise BadInput(
            f"{path} line 1: expected the tab-separated columns {expected}, in this order; found: "
            f"{' '.join(found)[:200]}{hint(found, layout.columns)}. Check that the file belongs to the task {task} "
            "(data.task); for files with another layout, set data.source: files"
        )


def _columns(task: Task, split: str) -> Columns:
    names = task.splits[split].columns
    sentences = tuple(names.index(name) for name in task.sentences)
    if split != "test":
        return Columns(len(names), sentences, itemgetter(names.index(task.label)))
    return Columns(len(names), sentences, None, 0 if names[0] in _INDEX_COLUMNS else None)
