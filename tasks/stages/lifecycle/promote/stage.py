"""The stage promote: move the champion alias to the run's version, or tag the version with the reason against it."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from include.experiment import Experiment
from include.runs import ANSWERS, Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.stages.lifecycle.promote.decision import COMPARISON, ROLLBACK, Answers, Decision, of_person, of_trial
from tasks.tracking.champions import Champions, champion_lock
from tasks.tracking.loading import load, load_package
from tasks.tracking.registry import ROLLED_BACK, Version, now

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What the decision depends on: Airflow's answers as JSON, and the number of the champion; "" where there is none.

    A version that was rolled back after it was promoted last may be promoted again.
    """

    answers: str
    champion: str
    promoted: str
    rolled_back: str


def plan(experiment: Experiment, run: Run) -> Plan:
    """Look up the champion and what has happened to the version."""
    registry = Champions.of(experiment, run)
    champion, version = registry.champion(), registry.version(run.artifact("register").manifest.result["version"])
    tags = version.tags if version else {}
    moved = (tags.get(name, "") for name in ("promoted", ROLLED_BACK))
    return Plan(os.environ.get(ANSWERS, ""), champion.number if champion else "", *moved)


def run(context: Context, plan: Plan) -> Outcome:
    """Promote the version, or record that it is not promoted. The run succeeds in both cases."""
    registry, outcome = Champions.of(context.experiment, context.run), context.inputs["challenge"].manifest.result
    with champion_lock(context.run.store):
        version, champion = _entered(context, registry), registry.champion()
        if champion == version:  # it was promoted before, possibly by an interrupted try of this stage
            registry.remove_challenger(version)
            tags = version.tags
            known = Decision(decision="approved", by=tags.get("promoted.by", ""), at=tags.get("decision.at", ""))
            return _outcome(registry, version, known, outcome.get("capacity", ""))
        decision = _decided(context, version, outcome["outcome"], Answers.read(plan.answers))
        tags = {"decision": decision.decision, "decision.by": decision.by, "decision.at": decision.at}
        if decision.decision == "approved":
            _check(registry.model, champion, outcome["champion"])
            load(version, context.run.store)  # both raise BadInput if a file is not as it was registered
            load_package(version, context.run.store)
            tags |= {"promoted": now(), "promoted.by": decision.by, "replaces": champion.number if champion else ""}
        registry.tag(version, tags)
        if decision.decision == "approved":
            registry.make_champion(version)  # comes last, so that every champion has a tag with its predecessor
        registry.remove_challenger(version)
        return _outcome(registry, version, decision, outcome.get("capacity", ""))


def _entered(context: Context, registry: Champions) -> Version:
    number = context.inputs["register"].manifest.result["version"]
    version = registry.version(number)
    if version is None:
        raise BadInput(
            f"version {number} of {registry.model} no longer exists in the registry: run the stage register again"
        )
    return version


def _decided(context: Context, version: Version, outcome: str, told: Answers) -> Decision:
    """Return a person's decision, or that of the comparison and the trial.

    A version that was rolled back is promoted again only if a person requests it, either by an approval or by clearing
    the Airflow task of the run that had promoted it.
    """
    if context.experiment.retraining.approval:
        return of_person(told.approve, version)
    tags, decided_before = version.tags, context.run.record()["stages"].get("promote", {}).get("key")
    if tags.get(ROLLED_BACK, "") > tags.get("promoted", "") and not decided_before:
        return Decision(decision="held", by=ROLLBACK, at=tags[ROLLED_BACK])
    held = None
    if outcome == "not worse":  # otherwise the comparison decides alone, and there was no trial
        held = of_trial(told.trial, version.number, context.experiment.retraining)
    return held or Decision(
        decision="approved" if outcome in ("first", "not worse") else "held", by=COMPARISON, at=now()
    )


def _check(model: str, champion: Version | None, compared: str) -> None:
    """Raise BadInput unless the champion is the one that the model was compared with."""
    present = champion.number if champion else ""
    if present != compared:
        raise BadInput(
            f"the champion of {model} is now {_named(present)}, but this model was compared with {_named(compared)}: "
            "clear the Airflow task champion and all later ones"
        )


def _named(number: str) -> str:
    return f"version {number}" if number else "none"


def _outcome(registry: Champions, version: Version, decision: Decision, capacity: str) -> Outcome:
    champion = registry.champion()
    promoted = champion == version
    replaces = champion.tags.get("replaces", "") if champion and promoted else ""
    became = f"the champion and replaces {_named(replaces)}" if promoted else "not the champion"
    result = {
        "promoted": promoted,
        "model": version.model,
        "version": version.number,
        "champion": champion.number if champion else "",
        "replaces": replaces,
        "decision": decision.decision,
        "by": decision.by,
        "reason": f"{version} is {became}: {decision.reason}",
        "capacity": capacity if promoted else "",
    }
    log.info("%s", result["reason"])
    if result["capacity"]:
        log.info("%s", result["capacity"])
    return Outcome(result)
