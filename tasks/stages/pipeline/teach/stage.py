"""The stage teach: the logits of model.teacher for the rows of train and dev, and for unlabeled rows, as Parquet files.

The unlabeled rows are chosen and tokenized first. Then the logits are computed in parts. Both are kept as checkpoints,
so that a run that was killed goes on with the parts that it lacks.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from include.artifacts import locked, write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome

if TYPE_CHECKING:
    from tasks.inference.chosen_model import Model

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The teacher, None if there is none, and a digest of the unlabeled text, "" if there is none."""

    teacher: Model | None = None
    text: str = ""

    def fingerprint(self) -> str:
        """Return the text that is part of the artifact's key."""
        if self.teacher is None:
            return ""
        return json.dumps({"teacher": self.teacher.digest, "form": self.teacher.trained.form, "text": self.text})


def plan(experiment: Experiment, run: Run) -> Plan:
    """Return the teacher and what identifies the text. Raise BadInput if the teacher was trained for another task."""
    if not experiment.model.teacher:
        return Plan()
    from tasks.inference.chosen_model import teacher_of
    from tasks.sources.documents import digest_of

    return Plan(teacher_of(experiment, run), digest_of(experiment.distillation.text, "distillation.text"))


def run(context: Context, plan: Plan) -> Outcome:
    """Write teacher.json, SPLIT.parquet with the logits of each split, and unlabeled/ with token ids."""
    if plan.teacher is None:
        log.info("there is nothing to do, because model.teacher is not set")
        return Outcome({"teacher": ""})
    from tasks.inference.chosen_model import teachers_root
    from tasks.stages.pipeline.teach.logits import compute_parts, join_parts, splits_of
    from tasks.stages.pipeline.teach.unlabeled import UNLABELED, write_unlabeled

    experiment, kept = context.experiment, context.checkpoints
    splits = context.inputs["preprocess"].path
    with locked(kept):
        if plan.text and not (kept / UNLABELED).exists():
            write_unlabeled(experiment, splits / "train", kept)
        found = splits_of(splits, kept)
        compute_parts(experiment, plan.teacher, kept, found)
    rows = join_parts(kept, found, context.output)
    trained = plan.teacher.trained
    folder = Path(trained.folder).relative_to(teachers_root(experiment, context.run))
    about = {"teacher": plan.teacher.version, "form": trained.form, "folder": str(folder)}
    write_json(context.output / "teacher.json", about)
    return Outcome({**about, "rows": rows})
