"""The history of the registered models, from the records of the runs that challenged, promoted, and rolled back.

MLflow is not asked: a run that looks for the champion, or makes another version the champion, says so in its record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from include.folders import open_file
from include.runs import DECISION, TRIAL
from spark_bert.deployment.places import home
from spark_bert.web.panel import dag_runs
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import read_record, seconds_since_1970
from spark_bert.web.panel.results import Result, Source, read_file, result_of

#: How many events of a model are shown unless a reader asks for this model alone.
SHORT = 12
#: What a reader is shown of a history; the other kinds say which version is the champion, and which run made it.
_SHOWN = ("challenge", "trial", "approval", "promotion", "rollback")
#: The state of an Airflow task that waits for a person's answer.
_WAITING = "awaiting_input"


class _Version(BaseModel):
    """The result of champion, register, and rollback."""

    model: str
    version: str  # "" if there is no champion
    left: str = ""  # the version that was rolled back
    run: str = ""  # the run that has registered the champion


class _Challenge(BaseModel):
    outcome: str
    passed: bool
    metric: str
    metrics: dict[str, float | None]
    compared: str | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    margin: float | None = None
    rows: int | None = None
    champion: str = ""
    reasons: list[str] = []


class _Promotion(BaseModel):
    """The result of promote, which may also be that the version is not promoted."""

    promoted: bool
    model: str
    version: str
    champion: str
    replaces: str = ""
    decision: str = ""
    by: str = ""
    reason: str = ""


class _Trial(BaseModel):
    version: str
    texts: int
    same: int
    milliseconds: dict[str, float | None] = {}


class _Decision(BaseModel):
    decision: str
    by: str = ""
    at: str
    timed_out: bool = False


#: The stages that say something about a registered model: what kind of event that is, and the form of the result.
_STAGES: dict[str, tuple[str, type[BaseModel]]] = {
    "champion": ("seen", _Version),
    "challenge": ("challenge", _Challenge),
    "register": ("registration", _Version),
    "promote": ("promotion", _Promotion),
    "rollback": ("rollback", _Version),
}
#: The same for the files beside the record of a run that has registered a version.
_FILES: dict[str, tuple[str, type[BaseModel]]] = {TRIAL: ("trial", _Trial), DECISION: ("approval", _Decision)}


@dataclass(frozen=True)
class Event:
    """Something that a run says about a version of a registered model.

    Attributes:
        source: the run.
        model: the name of the registered model.
        kind: challenge, trial, approval, promotion, or rollback; "registration"; or "seen" if the version is the
            champion that the run has found.
        time: in seconds since 1970.
        version: the version; "" if the model was not registered, as one that was refused.
        found: what else is known, as JSON.
        href: the address of a report; "" if there is none.
    """

    source: Source
    model: str
    kind: str
    time: float
    version: str
    found: Mapping[str, Any]
    href: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what a page shows of it."""
        about = {"kind": self.kind, "time": self.time, "version": self.version, "href": self.href}
        return {**self.found, **about, **self.source.as_json()}


@dataclass(frozen=True)
class Reign:
    """The time in which a version was the champion, until the next one begins.

    Attributes:
        time: when it became the champion, in seconds since 1970, or when a run first saw it.
        by: promotion, rollback, or "seen" if no run that is still there has made it the champion.
        version: the version; "" if there was no champion.
        score: its metric on the dev split; None if it is not known.
    """

    time: float
    by: str
    version: str
    score: float | None


def describe(rows: Collection[Row], model: str = "") -> dict[str, Any]:
    """Return the champion and the history of each registered model, as JSON, the model with the newest event first.

    Args:
        rows: the runs that the reader may see.
        model: the only model that the reader wants to see, with its whole history; "" for all.
    """
    histories: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(_events(rows), key=lambda event: event.time):
        histories[event.model].append(event)
    chosen = [(name, events) for name, events in histories.items() if model in ("", name)]
    runs = {row.run: row for row in rows}
    newest_first = sorted(chosen, key=lambda pair: -pair[1][-1].time)
    found = [_model(name, events, runs, None if model else SHORT) for name, events in newest_first]
    return {"models": [one for one in found if one["total"] or one["champion"]]}


