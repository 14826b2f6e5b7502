"""Forwarding of a stage's log to the log of its Airflow task, and reading of results and errors from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from include.logs import LOG_LINE

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

#: The maximum number of characters per log record. A longer line is split.
_LONGEST = 8192


def forward_log(stream: IO[str], log: Logger) -> str:
    """Log every line of a stage's log with its own level until the stream ends.

    Args:
        stream: the log of the stage.
        log: the logger of the Airflow task.

    Returns:
        The last error message, or the last line if there is no error.
    """
    error = line = ""
    while text := stream.readline(_LONGEST):
        line = text.rstrip() or line
        match = LOG_LINE.match(text)
        # Lines in another format, such as Java's or a traceback's, get the level INFO.
        level = logging.getLevelNamesMapping()[match[1]] if match else logging.INFO
        log.log(level, "%s", match[2] if match else text.rstrip("\n"))
        if match and level >= logging.ERROR:
            error = match[2].partition(": ")[2]
    return error or line


def parse_log_tail(lines: Sequence[str]) -> tuple[str, str]:
    """Find the result and the reason in the lines of a log that merges stdout and stderr.

    Returns:
        The line with the result, or "" if there is none; and the last error message, or the last other line.
    """
    results = [line for line in lines if line.startswith("{")]
    others = [line for line in lines if line.strip() and line not in results]
    matches = [match for match in map(LOG_LINE.match, others) if match and match[1] in ("ERROR", "CRITICAL")]
    errors = [match[2].partition(": ")[2] for match in matches]
    return (results or [""])[-1], (errors or others or [""])[-1]
