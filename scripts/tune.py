"""Search for good settings from the command line: what `make tune` calls, in the stages' environment."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from include.experiment import Experiment
from include.logs import parse_line
from include.named_experiments import build, merge, names, parse_overrides, read
from include.stages import ExitCode, StageError, parse_result
from scripts.ending import exit_code

#: The logger of the lines that are shown: one for each trial that has reached a rung, and for each model compared.
SHOWN = "tasks.search"
#: What each stage works on, in their order.
_STAGES = {
    "fetch": "models and data",
    "validate": "the data",
    "search": "trials, until the budget is spent",
    "recommend": "the winner and the default with other seeds",
}


class _Failed(StageError):
    def __init__(self, stage: str, reason: str, code: int) -> None:
        super().__init__(f"{stage}: {reason}")
        self.exit_code = ExitCode(code) if code in list(ExitCode) else ExitCode.TRANSIENT


def main() -> int:
    """Run the stages of a search, show its trials, and print what is recommended. Return the exit code."""
    options = _options()
    experiment = experiment_of(options)
    folder = Path(os.environ.get("SPARK_BERT_HOME") or "work", "runs", f"tune-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    print(f"{'log':12}{log}", flush=True)
    for stage in _STAGES:
        result = _run(stage, experiment, folder, log)
    print(_summary(result, folder))
    return ExitCode.DONE


def experiment_of(options: argparse.Namespace) -> Experiment:
    """Return the experiment that the options describe. What is set last wins: file, budget, overrides."""
    values, changes = read(options.experiment), dict[str, Any]()
    if options.search:
        changes |= {f"search.{field}": value for field, value in read(options.search).items()}
    if options.data:
        changes["data.path"] = str(options.data.resolve())
    if options.budget:
        changes["search.minutes"] = options.budget
    return build(merge(values, changes | parse_overrides(options.set)), f"experiment {options.experiment}")


def _run(stage: str, experiment: Experiment, folder: Path, log: Path) -> dict[str, Any]:
    """Run a stage with its lines in the log, and return its result."""
    print(f"{stage:12}{_STAGES[stage]}", flush=True)
    command = [sys.executable, "-m", "tasks", stage, "--experiment", experiment.model_dump_json(exclude_defaults=True)]
    command += [] if stage == "fetch" else ["--run", str(folder)]
    reason = ""
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout
        last = ""
        for line in process.stdout:
            last = line.rstrip("\n") or last
            file.write(line)
            found = parse_line(line)
            if found and found.logger == SHOWN:
                print(f"{'':12}{found.message}", flush=True)
            if found and found.level >= logging.ERROR:
                reason = found.message
    if process.returncode:
        raise _Failed(stage, reason or last, process.returncode)
    return {} if stage == "fetch" else parse_result(last)


def _summary(result: dict[str, Any], folder: Path) -> str:
    file = Path(result["artifact"], result["files"]["experiment"])
    lines = [
        ("search", result["search"]),
        ("run", str(folder)),
        ("recommended", f"{result['recommended']}: {result['reason']}"),
        *(("open", str(Path(result["artifact"], name))) for name in result["files"].values()),
        ("use it", f"make run EXPERIMENT={file}"),
    ]
    return "\n".join(["", *(f"{label:12}{text}" for label, text in lines)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", default="movies", help=f"{', '.join(names())} or a YAML file")
    parser.add_argument("--data", type=Path, help="the folder of the data (data.path)")
    parser.add_argument("--budget", help="the time to search, such as 45s, 30m, or 2h (search.minutes)")
    parser.add_argument("--search", help="a YAML file with fields of the section search, such as space")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(exit_code(main))
