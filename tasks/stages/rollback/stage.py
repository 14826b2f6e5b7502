"""The stage rollback: move the champion alias back to the version that the current champion has replaced."""

from __future__ import annotations

import logging

from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.tracking.champions import Champions, champion_lock
from tasks.tracking.loading import load
from tasks.tracking.registry import ROLLED_BACK, Version, now

#: The tag of the version that was rolled back. Its value is the name of the run that did so.
BY = "rolled_back.run"

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the name of the run's folder, because each run rolls back once, regardless of its number of tries."""
    return run.folder.name


def run(context: Context) -> Outcome:
    """Move the alias, provided that the files of the previous version are unchanged since their registration."""
    registry, name = Champions.of(context.experiment, context.run), context.run.folder.name
    with champion_lock(context.run.store):
        begun = registry.with_tags({BY: name})  # set by an interrupted try
        left = begun or _champion(registry)
        target = _before(registry, left)
        load(target, context.run.store)
        if begun is None:
            registry.tag(left, {ROLLED_BACK: now(), BY: name})
        champion = registry.champion()
        if champion not in (left, target):
            raise BadInput(f"{champion} has become the champion since this rollback started: roll back in a new run")
        registry.make_champion(target)
    log.info("the champion of %s is version %s again, no longer %s", registry.model, target.number, left.number)
    return Outcome({"model": registry.model, "version": target.number, "left": left.number})


def _champion(registry: Champions) -> Version:
    champion = registry.champion()
    if champion is None:
        raise BadInput(f"{registry.model} has no champion to roll back: promote a model first")
    return champion


def _before(registry: Champions, left: Version) -> Version:
    """Return the version that `left` has replaced. Raise BadInput if there is none or if it no longer exists."""
    number = left.tags.get("replaces", "")
    if not number:
        raise BadInput(f"{left} is the first champion: there is no previous version to roll back to")
    target = registry.version(number)
    if target is None:
        raise BadInput(
            f"{left} replaced version {number}, which no longer exists in the registry: promote another model"
        )
    return target
