"""The bundled corpus: movie-review sentences with human ratings, out of the vaderSentiment package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tasks.sources.base import Record, Source
from tasks.sources.lines import Row, read_rows
from tasks.sources.normalise import normalise

SPLIT_RULE = "1"  # raised when a sentence would change its split
NEUTRAL = 0.5  # ratings run from -4 to 4; so near to zero people did not agree on a side


class BundledCorpus(Source):
    """One file, cut 80/10/10 by a hash of the sentence, so that identical sentences share a split."""

    def __init__(self, path: Path) -> None:
        super().__init__({"corpus": path})
        self.path = path

    def file(self, split: str) -> str:
        """The corpus, whichever split."""
        return str(self.path)

    def remarks(self, split: str) -> list[str]:
        """None: the file is known."""
        return []

    def fingerprint(self) -> str:
        """Of the corpus and of the rule that splits it."""
        return f"{super().fingerprint()}-{SPLIT_RULE}"

    def records(self, split: str) -> Iterator[Record]:
        """The split's sentences, numbered from 0; the label is 1 where the mean rating is above zero."""
        number = 0
        for row in read_rows(self.path):
            rating, text = _read(row)
            if abs(rating) > NEUTRAL and split_of(text) == split:
                label = "" if split == "test" else str(int(rating > 0))
                yield Record(number, row.line, (text,), label, raw=row.text)
                number += 1


def split_of(text: str) -> str:
    """train, dev or test: eight, one and one tenth of all sentences."""
    tenth = int(hashlib.sha256(normalise(text).encode()).hexdigest()[:8], 16) % 10
    return {8: "dev", 9: "test"}.get(tenth, "train")


def _read(row: Row) -> tuple[float, str]:
    _, rating, text = row.fields  # the file's sha256 is known, so every row has three fields
    return float(rating), text
