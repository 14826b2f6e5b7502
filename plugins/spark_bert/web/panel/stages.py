"""What a record says of the stages of its run that have ended, and of the champion that they have seen."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from include.stages import ExitCode
from spark_bert.web.panel.records import mapping, seconds_since_1970

_OUTCOMES: dict[int, str] = {
    ExitCode.DONE: "done", ExitCode.BAD_INPUT: "bad_input", ExitCode.GATE_FAILED: "refused",
    ExitCode.TRANSIENT: "transient", ExitCode.STOPPED: "stopped",
}  # fmt: skip
#: What the panel calls outcomes whose difference matters only to Airflow, which tries some of them again.
_STATES = {"bad_input": "failed", "transient": "failed"}
_VERSION = re.compile("[0-9]{1,9}")


class RecordedStage(NamedTuple):
    """A stage that has ended.

    Attributes:
        outcome: `done`, `bad_input`, `refused`, `transient`, `stopped`, or `failed`.
        started: when it has started, in seconds since 1970; None in old records.
        ended: when it has ended.
        seconds: how long it took; None if it made nothing, or has found what it would make.
        rows_per_second: its speed; None if it tells none, or has found what it would make.
    """

    outcome: str
    started: float | None
    ended: float | None
    seconds: float | None
    rows_per_second: float | None


class Champion(NamedTuple):
    """The version of a registered model that has the alias `champion`."""

    model: str
    version: int


def read_stage(entry: Mapping[str, Any]) -> RecordedStage:
    """Return what a stage's entry in a record says."""
    measured = {} if entry.get("reused") is True else mapping(entry.get("result"))
    outcome = _OUTCOMES.get(entry["exit_code"], "failed") if has_exit_code(entry) else "failed"
    return RecordedStage(
        "refused" if outcome == "done" and refused_files(entry) and not _is_new(entry) else outcome,
        seconds_since_1970(entry.get("started")),
        seconds_since_1970(entry.get("ended")),
        *(value if is_number(value) else None for value in map(measured.get, ("seconds", "rows_per_second"))),
    )


def refused_files(entry: Mapping[str, Any]) -> list[str]:
    """Return why the stage has refused files that it was to take in, one sentence per file."""
    return [str(why) for why in mapping(mapping(entry.get("result")).get("refused")).values()]


def _is_new(entry: Mapping[str, Any]) -> bool:
    return mapping(entry.get("result")).get("new") is True


def seconds_at_work(stages: Iterable[RecordedStage]) -> float | None:
    """Return how long at least one of the stages was at work, in s; None if no times are known.

    A pause, such as that between a stop and the run that goes on, does not count.
    """
    times = sorted((one.started, one.ended) for one in stages if one.started is not None and one.ended is not None)
    total, until = 0.0, -math.inf
    for started, ended in times:
        total += max(0.0, ended - max(started, until))
        until = max(until, ended)
    return total if times else None


def has_exit_code(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry has an exit code. One without is damaged."""
    return type(entry.get("exit_code")) is int


def outcome_of(stages: Mapping[str, RecordedStage]) -> str:
    """Return the outcome of the first stage that is not done, `done` if there is none so far. Tracking fails no run."""
    ended = (stage.outcome for name, stage in stages.items() if name != "track")
    return next((outcome for outcome in ended if outcome != "done"), "done")


def state_of(outcome: str) -> str:
    """Return the state that the panel shows for an outcome: `done`, `refused`, `stopped`, or `failed`."""
    return _STATES.get(outcome, outcome)


def read_champion(results: Mapping[str, Mapping[str, Any]]) -> Champion | None:
    """Return what the results of the stages say that asked for the champion or moved the alias, the last one first."""
    for stage, name in (("rollback", "version"), ("promote", "champion"), ("champion", "version")):
        result = results.get(stage, {})
        version = str(result.get(name, ""))
        if _VERSION.fullmatch(version):
            return Champion(str(result.get("model", "")), int(version))
    return None


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number. A metric that is undefined is None."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
