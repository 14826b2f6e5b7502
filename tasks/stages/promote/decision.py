"""The decision whether a model becomes the champion, made by a person or by the comparison with the champion."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from include.runs import DECISION
from include.stages import BadInput
from tasks.tracking.registry import now

COMPARISON, ROLLBACK = "comparison", "rollback"
_EXAMPLE = '{"decision": "approved", "by": "NAME", "at": "2026-01-31T12:00:00+00:00", "timed_out": false}'


class Decision(BaseModel):
    """A decision about a version.

    Attributes:
        decision: "approved"; "rejected" by a person; or "held" after an undecided comparison or a rollback.
        by: The person's name, "comparison" or "rollback"; "" if nobody decided.
        at: The time in ISO 8601.
        timed_out: Whether nobody decided in time, which counts as a rejection.
    """

    decision: Literal["approved", "rejected", "held"]
    by: str = ""
    at: str
    timed_out: bool = False

    @property
    def reason(self) -> str:
        """The decision in words."""
        if self.timed_out:
            return f"{self.decision}, because nobody decided in time"
        return f"{self.decision} by {f'the {self.by}' if self.by in (COMPARISON, ROLLBACK) else self.by}"


def of_comparison(outcome: str) -> Decision:
    """Return the decision that follows from the outcome of the challenge when no approval is required."""
    return Decision(decision="approved" if outcome in ("first", "not worse") else "held", by=COMPARISON, at=now())


def of_rollback(at: str) -> Decision:
    """Return the decision for a version that was rolled back at this time."""
    return Decision(decision="held", by=ROLLBACK, at=at)


def of_person(folder: Path) -> Decision:
    """Read a person's decision from the run's folder.

    Raises:
        BadInput: If there is no decision, or if it cannot be read.
    """
    file = folder / DECISION
    if not file.is_file():
        raise BadInput(
            f"{file} is missing, but retraining.approval requires a person's decision: clear the Airflow task that "
            f"asks for it, or write {_EXAMPLE}"
        )
    try:
        return Decision.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} is not a valid decision: write {_EXAMPLE}") from error
