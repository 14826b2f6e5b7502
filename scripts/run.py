"""Run the Dag `finetune` once and show its progress and results: what `make run` calls, in Airflow's environment."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import webbrowser
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from airflow.sdk.configuration import conf as airflow_conf

from include.experiment import Experiment
from include.glue import AUTO
from include.named_experiments import load, names, parse_overrides, read, require_threshold
from include.runs import Run
from include.stages import PIPELINE, BadInput, ExitCode, Transient, flatten
from include.tables import fixed_part, is_delta
from scripts.ending import exit_code
from spark_bert.dag.params import NOTHING
from spark_bert.deployment.places import REPOSITORY, run_folder, tasks_python
from spark_bert.operators.base import StageOperator
from spark_bert.operators.runtimes import runtime
from spark_bert.operators.stage_log import parse_log_tail
from spark_bert.terminal.progress import Display, Event, Listener, display
from spark_bert.terminal.summary import files, summary

#: The options that name columns of the user's own files.
_ROLES = {"text": "the text", "text2": "the second text of a pair", "label": "the label or the score"}
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Fetch, run the Dag and print the summary. The exit code is 0, or that of the stage that failed."""
    options = _options()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # what the terminal cannot show
    for ending in _ENDINGS:
        signal.signal(ending, _interrupt)
    experiment = experiment_of(options)
    log = _new_log()
    _fetch(experiment, log)
    set_up_ranks(experiment, log)
    return _conclude(_run_dag(conf_of(options, experiment), log), log, options.open)


def _new_log() -> Path:
    """Make this run's log among Airflow's, where the Dag `retention` removes old ones."""
    run = f"run_id=make-run-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    folder = Path(airflow_conf.get("logging", "base_log_folder"), "dag_id=finetune", run)
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    log.touch()
    print(f"{'log':12}{log}", flush=True)
    return log


def _conclude(ended: Event, log: Path, open_report: bool) -> int:
    run = Run(ended.folder)
    print(f"{summary(run)}\n{'log':12}{log}")
    if open_report and "Report" in files(run):
        webbrowser.open(files(run)["Report"].as_uri())
    stages = run.record()["stages"]
    codes = [stages[name]["exit_code"] for name in PIPELINE if name in stages]  # tracking decides nothing
    if not any(codes) and not ended.succeeded:
        print(f"{'failed':12}{ended.reason}")
    return max(codes, default=0) or int(not ended.succeeded)


def set_up_ranks(experiment: Experiment, log: Path) -> None:
    """Install Horovod if this training needs it, but only in the environment that this checkout makes."""
    ours = runtime() == "process" and tasks_python().is_relative_to(REPOSITORY / ".venv")
    if not ours or (REPOSITORY / ".venv/tasks/.horovod").exists() or not experiment.uses_horovod(_ranks(experiment)):
        return
    print(f"{'horovod':12}is compiled for several ranks, which takes two to three minutes, once", flush=True)
    run_logged([str(REPOSITORY / "scripts/setup.sh")], log)


def _ranks(experiment: Experiment) -> int:
    """Return the number of ranks that the training asks for. On CPUs, `auto` does without Horovod if there is none."""
    if experiment.training.ranks != "auto":
        return experiment.training.ranks
    if len(list(Path("/dev").glob("nvidia[0-9]*"))) < 2:
        return 1
    command = [str(tasks_python()), "-c", "import torch; print(torch.cuda.device_count())"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _fetch(experiment: Experiment, log: Path) -> None:
    inline = experiment.model_dump_json(exclude_defaults=True)
    command = [str(tasks_python()), "-m", "tasks", "fetch", "--experiment", inline]
    print(f"{'fetch':12}models and data", flush=True)
    run_logged(command, log)


def run_logged(command: list[str], log: Path) -> None:
    """Run a command with its output in the log. Raise StageError with its exit code if it fails."""
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=file, stderr=file, start_new_session=True)
    try:
        code = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)  # a compiler runs in processes of its own
        process.wait()
        raise
    if code:
        raise (BadInput if code == ExitCode.BAD_INPUT else Transient)(_reason(log))


def _reason(log: Path) -> str:
    return parse_log_tail(log.read_text(encoding="utf-8", errors="replace").splitlines())[1]


def _run_dag(conf: dict[str, Any], log: Path) -> Event:
    """Run the Dag in a process of its own, because Airflow would retry an interrupted task. Return its last event."""
    fork = multiprocessing.get_context("fork")  # what is imported need not be imported again; there are no threads yet
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_test_dag, args=(conf, log, sender))
    child.start()
    assert child.pid is not None
    sender.close()
    try:
        with log.open(encoding="utf-8", errors="replace") as lines, display() as shown:
            return _follow(receiver, lines, shown)
    except EOFError:
        raise Transient(f"Airflow ended before the run did: {_reason(log)}") from None
    except BaseException:
        print("the stage is being stopped, which may take a minute", file=sys.stderr)
        os.kill(child.pid, signal.SIGINT)
        child.join()
        raise
    finally:
        child.kill()


