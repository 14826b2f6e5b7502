"""The stage rollback: the alias champion goes back to the version that the present one has replaced."""

from __future__ import annotations

import logging

from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.tracking.champions import Champions, alone
from tasks.tracking.loading import load
from tasks.tracking.registry import Version, now

#: The tag of the version that was left: the run that did it.
BY = "rolled_back.run"

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """The run's folder: a run goes back once, however often it is tried, and another one goes back once more."""
    return run.folder.name


def run(context: Context) -> Outcome:
    """Move the alias, if the files of the version before are as they were registered."""
    registry, name = Champions.of(context.experiment, context.run), context.run.folder.name
    with alone(context.run.store):
        begun = registry.with_tag(BY, name)  # by a try that was cut off
        left = begun or _champion(registry)
        target = _before(registry, left)
        load(target, context.run.store)
        if begun is None:
            registry.tag(left, {"rolled_back": now(), BY: name})
        champion = registry.champion()
        if champion not in (left, target):
            raise BadInput(f"{champion} has become the champion since this rollback began: roll back in a new run")
        registry.make_champion(target)
    log.info("the champion of %s is version %s again, no longer %s", registry.model, target.number, left.number)
    return Outcome({"model": registry.model, "version": target.number, "left": left.number})


def _champion(registry: Champions) -> Version:
    champion = registry.champion()
    if champion is None:
        raise BadInput(f"{registry.model} has no champion to roll back: only a promotion makes one")
    return champion


def _before(registry: Champions, left: Version) -> Version:
    """The version that one has replaced. Raises BadInput when there is none, or no longer."""
    number = left.tags.get("replaces", "")
    if not number:
        raise BadInput(f"{left} is the first champion: there is nothing before it to roll back to")
    target = registry.version(number)
    if target is None:
        raise BadInput(f"{left} replaced version {number}, which is gone from the registry: promote another model")
    return target