def _model(name: str, events: Sequence[Event], runs: Mapping[str, Row], most: int | None) -> dict[str, Any]:
    """Return one model as JSON. The events come in the order of their times."""
    shown = [event for event in reversed(events) if event.kind in _SHOWN]
    challenges = [event for event in events if event.kind == "challenge"]
    reigns = list(_reigns(events))
    return {
        "model": name,
        "metric": challenges[-1].found["metric"] if challenges else "",
        "champion": _champion(reigns[-1], events, runs) if reigns and reigns[-1].version else None,
        "reigns": [vars(reign) for reign in reigns],
        "challengers": [[event.time, event.found["metrics"].get("model")] for event in challenges],
        "events": [event.as_json() for event in shown[:most]],
        "total": len(shown),
    }


def _champion(reign: Reign, events: Sequence[Event], runs: Mapping[str, Row]) -> dict[str, Any]:
    """Return the champion with the run that made it, None if that is gone or the reader may not see it."""
    made = [event.source for event in events if (event.kind, event.version) == ("registration", reign.version)]
    named = [event.found["run"] for event in events if (event.kind, event.version) == ("seen", reign.version)]
    sources = [*made, *(Source.of(runs[run]) for run in named if run in runs)]
    return {**vars(reign), "made_by": sources[0].as_json() if sources else None}


def _reigns(events: Sequence[Event]) -> Iterator[Reign]:
    """Yield which version was the champion when, in order. The events come in the order of their times."""
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        for version, score in _scores(event):
            scores[version].append((event.time, score))
    for version, group in groupby(filter(None, map(_sighting, events)), key=lambda sighting: sighting[2]):
        time, by, _ = next(group)  # that it was seen again is no news
        known = scores.get(version, [])
        before = [score for at, score in known if at <= time]
        yield Reign(time, by, version, before[-1] if before else known[0][1] if known else None)


def _sighting(event: Event) -> tuple[float, str, str] | None:
    """Return when, how, and which version was known to be the champion, or None if the event does not tell."""
    if event.kind == "promotion":
        return event.time, "promotion" if event.found["promoted"] else "seen", event.found["champion"]
    return (event.time, event.kind, event.version) if event.kind in ("seen", "rollback") else None


def _scores(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the versions whose metric was measured, and the metric."""
    if event.kind == "challenge":
        versions = {"model": event.version, "champion": event.found["champion"]}
        for name, score in event.found["metrics"].items():
            if score is not None and versions.get(name):
                yield versions[name], score


def _events(rows: Iterable[Row]) -> Iterator[Event]:
    for row in rows:
        if _STAGES.keys().isdisjoint(row.stages):
            continue
        if row.state == "running":  # it may write files beside its record, which have no stamp
            yield from _with_request(_read.__wrapped__(str(home()), Source.of(row)))
        else:
            yield from _read(str(home()), Source.of(row))


def _with_request(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of a run that is running, and that it waits for a person, if it does."""
    for event in events:
        yield event
        if event.kind == "registration" and event.source.dag_id:
            request = dag_runs.task_states(event.source.dag_id, event.source.run_id).get("approve")
            if request and request.state == _WAITING:
                time = request.started or event.time
                yield Event(event.source, event.model, "approval", time, event.version, {"decision": "waiting"})


@lru_cache(maxsize=1 << 14)
def _read(root: str, source: Source) -> tuple[Event, ...]:
    """Return everything that a run of the home `root` says of a registered model."""
    record = read_record(source.run)
    results = {stage: result for stage in _STAGES if (result := result_of(source, record, stage))}
    versions = {stage: result.read(_Version) for stage, result in results.items()}
    model = next((version.model for version in versions.values() if version and version.model), "")
    registered = versions.get("register")
    return tuple(_told(source, model, registered.version if registered else "", results)) if model else ()


def _told(source: Source, model: str, registered: str, results: Mapping[str, Result]) -> Iterator[Event]:
    """Yield the events of a run that has registered a version ("" if it has not)."""
    for stage, result in results.items():
        kind, form = _STAGES[stage]
        if content := result.read(form):
            found = content.model_dump()
            yield Event(source, model, kind, result.time, found.pop("version", registered), found, result.href(stage))
    if registered:
        for file, (kind, form) in _FILES.items():
            if read := read_file(partial(open_file, home() / "runs", source.run, file), form):
                found, time = read[0].model_dump(), read[1]
                at = seconds_since_1970(found.pop("at", None)) or time
                yield Event(source, model, kind, at, found.pop("version", registered), found)
