"""Lines of a stage's log, in both formats."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from include.logs import PROGRESS, VARIABLE, Line, parse_line

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
#: Logs as a stage does, and then fails as none should.
STAGE = """
import logging, warnings
from pathlib import Path
from include.logs import configure
from include.tracing import Origin, recording, span
origin = Origin.of_stage(Path("runs/first"), "train")
configure(origin=origin)
log = logging.getLogger("tasks.stages.pipeline.train")
log.info("step %d of %d, epoch 0.50", 3, 6)
with recording(Path("spans.jsonl"), origin, "train"), span("load") as load:
    log.warning('two\\nlines\\u2028and "quotes", é')
    print(load.id)
warnings.warn("an old function")
try:
    [][0]
except IndexError:
    log.exception("no rows")
raise ValueError("the loss is not finite")
"""


def run(folder: Path, **environment: str) -> tuple[list[str], str]:
    """The lines that the stage logs, and what it prints."""
    told = {"PYTHONPATH": str(Path(__file__).parents[2]), "TRACEPARENT": f"00-{TRACE}-{PARENT}-01", **environment}
    done = subprocess.run(
        [sys.executable, "-c", STAGE], cwd=folder, env=os.environ | told, capture_output=True, text=True
    )
    assert done.returncode == 1
    return done.stderr.splitlines(), done.stdout.strip()


def test_each_line_is_an_object_with_its_run_and_its_span(tmp_path: Path) -> None:
    lines, load = run(tmp_path, **{VARIABLE: "json"})
    progress, warning, warned, handled, uncaught = map(json.loads, lines)
    assert abs((datetime.fromisoformat(progress.pop("time")) - datetime.now(UTC)).total_seconds()) < 60
    of_run = {"run": "first", "stage": "train", "trace_id": TRACE}
    assert progress == {
        "level": "INFO", "logger": "tasks.stages.pipeline.train", "message": "step 3 of 6, epoch 0.50", **of_run,
        "span_id": PARENT,
    }  # fmt: skip
    assert warning["message"] == 'two\nlines\u2028and "quotes", é' and warning["span_id"] == load
    assert warned["logger"] == "py.warnings" and "an old function" in warned["message"]
    assert (handled["level"], handled["message"]) == ("ERROR", "no rows")
    assert handled["exception"].startswith("Traceback") and handled["exception"].endswith(
        "IndexError: list index out of range"
    )
    assert (uncaught["level"], uncaught["message"]) == ("CRITICAL", "ValueError: the loss is not finite")
    assert all(line.items() >= of_run.items() for line in (warning, warned, handled, uncaught))


def test_both_formats_are_read_alike(tmp_path: Path) -> None:
    text, json_lines = run(tmp_path)[0], run(tmp_path, **{VARIABLE: "json"})[0]
    read = parse_line(json_lines[0])
    assert read == Line(
        logging.INFO, "tasks.stages.pipeline.train", "step 3 of 6, epoch 0.50",
        {"run": "first", "stage": "train", "trace_id": TRACE, "span_id": PARENT},
    )  # fmt: skip
    assert read._replace(fields={}) == parse_line(text[0])
    assert PROGRESS.search(f"{read.logger}: {read.message}")
    assert PROGRESS.search("tasks.inference.parts: labeled 3 of 6 parts")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    lines, _ = run(tmp_path, **{VARIABLE: "xml"})
    assert lines[-1] == "include.stages.BadInput: SPARK_BERT_LOG_FORMAT='xml' is not valid: write text or json"


@pytest.mark.parametrize(
    "line",
    [
        "26/01/02 WARN Utils: Java", '{"rows": 3}', '{"time": "', '{"time": "x", "level": "LOUD", "logger": "a"}',
        '{"time": "x", "level": ["INFO"], "logger": "a", "message": "b"}', '{"time": "x", "seconds": 3}', "",
    ],
)  # fmt: skip
def test_other_lines_are_no_log_lines(line: str) -> None:
    assert parse_line(line) is None


def test_only_known_fields_are_read() -> None:
    values: dict[str, Any] = {"time": "x", "level": "INFO", "logger": "a", "message": 3, "event": "b", "run": None}
    assert parse_line(json.dumps(values)) == Line(logging.INFO, "a", "3", {"run": "None"})
