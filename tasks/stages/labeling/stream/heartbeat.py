"""The heartbeat of a stream, from which others learn whether it is alive and how far it is."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from include.artifacts import write_json
from include.stages import StageError
from tasks.staging import repeating

#: Seconds between two beats.
INTERVAL = 2


class Heartbeat:
    """Writes a file every few seconds, and at the end how it ended.

    The file has the `instance`, which identifies this life of the stream; its `state`, which is starting, running,
    stopped or failed, and a `message` if it has failed; the `time` of the beat and of the start (`started`); the last
    `batch`, and since when this instance has been at work on the next one (`batch_since`), or null; the numbers of rows
    that it has labeled (`rows`) and set `aside`, and the `model_version`.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._lock, self._beats = file, Lock(), repeating(self._write, INTERVAL)
        self._values: dict[str, Any] = {
            "instance": uuid.uuid4().hex, "state": "starting", "message": "", "started": _now(),
            "batch": None, "batch_since": None, "rows": 0, "aside": 0, "model_version": "",
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._write()
        self._beats.__enter__()
        return self

    def running(self) -> None:
        """Say that the stream waits for rows or labels them."""
        self._write(state="running")

    def working(self) -> None:
        """Say that a batch has begun, so that others see how long it takes."""
        self._write(batch_since=_now())

    def committed(self, batch: int, rows: int, aside: int, model_version: str) -> None:
        """Say that a batch has been committed, in which rows were labeled and set aside."""
        rows, aside = self._values["rows"] + rows, self._values["aside"] + aside
        self._write(batch=batch, batch_since=None, rows=rows, aside=aside, model_version=model_version)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._beats.__exit__(None, None, None)
        failed = isinstance(error, Exception)
        message = str(error) if isinstance(error, StageError) else repr(error)
        with suppress(OSError):  # report the full disk, not the failure to record it
            self._write(state="failed" if failed else "stopped", message=message if failed else "")

    def _write(self, **values: Any) -> None:
        with self._lock:
            self._values |= values
            write_json(self._file, {**self._values, "time": _now()})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
