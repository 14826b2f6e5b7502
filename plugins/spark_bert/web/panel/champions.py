"""The history of the registered models, from the records of the runs that challenged, promoted, and rolled back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel

from include.runs import DECISION, TRIAL
from spark_bert.deployment.places import home
from spark_bert.web.panel import dag_runs
from spark_bert.web.panel.addresses import Readable
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import Record, fit, read_json, read_record, seconds_since_1970

SHORT = 12  # events of a model that are shown unless a reader asks for this model alone
#: The events of a history that are shown. The others say which version is the champion, and which run made it.
_SHOWN = ("challenge", "trial", "approval", "promotion", "rollback")


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
#: The same for the files next to the record of a run that has registered a version.
_FILES: dict[str, tuple[str, type[BaseModel]]] = {TRIAL: ("trial", _Trial), DECISION: ("approval", _Decision)}


class _Event(NamedTuple):
    """Something that a run says about a version of a registered model."""

    row: Row
    model: str
    kind: str  # one of _SHOWN; registration; or seen, if it is the champion that the run has found
    time: float  # in seconds since 1970
    version: str  # "" if the model was not registered, because it was refused
    found: Mapping[str, Any]  # what else is known
    href: str = ""  # the address of a report


class _Reign(NamedTuple):
    """The time in which a version was the champion, until the next one begins."""

    time: float  # when it became the champion, in seconds since 1970, or when a run first saw it
    by: str  # promotion or rollback; seen if no run that is still there has made it the champion
    version: str  # "" if there was no champion
    score: float | None  # its metric on the dev split


def describe(rows: Readable, model: str = "") -> dict[str, Any]:
    """Return the champion and the history of each registered model, or the whole history of the one that is named."""
    histories: dict[str, list[_Event]] = defaultdict(list)
    for event in sorted(_events(rows), key=lambda event: event.time):
        histories[event.model].append(event)
    chosen = [(name, events) for name, events in histories.items() if model in ("", name)]
    runs = {row.run: row for row in rows}
    newest_first = sorted(chosen, key=lambda pair: -pair[1][-1].time)
    found = [_model(name, events, runs, None if model else SHORT) for name, events in newest_first]
    return {"models": [one for one in found if one["total"] or one["champion"]]}


def _model(name: str, events: Sequence[_Event], runs: Mapping[str, Row], most: int | None) -> dict[str, Any]:
    """Return one model as JSON. The events come in the order of their times."""
    shown = [event for event in reversed(events) if event.kind in _SHOWN]
    challenges = [event for event in events if event.kind == "challenge"]
    reigns = list(_reigns(events))
    return {
        "model": name,
        "metric": challenges[-1].found["metric"] if challenges else "",
        "champion": _champion(reigns[-1], events, runs) if reigns and reigns[-1].version else None,
        "reigns": [reign._asdict() for reign in reigns],
        "challengers": [[event.time, event.found["metrics"].get("model")] for event in challenges],
        "events": [
            {**event.found, "kind": event.kind, "time": event.time, "version": event.version, "href": event.href}
            | event.row.source
            for event in shown[:most]
        ],
        "total": len(shown),
    }


def _champion(reign: _Reign, events: Sequence[_Event], runs: Mapping[str, Row]) -> dict[str, Any]:
    """Return the champion with the run that made it, None if that is gone or the reader may not see it."""
    made = [event.row for event in events if (event.kind, event.version) == ("registration", reign.version)]
    named = [event.found["run"] for event in events if (event.kind, event.version) == ("seen", reign.version)]
    rows = [*made, *(runs[run] for run in named if run in runs)]
    return {**reign._asdict(), "made_by": rows[0].source if rows else None}


def _reigns(events: Sequence[_Event]) -> Iterator[_Reign]:
    """Yield which version was the champion when, in order. The events come in the order of their times."""
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event.kind == "challenge":
            versions = {"model": event.version, "champion": event.found["champion"]}
            for name, score in event.found["metrics"].items():
                if score is not None and versions.get(name):
                    scores[versions[name]].append((event.time, score))
    for version, group in groupby(filter(None, map(_sighting, events)), key=lambda sighting: sighting[2]):
        time, by, _ = next(group)  # that it was seen again is no news
        known = scores.get(version, [])
        before = [score for at, score in known if at <= time]
        yield _Reign(time, by, version, before[-1] if before else known[0][1] if known else None)


def _sighting(event: _Event) -> tuple[float, str, str] | None:
    """Return when, how, and which version was known to be the champion; None if the event does not say."""
    if event.kind == "promotion":
        return event.time, "promotion" if event.found["promoted"] else "seen", event.found["champion"]
    return (event.time, event.kind, event.version) if event.kind in ("seen", "rollback") else None


def _events(rows: Iterable[Row]) -> Iterator[_Event]:
    for row in rows:
        if _STAGES.keys().isdisjoint(row.stages):
            continue
        if row.state != "running":
            yield from _read(str(home()), row)
            continue
        request = dag_runs.task_states(row.dag_id, row.run_id).get("approve") if row.dag_id else None
        for event in _read.__wrapped__(str(home()), row):  # it may write files next to its record, which have no stamp
            yield event
            if event.kind == "registration" and request and request.state == "awaiting_input":
                time = request.started or event.time
                yield event._replace(kind="approval", time=time, found={"decision": "waiting"}, href="")


@lru_cache(maxsize=1 << 14)
def _read(root: str, row: Row) -> tuple[_Event, ...]:
    """Return everything that a run of the home `root` says of a registered model."""
    record = read_record(row.run)
    made = {stage: entry for stage, entry in record.stages.items() if stage in _STAGES and entry.made}
    versions = {stage: version for stage, entry in made.items() if (version := fit(_Version, entry.result))}
    model = next((versions[stage].model for stage in _STAGES if stage in versions and versions[stage].model), "")
    registered = versions["register"].version if "register" in versions else ""
    return tuple(_told(row, model, registered, record)) if model else ()


def _told(row: Row, model: str, registered: str, record: Record) -> Iterator[_Event]:
    """Yield the events of a run that has registered a version ("" if it has not)."""
    for stage, (kind, form) in _STAGES.items():
        entry = record.stages.get(stage)
        if entry and entry.made and (content := fit(form, entry.result)):
            found, href = content.model_dump(), row.href(stage, entry, stage)
            yield _Event(row, model, kind, entry.ended or row.changed, found.pop("version", registered), found, href)
    for file, (kind, form) in _FILES.items() if registered else ():
        values, time = read_json(home() / "runs", row.run, file)
        if content := fit(form, values):
            found = content.model_dump()
            at = seconds_since_1970(found.pop("at", None)) or time
            yield _Event(row, model, kind, at, found.pop("version", registered), found)
