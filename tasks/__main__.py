"""The one command line of all stages: `python -m tasks <stage> --experiment NAME --run FOLDER`.

Logs go to stderr; the last line on stdout is the stage's result as JSON. Exit codes: include/stages.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from include.experiment import Experiment
from include.folders import check_home
from include.logs import configure
from include.named_experiments import load, names
from include.runs import Run
from include.stages import STAGES, BadInput, ExitCode, StageError, result_line
from include.tracing import Origin
from tasks.refusal import explain

log = logging.getLogger("tasks")
#: How often a waiting OpenMP thread looks for the others before it sleeps. libgomp's own 300,000 times take 3 ms of a
#: core that another process could use (benchmarks/contention.py).
SPINS = "1000"


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says, and return the exit code."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        configure(origin=Origin.of_stage(options.run, options.stage))
        overrides = [*options.set, *(["submission.all_tasks=true"] if options.all_tasks else [])]
        given = options.experiment
        if given is None:
            record = Run(options.run).record() if options.run else {}
            given = json.dumps(record["experiment"]) if "experiment" in record else names()[0]
        experiment = load(given, overrides)
        if options.stage == "fetch":
            from tasks.fetch import fetch

            fetch(experiment)
            return ExitCode.DONE
        return _run(options.stage, experiment, options.run)
    except (StageError, OSError) as error:
        refusal = explain(error, options.run)
        log.error("%s", refusal)
        return refusal.exit_code
    except KeyboardInterrupt:
        log.error("interrupted: nothing half-written was kept")
        return ExitCode.STOPPED


def _run(stage: str, experiment: Experiment, folder: Path | None) -> int:
    from tasks.runner import run_stage  # after the arguments are known to be good

    if folder is None:
        raise BadInput("--run FOLDER is missing: the folder where this run keeps its record, such as work/runs/first")
    check_home(folder.absolute().parent.parent)
    if not (experiment.runtime.download or STAGES[stage].uploads):
        os.environ["HF_HUB_OFFLINE"] = "1"
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():  # a person may know better
        os.environ["GOMP_SPINCOUNT"] = SPINS  # read when torch is loaded; ranks inherit it
    manifest = run_stage(stage, experiment, Run(folder, experiment.runtime.full_check)).manifest
    if manifest.message:
        log.error("%s", manifest.message)
    print(result_line(manifest.result), flush=True)
    return manifest.exit_code


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(ExitCode.STOPPED)  # unwinds the stage, which removes what it had half-written


def _parser() -> argparse.ArgumentParser:
    commands = "\n".join(f"  {stage.name:12}{stage.does}" for stage in STAGES.values())
    parser = argparse.ArgumentParser(
        prog="python -m tasks",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"stages, in order:\n{commands}\n  {'fetch':12}fetch and check the models and data it needs",
    )
    parser.add_argument("stage", choices=[*STAGES, "fetch"], metavar="stage")
    parser.add_argument(
        "--experiment", help=f"{', '.join(names())}, a YAML file or JSON; default: the run's own, overrides included"
    )
    parser.add_argument("--run", type=Path, help="the run's folder, such as work/runs/first")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="override")
    parser.add_argument("--all-tasks", action="store_true", help="export all eleven GLUE files")
    return parser


if __name__ == "__main__":
    # Imports make a million objects, none of which is garbage. To look at all of them again and again, and once more at
    # the end, takes a third of the time of a short stage. Only the young ones are looked at as often as by default.
    gc.set_threshold(10_000, 100, 1000)
    code = main()
    gc.freeze()
    sys.exit(code)
