"""Forwarding of a stage's log to the log of its Airflow task, and reading of results and errors from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from include.logs import JSON_START, parse_line

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

_LONGEST = 8192  # characters per log record; a longer line is split
_LONGEST_JSON = 1 << 20  # characters of a line in JSON, which cannot be read in parts


def forward_log(stream: IO[str], log: Logger) -> str:
    """Log every line of a stage's log with its own level, and return the last error message, or else the last line."""
    error = line = ""
    while text := stream.readline(_LONGEST):
        if text.startswith(JSON_START) and not text.endswith("\n"):
            text += stream.readline(_LONGEST_JSON)
        entry = parse_line(text)
        if entry is None:  # in another format, such as Java's or a traceback's
            line = text.rstrip() or line
            log.log(logging.INFO, "%s", text.rstrip("\n"))
            continue
        line = entry.message
        log.log(entry.level, "%s", f"{entry.logger}: {line}", **entry.fields)
        if entry.level >= logging.ERROR:
            error = line
    return error or line


def parse_log_tail(lines: Sequence[str]) -> tuple[str, str]:
    """Return the line with the result in a log that merges stdout and stderr, and its last error message or line."""
    entries = [(line, parse_line(line)) for line in lines if line.strip()]
    results = [line for line, entry in entries if line.startswith("{") and not entry]
    others = [entry.message if entry else line for line, entry in entries if line not in results]
    errors = [entry.message for _, entry in entries if entry and entry.level >= logging.ERROR]
    return (results or [""])[-1], (errors or others or [""])[-1]
