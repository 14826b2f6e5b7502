"""The result of a validation rule, independent of Great Expectations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule on one split.

    Attributes:
        split: train, dev or test.
        rule: The name of the rule.
        severity: "critical" or "warning".
        success: Whether the split satisfies the rule.
        observed: The number of rows that violate the rule, or the observed value (a number of rows, the columns) if
            the rule applies to the split as a whole.
        rows: The number of rows that were checked; None if the rule applies to the split as a whole.
        seen: The observation in words.
        remedy: What a failure means, or how to fix it.
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
        """The result as one line of text."""
        return f"{self.split}: {self.rule}: {self.seen}; {self.remedy}"
