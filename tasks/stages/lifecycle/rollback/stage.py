"""The stage rollback: move the champion alias back to the version that the current champion has replaced.

In a run of retrain, it undoes the promotion of this run, and no later one.
"""

from __future__ import annotations

import logging

from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.inference.capacity import Capacity, compared
from tasks.tracking.champions import Champions, champion_lock
from tasks.tracking.loading import PACKAGE, load
from tasks.tracking.registry import ROLLED_BACK, Version, now

#: The tag with the name of the run that has rolled back the version.
BY = "rolled_back.run"

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> str:
    """Return the name of the run, because each run rolls back once, regardless of its number of tries.

    If the run has promoted a version, each of its promotions is rolled back once, so the promotion's key is added.
    """
    promotion = run.record()["stages"].get("promote", {}).get("key", "")
    return f"{run.folder.name} {promotion}" if promotion else run.folder.name


def run(context: Context, plan: str) -> Outcome:
    """Move the alias, provided that the files of the previous version are unchanged since their registration."""
    registry, name = Champions.of(context.experiment, context.run), context.run.folder.name
    with champion_lock(context.run.store):
        begun = _begun(registry, name)
        left = begun or _to_leave(context.run, registry)
        target, champion = _before(registry, left), registry.champion()
        load(target, context.run.store)
        if champion not in (left, target):
            since = "this rollback started" if begun else f"{left} was promoted"
            raise BadInput(f"{champion or 'no version'} has become the champion since {since}: roll back in a new run")
        if champion == left and begun is None:
            registry.tag(left, {ROLLED_BACK: now(), BY: name})
        registry.make_champion(target)
    capacity = _capacity(context.run, target, left)
    log.info("the champion of %s is version %s again, no longer %s", registry.model, target.number, left.number)
    if capacity:
        log.info("%s", capacity)
    return Outcome({"model": registry.model, "version": target.number, "left": left.number, "capacity": capacity})


def _capacity(run: Run, target: Version, left: Version) -> str:
    """Say how many more or fewer texts the service answers from now on."""
    new, old = (Capacity.of(run.store.path("package", each.tags.get(PACKAGE, "none"))) for each in (target, left))
    return compared(new, f"version {target.number}", old, f"version {left.number}")


def _begun(registry: Champions, name: str) -> Version | None:
    """Return the version that an interrupted try of the run has begun to roll back, unless it was promoted since."""
    version = registry.with_tags({BY: name})
    if version is None or version.tags.get("promoted", "") > version.tags[ROLLED_BACK]:
        return None
    return version


def _to_leave(run: Run, registry: Champions) -> Version:
    """Return the version to roll back: the champion, or what this run has promoted if it does more than roll back."""
    stages = run.record()["stages"]
    if not stages.keys() - {"rollback"}:
        champion = registry.champion()
        if champion is None:
            raise BadInput(f"{registry.model} has no champion to roll back: promote a model first")
        return champion
    promotion = stages.get("promote", {}).get("result", {})
    version = registry.version(promotion["version"]) if promotion.get("promoted") else None
    if version is None:
        raise BadInput(f"the run {run.folder.name} has no promotion that can be undone: roll back in a new run")
    return version


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
