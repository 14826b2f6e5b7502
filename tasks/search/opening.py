"""What both stages of a search begin with: what its trials depend on, its name, and its storage."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from optuna import Study

from include.experiment import Experiment
from include.runs import Run
from include.search_space import space_of
from include.stages import STAGES, TRIED, BadInput
from tasks.assets import encoder_fingerprint
from tasks.context import Context
from tasks.search.storage import Storage
from tasks.search.worker import Search

#: The fields of the section that may change while a search goes on.
_LATER = ("search.name", "search.minutes", "search.trials", "search.seeds")


def encoders(experiment: Experiment) -> dict[str, str]:
    """Return the fingerprints of all encoders that trials may start from, and the versions of the stages."""
    names = space_of(experiment).get("model.name", (experiment.model.name,))
    assert isinstance(names, tuple)
    found = {name: encoder_fingerprint(name, experiment.runtime) for name in names}
    return found | {stage: str(STAGES[stage].version) for stage in (*TRIED, "evaluate")}


def opened(context: Context, plan: dict[str, str]) -> tuple[Search, Storage, Study]:
    """Return the search that an experiment asks for, with its storage."""
    experiment = context.experiment
    if experiment.model.kind in ("frozen", "tfidf"):
        raise BadInput(f"model.kind {experiment.model.kind} has no trainings to search: write model.kind: encoder")
    about = _about(context, plan)
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    name = experiment.search.name or f"{experiment.task.name}-{digest}"
    data = Run(context.run.folder, context.run.store.full_check)
    storage = Storage(data.store.root.parent, name)
    return Search(name, experiment, space_of(experiment), data), storage, storage.open(about)


def _about(context: Context, plan: dict[str, str]) -> dict[str, Any]:
    part = STAGES["search"].key_part(context.experiment)
    settings = {name: value for name, value in part.items() if name not in _LATER}
    space = {name: str(entry) for name, entry in space_of(context.experiment).items()}
    return {"data": context.inputs["validate"].manifest.key, "settings": settings, "space": space, "plan": plan}
