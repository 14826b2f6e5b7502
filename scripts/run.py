"""Run the Dag `finetune` once and say what came of it: what `make run` calls, in Airflow's environment."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from include.named import load, names, parse_override, read
from include.runs import Run
from include.stages import PIPELINE, ExitCode, StageError
from spark_bert.summary import summary

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run, then print the summary; the exit code is 0, or that of the stage that failed."""
    options = _options()
    try:
        conf = _conf(options)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    try:
        run_folder, succeeded = _run_dag(conf)
    except KeyboardInterrupt:
        print("stopped: run the same command again to go on", file=sys.stderr)
        return ExitCode.STOPPED
    run = Run(run_folder)
    print(summary(run))
    stages = run.record()["stages"]
    codes = [stages[name]["exit_code"] for name in PIPELINE if name in stages]  # tracking decides nothing
    return max(codes, default=0) or int(not succeeded)


def _run_dag(conf: dict[str, Any]) -> tuple[Path, bool]:
    """Run the Dag in a process of its own: the run's folder, and whether it succeeded.

    Airflow takes an interrupt for a failed try, to be tried again. So the child has its own way to stop, see _stop.
    """
    for ending in _ENDINGS:
        signal.signal(ending, _interrupt)
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_test_dag, args=(conf, sender))
    child.start()
    assert child.pid is not None
    sender.close()
    try:
        folder, succeeded = receiver.recv()
    except EOFError:
        raise SystemExit("Airflow ended without running the Dag: its last lines are above") from None
    except KeyboardInterrupt:
        print("interrupted: the stage is being stopped, which may take a minute", file=sys.stderr)
        os.kill(child.pid, signal.SIGINT)
        child.join()
        raise
    finally:
        child.kill()
    return Path(folder), succeeded


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    for ending in _ENDINGS:  # another one must not cut short what the first has begun
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _test_dag(conf: dict[str, Any], sender: Connection) -> None:
    os.setsid()  # out of reach of the terminal's Ctrl-C
    signal.signal(signal.SIGINT, _stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from dags.finetune import dag
    from spark_bert.places import run_folder

    dag_run = dag.test(run_conf=conf)
    sender.send((str(run_folder(dag_run.dag_id, dag_run.run_id)), dag_run.state == "success"))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


def _stop(signum: int, frame: FrameType | None) -> NoReturn:
    """Stop the stage that runs, if one does, as Airflow would on a killed task; then end without another try."""
    from airflow.sdk import BaseOperator, get_current_context

    os.environ["SPARK_BERT_ON_SHUTDOWN"] = "stop"  # a person has interrupted, so nothing is to go on
    with suppress(RuntimeError):  # between two tasks there is no context
        task = get_current_context()["task"]
        assert isinstance(task, BaseOperator)
        task.on_kill()
    os._exit(ExitCode.STOPPED)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", default="movies", help=f"{', '.join(names())} or a YAML file")
    parser.add_argument("--data", type=Path, help="the folder of the experiment's data (data.path)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    return parser.parse_args()


def _conf(options: argparse.Namespace) -> dict[str, Any]:
    """What the trigger form would send. Raises BadInput before anything has started."""
    overrides = dict(parse_override(text) for text in options.set)
    if options.data:
        overrides["data.path"] = str(options.data.resolve())
    load(options.experiment, [f"{key}={json.dumps(value)}" for key, value in overrides.items()])
    if options.experiment in names():
        return {"experiment": options.experiment, **overrides}
    sections = read(options.experiment)
    flat = {f"{section}.{field}": value for section, fields in sections.items() for field, value in fields.items()}
    return {"experiment": names()[0], **flat, **overrides}


if __name__ == "__main__":
    sys.exit(main())
