"""The published data: the bundled corpus, a folder of the GLUE release, and the hub's data set `glue`."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from include.folders import user_path
from include.glue import SPLITS, Task
from include.stages import BadInput
from tasks import digests
from tasks.sources.parts import Part
from tasks.sources.source import Layout, Record, Source
from tasks.sources.table import found_columns, selected
from tasks.sources.text_files import Row, nul_problem, read_header, read_rows

SPLIT_RULE = "1"  # must be increased when a change moves sentences of the corpus to another split
# White space, ASCII punctuation, and the punctuation blocks of Latin-1, General Punctuation and CJK.
_IGNORED = re.compile(r"[\s!-/:-@\[-`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+")
NEUTRAL = 0.5  # ratings range from -4 to 4; sentences this close to 0 are left out, since the raters disagreed
REPOSITORY = "nyu-mll/glue"


class BundledCorpus(Source):
    """Movie-review sentences with human ratings, split 80/10/10 by a hash of their letters."""

    def __init__(self, path: Path) -> None:
        super().__init__(dict.fromkeys(SPLITS, (path,)))

    def fingerprint(self) -> str:
        """Return a string that changes whenever the corpus or the rule that splits it changes."""
        return f"{super().fingerprint()}-{SPLIT_RULE}"

    def records(self, split: str) -> Iterator[Record]:
        """Yield the split's sentences, numbered from 0. The label is 1 if the mean rating is positive, else 0."""
        number, (file,) = 0, self.files[split]
        for row in read_rows(file):
            _, rating, text = row.fields  # the file's sha256 was checked, so every row has three fields
            if abs(float(rating)) > NEUTRAL and split_of(text) == split:
                label = "" if split == "test" else str(int(float(rating) > 0))
                yield Record(number, row.line, (text,), label, raw=row.text, file=str(file))
                number += 1


def split_of(text: str) -> str:
    """Return the split of a sentence of the bundled corpus."""
    alike = _IGNORED.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()
    tenth = int(hashlib.sha256(alike.encode()).hexdigest()[:8], 16) % 10
    return {8: "dev", 9: "test"}.get(tenth, "train")


class GlueFolder(Source):
    """The TSV files of a task in the GLUE release: <folder>/SST-2/train.tsv and so on, or <folder>/train.tsv."""

    def __init__(self, folder: str, task: Task) -> None:
        root = user_path(folder)
        if not root.is_dir():
            raise BadInput(f"data.path {root} is not a folder: name the one that contains {task.splits['train'].file}")
        self._task = task
        paths = {split: root / task.splits[split].file for split in SPLITS}
        super().__init__(
            {split: (path if path.parent.is_dir() else root / path.name,) for split, path in paths.items()}
        )

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of the split's file."""
        return self.to_records(self.files[split], split, self.layout(split))

    def layout(self, split: str) -> Layout:
        """Return how the split's file is read, whose columns must be exactly those of the task registry."""
        task, header = self._task, int(self._task.splits[split].header)
        names = list(task.splits[split].columns)
        places = [names.index(name) for name in task.sentences]
        if split != "test":
            places.append(names.index(task.label))
        elif names[0] in ("index", "id"):
            places.append(0)

        def rows(file: Path, part: Part | None) -> Iterator[Row]:
            found = read_rows(file, part=part)
            if header:
                _check_header(file, read_header(file, found, ", ".join(names)), names, task.name)
            elif part and part.start:
                next(found)  # the first row of the file
            return (selected(row, places, len(names)) for row in found)

        read_label = None if split == "test" else itemgetter(0)
        return Layout(self.file(split), self.dialect, header, rows, len(task.sentences), read_label)


def _check_header(file: Path, header: Sequence[str], names: Sequence[str], task: str) -> None:
    if header != names:
        remedy = (
            f"Check that the file belongs to the task {task} (data.task); for files with another layout, set "
            "data.source: files"
        )
        raise BadInput(
            f"{file} line 1: expected the tab-separated columns {', '.join(names)}, in this order; found: "
            f"{found_columns(header, names, remedy)}"
        )


class HubDataset(Source):
    """One configuration of the hub's data set, from the local cache unless runtime.download is set (tasks/__main__)."""

    def __init__(self, task: Task) -> None:
        assert task.hub is not None  # the experiment's validation guarantees it
        super().__init__({})
        self._task, self._hub = task, task.hub
        self._loaded = {split: _load(*self._place(split)) for split in SPLITS}

    def file(self, split: str) -> str:
        """Return the repository, the configuration and the split, separated by slashes."""
        return "/".join((REPOSITORY, *self._place(split)))

    def fingerprint(self) -> str:
        """Return a digest of the cached files that the rows are read from."""
        files = [Path(entry["filename"]) for split in SPLITS for entry in self._loaded[split].cache_files]
        return hashlib.sha256("".join(digests.digest(file) for file in files).encode()).hexdigest()

    def records(self, split: str) -> Iterator[Record]:
        """Yield the rows of the split, with the hub's label ids converted to the labels of GLUE's own files."""
        read_label = None if split == "test" else itemgetter(0)
        texts = len(self._task.sentences)
        layout = Layout(self.file(split), self.dialect, 0, lambda *_: self._rows(split), texts, read_label)
        return self.to_records([Path(self.file(split))], split, layout)

    def _rows(self, split: str) -> Iterator[Row]:
        names = [*(self._hub.sentences or self._task.sentences), "label", "idx"]
        data = self._loaded[split]
        if missing := sorted(set(names) - set(data.column_names)):
            raise BadInput(
                f"{self.file(split)} has no column {missing[0]}; found: {', '.join(data.column_names)}. "
                "The cached data set may be another version: remove it and fetch it again"
            )
        for number, values in enumerate(data.select_columns(names), start=1):
            *texts, label, index = (self._as_text(name, values[name]) for name in names)
            text = "\t".join((*texts, label, index))
            yield Row(number, [*texts, index if split == "test" else label], nul_problem(text), text)

    def _as_text(self, name: str, value: Any) -> str:
        labels = self._task.labels
        if name == "label" and isinstance(value, int) and 0 <= value < len(labels):
            return labels[value]
        return "" if value is None else str(value)

    def _place(self, split: str) -> tuple[str, str]:
        """Return the hub's configuration and split. The diagnostic set `ax` is a separate configuration."""
        if split == "test" and self._hub.test == "ax":
            return "ax", "test"
        return self._hub.config, {"train": "train", "dev": self._hub.dev, "test": self._hub.test}[split]


def _load(config: str, split: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        return datasets.load_dataset(REPOSITORY, config, split=split)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{REPOSITORY}/{config}/{split} is not in the hub's local cache ({str(error).splitlines()[0]}): "
            "fetch it with `make fetch`, or set runtime.download"
        ) from error
