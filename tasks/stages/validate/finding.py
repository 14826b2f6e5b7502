"""How a rule ended, in a form that needs no Great Expectations to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """How one rule ended on one split.

    Attributes:
        severity: critical or warning.
        observed: rows that break the rule, or the value it is about (a number of rows, the columns).
        rows: rows that the rule looked at; None where it is about the split as a whole.
        seen: what was observed, in words.
        remedy: what a failure means or what to do about it.
    """

    split: str
    rule: str
    severity: str
    success: bool
    observed: Any
    rows: int | None
    seen: str
    remedy: str

    @property
    def message(self) -> str:
        """One line for a person."""
        return f"{self.split}: {self.rule}: {self.seen}; {self.remedy}"
