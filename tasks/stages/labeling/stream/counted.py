"""What is counted while rows are labeled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from include.answers import LABEL, PREDICTION
from include.glue import Kind
from tasks.encoder.cleaning import clean_all
from tasks.encoder.spec import HeadSpec
from tasks.scoring.drift import Profile
from tasks.scoring.metrics import Array


@dataclass
class Counted:
    """Counts of rows. Those of parts add up to that of the whole.

    Attributes:
        profile: The labels, lengths and words of the labeled rows.
        confidence: The sum of the largest probability of each of them; 0 for a regression.
        reasons: The number of the other rows by reason.
    """

    profile: Profile
    confidence: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)

    @classmethod
    def nothing(cls, kind: Kind) -> Self:
        """Return the counts of no rows."""
        return cls(Profile.of(kind, [], []))

    def add(self, table: pa.Table, texts: Sequence[str], probabilities: Array | None, head: HeadSpec) -> None:
        """Count labeled rows.

        Args:
            table: The rows with their answers.
            texts: The columns with the texts.
            probabilities: The probabilities of all labels, [rows, labels]; None for a regression.
            head: The head of the model.
        """
        labels = table[LABEL if head.kind == "classification" else PREDICTION].to_pylist()
        cleaned = [clean_all(table[name].to_pylist(), head.cleaning) for name in texts]
        self.profile += Profile.of(head.kind, list(zip(*cleaned, strict=True)), labels)
        if probabilities is not None:
            self.confidence += float(probabilities.max(axis=1).sum())

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.profile + other.profile, self.confidence + other.confidence, self.reasons + other.reasons)

    def as_json(self) -> str:
        """Return the counts as JSON."""
        return json.dumps([self.profile.as_json(), self.confidence, self.reasons])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `as_json` has written."""
        profile, confidence, reasons = json.loads(text)
        return cls(Profile.from_json(profile), confidence, Counter(reasons))