def _follow(receiver: Connection, log: TextIO, shown: Display) -> Event:
    """Show what happens, and return the last event of the Dag run, with the reason of the first failure."""
    line = reason = ""
    while True:
        while piece := log.readline():
            line += piece
            if line.endswith("\n"):
                shown.logged(line)
                line = ""
        if not receiver.poll(0.2):
            continue
        event: Event = receiver.recv()
        if not event.stage:
            return event._replace(reason=reason)
        reason = "" if event.succeeded else reason or event.reason
        shown.show(event)


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    for ending in _ENDINGS:  # another one must not cut short what the first has begun
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


def _test_dag(conf: dict[str, Any], log: Path, sender: Connection) -> None:
    os.setsid()  # out of reach of the terminal's Ctrl-C
    for ending in _ENDINGS:
        signal.signal(ending, signal.SIG_DFL)
    signal.signal(signal.SIGINT, _stop)
    gc.set_threshold(10_000, 100, 1000)  # Airflow makes many objects that are no garbage: see tasks/__main__.py
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    from airflow.sdk.listener import get_listener_manager

    from dags.finetune import dag

    get_listener_manager().add_listener(Listener(sender.send))  # type: ignore[no-untyped-call]
    dag_run = dag.test(run_conf=conf)
    sender.send(Event(run_folder(dag_run.dag_id, dag_run.run_id), succeeded=dag_run.state == "success"))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


def _stop(signum: int, frame: FrameType | None) -> None:
    """Stop the running stage, if any, as Airflow stops that of a killed task. Then end without another try."""
    from airflow.sdk import BaseOperator, get_current_context

    os.environ["SPARK_BERT_ON_SHUTDOWN"] = "stop"  # a person has interrupted, so nothing is to go on
    with suppress(RuntimeError):  # between two tasks there is no context
        task = get_current_context()["task"]
        assert isinstance(task, BaseOperator)
        task.on_kill()
        if isinstance(task, StageOperator):  # its log is read when this function has returned
            threading.Thread(target=_end_after, args=(task,), daemon=True).start()
            return
    os._exit(ExitCode.STOPPED)


def _end_after(task: StageOperator) -> None:
    task.wait()
    os._exit(ExitCode.STOPPED)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", default="movies", help=f"{', '.join(names())} or a YAML file")
    parser.add_argument(
        "--data", type=Path, help="the folder of the data, or the file or pattern with all rows (data.path)"
    )
    for role, what in _ROLES.items():
        parser.add_argument(f"--{role}", help=f"the column with {what}, in files of your own (data.columns)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    parser.add_argument("--open", action="store_true", help="open the report in a browser")
    return parser.parse_args()


def _overrides(options: argparse.Namespace) -> list[str]:
    given: dict[str, Any] = {"data.path": str(options.data.resolve())} if options.data else {}
    columns = {"sentence": options.text, "sentence2": options.text2, "label": options.label}
    if named := {role: name for role, name in columns.items() if name}:
        given["data.columns"] = read(options.experiment).get("data", {}).get("columns", {}) | named
    if named or (options.data and _is_table(options.data)):
        given["data.source"] = "delta" if options.data and is_delta(options.data) else "files"
        if options.experiment == names()[0]:
            given["data.task"] = AUTO
    return [*(f"{key}={json.dumps(value)}" for key, value in given.items()), *options.set]


def _is_table(path: Path) -> bool:
    return path.is_file() or is_delta(path) or fixed_part(path) != path


def experiment_of(options: argparse.Namespace) -> Experiment:
    """Return the experiment that the options describe."""
    return require_threshold(load(options.experiment, _overrides(options)))


def conf_of(options: argparse.Namespace, experiment: Experiment) -> dict[str, Any]:
    """Return what the trigger form would send."""
    # It starts from a named experiment, whose changes are reset for a user's own file, which starts from the defaults.
    name, keys = options.experiment, set(parse_overrides(_overrides(options)))
    if name not in names():
        keys |= {*flatten(read(names()[0])), *flatten(read(name))}
        name = names()[0]
    values = experiment.part(tuple(keys))
    return {"experiment": name, **{key: NOTHING if value == "" else value for key, value in values.items()}}


if __name__ == "__main__":
    sys.exit(exit_code(main))
