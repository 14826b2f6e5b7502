"""Whether a model is to be the champion: by a person's decision, or by the comparison with the champion."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from include.stages import BadInput
from tasks.tracking.registry import now

FILE, COMPARISON, ROLLBACK = "decision.json", "comparison", "rollback"
_EXAMPLE = '{"decision": "approved", "by": "NAME", "at": "2026-01-31T12:00:00+00:00", "timed_out": false}'


class Decision(BaseModel):
    """What was decided.

    Attributes:
        decision: approved; rejected, by a person; held, where the comparison could not tell, or after a rollback.
        by: the person's name, "comparison" or "rollback"; "": nobody.
        at: when, in ISO 8601.
        timed_out: whether nobody decided in time, which is a rejection.
    """

    decision: Literal["approved", "rejected", "held"]
    by: str = ""
    at: str
    timed_out: bool = False

    @property
    def reason(self) -> str:
        """The same in words."""
        if self.timed_out:
            return f"{self.decision}, as nobody decided in time"
        return f"{self.decision} by {f'the {self.by}' if self.by in (COMPARISON, ROLLBACK) else self.by}"


def of_comparison(outcome: str) -> Decision:
    """What follows from a challenge's outcome without a person."""
    return Decision(decision="approved" if outcome in ("first", "not worse") else "held", by=COMPARISON, at=now())


def of_rollback(at: str) -> Decision:
    """What follows from a version's having been rolled back at that time."""
    return Decision(decision="held", by=ROLLBACK, at=at)


def of_person(folder: Path) -> Decision:
    """What a person has decided about the run. Raises BadInput when nothing was, or it cannot be read."""
    file = folder / FILE
    if not file.is_file():
        raise BadInput(
            f"{file} is missing, for retraining.approval wants a person's decision: clear the task that asks for it, "
            f"or write {_EXAMPLE}"
        )
    try:
        return Decision.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} is no decision: write {_EXAMPLE}") from error
