"""The stage champion: write champion.json with the champion's version and the folder of its model."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.tracking import loading
from tasks.tracking.registry import Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The champion; all fields but the name of the registered model are "" if there is none yet.

    Attributes:
        train: The key of the artifact of train. Those of evaluate and package follow.
        run: The name of the run that has registered the version.
        sha256: The digest of train's manifest.
    """

    model: str
    version: str = ""
    train: str = ""
    evaluate: str = ""
    package: str = ""
    run: str = ""
    sha256: str = ""
    package_sha256: str = ""


def plan(experiment: Experiment, run: Run) -> Plan:
    """Find the champion, and verify its files, so that damage is always detected."""
    registry = Registry.of(experiment, run)
    found = loading.load_champion(registry, run.store)
    if found is None:
        return Plan(registry.model)
    version, _ = found
    loading.load_package(version, run.store)
    tags = (loading.TRAIN, loading.EVALUATE, loading.PACKAGE, "run", loading.MANIFEST_SHA256, loading.PACKAGE_SHA256)
    return Plan(registry.model, version.number, *(version.tags.get(tag, "") for tag in tags))


def run(context: Context, plan: Plan) -> Outcome:
    """Write down the champion."""
    model = context.run.store.path("train", plan.train) / "model"
    result = {**asdict(plan), "folder": str(model) if plan.version else ""}
    write_json(context.output / "champion.json", result)
    log.info("the champion of %s: %s", plan.model, plan.version or "none yet")
    return Outcome({**result, "files": {"champion": "champion.json"}})
