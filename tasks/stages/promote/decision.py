"""The decision whether a model becomes the champion: by a person, the comparison with the champion, or the trial."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from include.runs import DECISION, TRIAL
from include.sections import Retraining
from include.stages import BadInput
from tasks.tracking.registry import now

COMPARISON, ROLLBACK, TRIED = "comparison", "rollback", "trial"
_EXAMPLE = '{"decision": "approved", "by": "NAME", "at": "2026-01-31T12:00:00+00:00", "timed_out": false}'


class Decision(BaseModel):
    """A decision about a version.

    Attributes:
        decision: "approved"; "rejected" by a person; or "held" after an undecided comparison, a rollback or
            a trial.
        by: The person's name, "comparison", "rollback" or "trial"; "" if nobody decided.
        at: The time in ISO 8601.
        timed_out: Whether nobody decided in time, which counts as a rejection.
        why: More about the decision; "" if there is no more to say.
    """

    decision: Literal["approved", "rejected", "held"]
    by: str = ""
    at: str
    timed_out: bool = False
    why: str = ""

    @property
    def reason(self) -> str:
        """The decision in words."""
        if self.timed_out:
            return f"{self.decision}, because nobody decided in time"
        who = f"the {self.by}" if self.by in (COMPARISON, ROLLBACK, TRIED) else self.by
        return f"{self.decision} by {who}" + (f": {self.why}" if self.why else "")


class Figures(BaseModel):
    """What trial.json says of a trial.

    Attributes:
        version: The number of the version that was tried out.
        texts: The number of texts that both versions answered.
        same: The number of texts with the same answer from both.
    """

    version: str
    texts: int
    same: int


def of_comparison(outcome: str) -> Decision:
    """Return the decision that follows from the outcome of the challenge when no approval is required."""
    return Decision(decision="approved" if outcome in ("first", "not worse") else "held", by=COMPARISON, at=now())


def of_rollback(at: str) -> Decision:
    """Return the decision for a version that was rolled back at this time."""
    return Decision(decision="held", by=ROLLBACK, at=at)


def of_trial(folder: Path, version: str, options: Retraining) -> Decision | None:
    """Return the decision that holds a version for its trial; None if nothing speaks against the version.

    Args:
        folder: The run's folder.
        version: The number of the version.
        options: The experiment's section, with the smallest accepted agreement.

    Raises:
        BadInput: If there are no figures of this version, or if they cannot be read.
    """
    if not (options.trial_texts and options.min_agreement):
        return None
    file = folder / TRIAL
    try:
        found = Figures.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: clear the Airflow task trial") from error
    if found.version != version:
        raise BadInput(f"{file} is of version {found.version}, not {version}: clear the Airflow task trial")
    if found.texts < options.trial_texts:
        why = f"{found.texts:,} texts were compared, but retraining.trial_texts = {options.trial_texts:,}"
    elif found.same / found.texts < options.min_agreement:  # as a product, 0.55 * 100 is more than 55
        why = (
            f"{found.same:,} of {found.texts:,} texts get the champion's answer, which is less than "
            f"retraining.min_agreement = {options.min_agreement:g}"
        )
    else:
        return None
    return Decision(decision="held", by=TRIED, at=now(), why=why)


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
