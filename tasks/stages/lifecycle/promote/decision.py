"""The decision whether a model becomes the champion: by a person, the comparison with the champion, or the trial."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ValidationError

from include.fields.retraining import Retraining
from include.runs import ANSWERS
from include.stages import BadInput
from tasks.tracking.registry import Version, now

COMPARISON, ROLLBACK, TRIED = "comparison", "rollback", "trial"
_EXAMPLE = '{"approve": {"decision": "approved", "by": "NAME", "at": "2026-01-31", "model": "MODEL", "version": "1"}}'


class Decision(BaseModel):
    """A decision about a version.

    Attributes:
        decision: "rejected" is a person's, and "held" follows an undecided comparison, a rollback or a trial.
        by: The person's name, "comparison", "rollback" or "trial"; "" if no one decided.
        timed_out: Whether no one decided in time, which counts as a rejection.
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
            return f"{self.decision}, because no one decided in time"
        who = f"the {self.by}" if self.by in (COMPARISON, ROLLBACK, TRIED) else self.by
        return f"{self.decision} by {who}" + (f": {self.why}" if self.why else "")


class Answer(Decision):
    """A person's decision about a version of a registered model."""

    model: str
    version: str


class Figures(BaseModel):
    """What Airflow says of the trial of a version: the number of texts that both answered, and of equal answers."""

    version: str
    texts: int
    same: int


class Answers(BaseModel):
    """What Airflow tells promote. The run's folder is not believed, because every stage may write there."""

    approve: Answer | None = None
    trial: Figures | None = None

    @classmethod
    def read(cls, text: str) -> Answers:
        """Read them from what Airflow has told. Raise BadInput if they are not valid."""
        try:
            return cls.model_validate_json(text or "{}")
        except ValidationError as error:
            raise BadInput(
                f"what Airflow says of the approval or the trial is not valid: clear the Airflow task approve. Without "
                f"Airflow, write {ANSWERS}='{_EXAMPLE}' before the command"
            ) from error


def of_trial(found: Figures | None, version: str, options: Retraining) -> Decision | None:
    """Return the decision that holds a version back after its trial; None if nothing speaks against the version."""
    if not (options.trial_texts and options.min_agreement):
        return None
    if found is None:
        raise BadInput(
            "retraining.trial_texts asks for a trial, and Airflow knows of none: clear the Airflow task trial"
        )
    if found.version != version:
        raise BadInput(f"the trial was of version {found.version}, not {version}: clear the Airflow task trial")
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


def of_person(answer: Answer | None, version: Version) -> Decision:
    """Return a person's decision about the version."""
    if answer is None:
        raise BadInput(
            "retraining.approval requires a person's decision, and Airflow knows of none: clear the Airflow task "
            f"approve. Without Airflow, write {ANSWERS}='{_EXAMPLE}' before the command"
        )
    if (answer.model, answer.version) != (version.model, version.number):
        raise BadInput(
            f"{answer.by or 'a person'} was asked about version {answer.version} of {answer.model}, not {version}: "
            "clear the Airflow task approve"
        )
    return answer
