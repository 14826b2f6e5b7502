"""The stage champion: champion.json, which version the champion is and where its model lies."""

from __future__ import annotations

import json
import logging

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome
from tasks.tracking.loading import EVALUATE, SEAL, TRAIN, load_champion
from tasks.tracking.registry import Registry

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Which version the champion is. Its files are read here, so that damage is seen also when the stage is done."""
    registry = Registry.of(experiment, run)
    found = load_champion(registry, run.store)
    tags, number = (found[0].tags, found[0].number) if found else ({}, "")
    keys = {"train": TRAIN, "evaluate": EVALUATE, "run": "run", "sha256": SEAL}
    known = {name: tags.get(key, "") for name, key in keys.items()}
    return json.dumps({"model": registry.model, "version": number, **known}, sort_keys=True)


def run(context: Context) -> Outcome:
    """Write down the champion as it was found and checked; its version is "" where there is none yet."""
    assert context.manifest is not None  # the runner gives one
    result = json.loads(context.manifest.fingerprint)
    train = context.run.store.path("train", result["train"])
    result["folder"] = str(train / "model") if result["version"] else ""
    write_json(context.output / "champion.json", result)
    log.info("the champion of %s: %s", result["model"], result["version"] or "still to come")
    return Outcome({**result, "files": {"champion": "champion.json"}})
