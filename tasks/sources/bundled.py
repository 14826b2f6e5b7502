"""The bundled corpus: movie-review sentences with human ratings, from the vaderSentiment package."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tasks.sources.base import Record, Source
from tasks.sources.lines import Row, read_rows

SPLIT_RULE = "1"  # must be increased when a change moves sentences to another split
# White space, ASCII punctuation, and the punctuation blocks of Latin-1, General Punctuation and CJK.
_IGNORED = re.compile(r"[\s!-/:-@\[-`{-~\u00a0-\u00bf\u2000-\u206f\u3000-\u303f]+")
NEUTRAL = 0.5  # ratings range from -4 to 4; sentences this close to 0 are left out, since the raters disagreed


class BundledCorpus(Source):
    """One file that is split 80/10/10 by a hash of the sentences' letters, so that similar ones share a split."""

    def __init__(self, path: Path) -> None:
        super().__init__({"corpus": path})
        self.path = path

    def file(self, split: str) -> str:
        """Return the path of the corpus, which is the same for all splits."""
        return str(self.path)

    def remarks(self, split: str) -> list[str]:
        """Return an empty list: the corpus is known to be regular."""
        return []

    def fingerprint(self) -> str:
        """Return a string that changes whenever the corpus or the rule that splits it changes."""
        return f"{super().fingerprint()}-{SPLIT_RULE}"

    def records(self, split: str) -> Iterator[Record]:
        """Yield the split's sentences, numbered from 0. The label is 1 if the mean rating is positive, else 0."""
        number = 0
        for row in read_rows(self.path):
            rating, text = _read(row)
            if abs(rating) > NEUTRAL and split_of(text) == split:
                label = "" if split == "test" else str(int(rating > 0))
                yield Record(number, row.line, (text,), label, raw=row.text)
                number += 1


def split_of(text: str) -> str:
    """Return the split of a sentence: train for 80 %, dev for 10 % and test for 10 % of all sentences."""
    alike = _IGNORED.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()
    tenth = int(hashlib.sha256(alike.encode()).hexdigest()[:8], 16) % 10
    return {8: "dev", 9: "test"}.get(tenth, "train")


def _read(row: Row) -> tuple[float, str]:
    _, rating, text = row.fields  # the file's sha256 was checked, so every row has three fields
    return float(rating), text
