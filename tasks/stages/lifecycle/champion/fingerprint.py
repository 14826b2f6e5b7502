"""What the stage champion reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run
from tasks.tracking.loading import (
    EVALUATE,
    MANIFEST_SHA256,
    PACKAGE,
    PACKAGE_SHA256,
    TRAIN,
    load_champion,
    load_package,
)
from tasks.tracking.registry import Registry


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the champion's version and keys. Its files are verified here, so that damage is always detected."""
    registry = Registry.of(experiment, run)
    found = load_champion(registry, run.store)
    if found:
        load_package(found[0], run.store)
    tags, number = (found[0].tags, found[0].number) if found else ({}, "")
    keys = {"train": TRAIN, "evaluate": EVALUATE, "package": PACKAGE, "run": "run", "sha256": MANIFEST_SHA256}
    keys["package_sha256"] = PACKAGE_SHA256
    known = {name: tags.get(key, "") for name, key in keys.items()}
    return json.dumps({"model": registry.model, "version": number, **known}, sort_keys=True)
