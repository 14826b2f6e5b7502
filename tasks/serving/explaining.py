"""Explanations of answers: what is left of a text without each of its words is answered along with the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np

from include.fields.labeling import Serving
from tasks.inference.explanation import Part, explain, parts_of, without
from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.refusal import TooLarge


@dataclass(frozen=True)
class Explained:
    """The rows of a request, and the parts of each that are left out in turn."""

    rows: Sequence[tuple[str, ...]]
    parts: Sequence[Sequence[Part]]

    @classmethod
    def of(cls, texts: Sequence[list[str]], model: PackagedModel, serving: Serving) -> Self:
        """Find the words of texts, given for each column of the model. Raise TooLarge if they make too many texts."""
        rows = list(zip(*texts, strict=True))
        parts = [parts_of(row, model) for row in rows]
        count = len(rows) + sum(map(len, parts))
        characters = sum(sum(map(len, row)) * (1 + len(some)) for row, some in zip(rows, parts, strict=True))
        for size, most, what in ((count, serving.max_rows, "texts"), (characters, serving.max_bytes, "characters")):
            if size > most:
                raise TooLarge(
                    f"with explanations, each word is a text more, and there are {size:,} {what}: send no more than "
                    f"{most:,} at a time, or leave out explain"
                )
        return cls(rows, parts)

    def texts(self) -> list[list[str]]:
        """Return what has to be answered: the texts, and then what is left of each without each of its parts."""
        left = [each for row, some in zip(self.rows, self.parts, strict=True) for each in without(row, some)]
        return [list(column) for column in zip(*self.rows, *left, strict=True)]

    def explanations(self, model: PackagedModel, logits: Array) -> list[list[dict[str, Any]]]:
        """Return the explanation of each row, given the logits of `texts`."""
        values = logits.astype(np.float64) if model.kind == "regression" else model.probabilities(logits)
        count = len(self.rows)
        ends = accumulate(map(len, self.parts), initial=count)
        return [
            explain(model, model.labels, row, some, whole, values[start : start + len(some)])
            for row, some, whole, start in zip(self.rows, self.parts, values[:count], ends, strict=False)
        ]
