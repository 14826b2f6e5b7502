"""A stage's log, passed on into its task's while the stage runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

#: Characters passed on at once; a longer line comes in pieces.
_LONGEST = 8192
#: The log format of tasks/__main__.py. Lines of another form (Java, a traceback) pass as INFO.
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+: .*)")


def pass_on(stream: IO[str], log: Logger) -> str:
    """Log what the stage logs, line by line with its levels; its last error message, or else its last line."""
    error = line = ""
    while text := stream.readline(_LONGEST):
        line = text.rstrip() or line
        match = _LOG_LINE.match(text)
        level = logging.getLevelNamesMapping()[match[1]] if match else logging.INFO
        log.log(level, "%s", match[2] if match else text.rstrip("\n"))
        if match and level >= logging.ERROR:
            error = match[2].partition(": ")[2]
    return error or line


def last_words(lines: Sequence[str]) -> tuple[str, str]:
    """The result line and the last error, else the last line, of a log that is stdout and stderr in one."""
    results = [line for line in lines if line.startswith("{")]
    said = [line for line in lines if line.strip() and line not in results]
    matches = [match for match in map(_LOG_LINE.match, said) if match and match[1] in ("ERROR", "CRITICAL")]
    errors = [match[2].partition(": ")[2] for match in matches]
    return (results or [""])[-1], (errors or said or [""])[-1]
