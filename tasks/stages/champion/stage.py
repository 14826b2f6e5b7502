"""The stage champion: write champion.json with the champion's version and the folder of its model."""

from __future__ import annotations

import json
import logging

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
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

log = logging.getLogger(__name__)


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


def run(context: Context) -> Outcome:
    """Write the champion that `fingerprint` has found and verified. The version is "" if there is no champion yet."""
    assert context.manifest is not None  # set by the runner
    result = json.loads(context.manifest.fingerprint)
    train = context.run.store.path("train", result["train"])
    result["folder"] = str(train / "model") if result["version"] else ""
    write_json(context.output / "champion.json", result)
    log.info("the champion of %s: %s", result["model"], result["version"] or "none yet")
    return Outcome({**result, "files": {"champion": "champion.json"}})
