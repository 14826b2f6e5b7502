"""The format of a stage's log, which the stage writes and Airflow's operators and `make run` read.

A line is text, or with SPARK_BERT_LOG_FORMAT=json an object that says which run, stage and span it is part of. What
others write to stderr, such as Java, is text in either case.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple

from include import tracing
from include.stages import BadInput

#: The variable that chooses the format.
VARIABLE = "SPARK_BERT_LOG_FORMAT"
#: The format of the standard library's logging.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: What each line in JSON starts with. The result of a stage does not.
JSON_START = '{"time": "'
#: What a line in JSON may have in addition to time, level, logger, and message.
FIELDS = ("run", "stage", "trace_id", "span_id", "exception")
#: Matches a message on how far a stage is: the steps of a training, or the parts that are labeled, and their total.
PROGRESS = re.compile(r": (?:step|labeled) (\d+) of (\d+)\b")
# A line in the format above: its level, its logger, and its message. Lines of Java or of a traceback differ.
_TEXT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+): (.*)")

log = logging.getLogger("tasks")


class Line(NamedTuple):
    """A line of a stage's log: its level as a number, its logger and message, and its other FIELDS in JSON."""

    level: int
    logger: str
    message: str
    fields: dict[str, str]


def configure(level: int = logging.INFO, origin: tracing.Origin | None = None) -> None:
    """Log to stderr, in the format that $SPARK_BERT_LOG_FORMAT names.

    Lines in JSON say which run, stage and trace (`origin`) they are part of. Raise BadInput if there is no such format.
    """
    wanted = os.environ.get(VARIABLE) or "text"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(origin) if wanted == "json" else logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    if wanted == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
    elif wanted != "text":
        raise BadInput(f"{VARIABLE}={wanted!r} is not valid: write text or json")


def parse_line(text: str) -> Line | None:
    """Return the line of a stage's log that a text in either format is, or None."""
    match = _TEXT.match(text)
    if match:
        return Line(logging.getLevelNamesMapping()[match[1]], match[2], match[3], {})
    if not text.startswith(JSON_START):
        return None
    try:
        values: dict[str, Any] = json.loads(text)
        level = logging.getLevelNamesMapping()[values["level"]]
        fields = {name: str(values[name]) for name in FIELDS if name in values}
        return Line(level, str(values["logger"]), str(values["message"]), fields)
    except (ValueError, LookupError, TypeError):
        return None


class _JsonFormatter(logging.Formatter):
    def __init__(self, origin: tracing.Origin | None) -> None:
        super().__init__()
        self._origin = origin

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._origin:
            ids = {"trace_id": self._origin.trace, "span_id": tracing.current() or self._origin.parent}
            of = {key: self._origin.resource[key] for key in ("run", "stage") if key in self._origin.resource}
            line |= of | {key: value for key, value in ids.items() if value}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # in ASCII, so nothing in a message looks like a line end or cannot be encoded


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))
