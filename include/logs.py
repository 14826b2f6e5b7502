"""The format of a stage's log, which the stage writes and Airflow's operators and `make run` read."""

from __future__ import annotations

import re

#: The format of the standard library's logging.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Matches a line of this format: its level, and its logger with the message. Lines of Java or of a traceback differ.
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+: .*)")
#: Matches a message on how far a stage is: the steps of a training, or the rows of a prediction, and their total.
PROGRESS = re.compile(r": (?:step|predicted) (\d+) of (\d+)\b")
