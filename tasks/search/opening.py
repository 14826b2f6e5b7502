"""What both stages of a search begin with: what its trials depend on, its name, and its storage."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from optuna import Study

from include.experiment import Experiment
from include.runs import Run
from include.search_space import space_of, texts_of
from include.stages import STAGES, TRIED, BadInput
from tasks.assets import encoder_fingerprint
from tasks.context import Context
from tasks.encoder import lexicon
from tasks.inference.chosen_model import teacher_of
from tasks.search.storage import Storage
from tasks.search.worker import Search
from tasks.sources.documents import digest_of


def read_by_trials(experiment: Experiment, run: Run) -> dict[str, str]:
    """Return the fingerprints of all that trials may read outside the store, and the versions of the stages."""
    found = {name: encoder_fingerprint(name, experiment.runtime) for name in texts_of(experiment, "model.name")}
    for name in texts_of(experiment, "model.lexicon"):
        found[f"model.lexicon {name}"] = lexicon.fingerprint(name)
    for field in ("pretraining.text", "distillation.text"):
        for name in texts_of(experiment, field):
            found[f"{field} {name}"] = digest_of(name, field)
    for name in texts_of(experiment, "model.teacher"):
        model = experiment.model.model_copy(update={"teacher": name})
        found[f"model.teacher {name}"] = teacher_of(experiment.model_copy(update={"model": model}), run).digest
    return found | {stage: str(STAGES[stage].version) for stage in (*TRIED, "evaluate")}


def opened(context: Context, plan: dict[str, str]) -> tuple[Search, Storage, Study]:
    """Return the search that an experiment asks for, with its storage."""
    experiment = context.experiment
    if experiment.model.kind in ("frozen", "tfidf"):
        raise BadInput(f"model.kind {experiment.model.kind} has no trainings to search: write model.kind: encoder")
    about = _about(context, plan)
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    name = experiment.search.name or f"{experiment.task.name}-{digest}"
    storage = Storage(context.run.store.root.parent, name)
    return Search(name, experiment, space_of(experiment), context.run), storage, storage.open(about)


def _about(context: Context, plan: dict[str, str]) -> dict[str, Any]:
    settings = STAGES["search"].resume_part(context.experiment)
    space = {name: str(entry) for name, entry in space_of(context.experiment).items()}
    return {"data": context.inputs["validate"].manifest.key, "settings": settings, "space": space, "plan": plan}
