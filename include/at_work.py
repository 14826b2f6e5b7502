"""The records of the stages at work: runs/<run>/at-work/<stage>.json, for whoever watches a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel

from include.artifacts import write_json

log = logging.getLogger(__name__)
#: The folder in a run's folder that holds one file for each stage at work.
AT_WORK = "at-work"


class AtWork(BaseModel):
    """A stage at work.

    Attributes:
        stage: the name of the stage.
        key: the key of the artifact that it makes.
        progress: the key of its checkpoints. A training writes metrics.jsonl in checkpoints/<stage>/<progress>/, until
            its artifact is committed with that file in it.
        since: when this try began, in seconds since 1970.
        planned_steps: the steps of a training; None until they are known, and for other stages. A training whose dev
            split stops improving ends before.
    """

    stage: str
    key: str
    progress: str
    since: float
    planned_steps: int | None = None


@contextmanager
def at_work(run: Path, work: AtWork) -> Iterator[Callable[[int], None]]:
    """Record in a run's folder that a stage is at work, until the end of the context.

    A process that is killed leaves its record, and the next try of the stage replaces it. A reader can tell: unless the
    Airflow task is running, the record is a remnant; without Airflow, it is one if run.json has an entry of the stage
    that ended after `since`. A record that cannot be written does not stop the work.

    Yields:
        A function that adds the planned steps to the record.
    """
    file = run / AT_WORK / f"{work.stage}.json"
    _write(file, work)
    try:
        yield lambda steps: _write(file, work.model_copy(update={"planned_steps": steps}))
    finally:
        with suppress(OSError, ValueError):
            if AtWork.model_validate_json(file.read_bytes()).since == work.since:  # else it is the next try's
                file.unlink()


def _write(file: Path, work: AtWork) -> None:
    try:
        file.parent.mkdir(exist_ok=True)
        write_json(file, work.model_dump())
    except OSError as error:
        log.warning("%s cannot be written, so nobody sees that %s is at work: %s", file, work.stage, error)
