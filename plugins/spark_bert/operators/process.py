"""The process runtime: a stage as a subprocess of the worker, in the task environment. Needs no Docker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from spark_bert.operators.base import Ending, StageOperator
from spark_bert.operators.stage_log import pass_on
from spark_bert.places import REPOSITORY, home, tasks_python

_GUARD = Path(__file__).with_name("guard.py")
#: What a stage gets of the worker's environment: all it needs, and none of Airflow's secrets.
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_CACHE_HOME|JAVA_HOME|LD_LIBRARY_PATH|SSL_CERT_(FILE|DIR)"
    r"|(REQUESTS|CURL)_CA_BUNDLE|(?i:https?_proxy|no_proxy)|(SPARK|HF|HOROVOD|CUDA|NVIDIA|OMP|GOMP|MKL|MLFLOW)_\w+"
)


class ProcessStageOperator(StageOperator):
    """Runs a stage as a process tree of which nothing is left when the task ends, however it ends."""

    _process: subprocess.Popen[str] | None = None

    def python(self) -> list[str]:
        """The task environment's interpreter, on the stages' command line."""
        return [str(tasks_python()), "-m", "tasks"]

    def run_stage(self, context: Context) -> Ending:
        """Run the command under the guard (guard.py), which ends it all when this worker is gone."""
        if not os.access(self.command[0], os.X_OK):
            raise AirflowFailException(
                f"there is no task environment at {self.command[0]}: let `make setup` build it, "
                "or set SPARK_BERT_TASKS_PYTHON to the interpreter of one"
            )
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_GUARD), str(self.grace), *self.command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="backslashreplace",
            cwd=REPOSITORY, env=environment(), start_new_session=True,
        )  # fmt: skip
        return self._follow(self._process)

    def on_kill(self) -> None:
        """Stop the stage; the guard sees to every process of it, even when this worker is killed meanwhile."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def _follow(self, process: subprocess.Popen[str]) -> Ending:
        assert process.stdin and process.stdout and process.stderr
        with ThreadPoolExecutor(1) as pool:
            last_line = pool.submit(deque[str], process.stdout, 1)
            try:
                reason = pass_on(process.stderr, self.log)
            finally:
                process.stdin.close()  # after an interrupt or a timeout, this is what stops the stage
                process.wait()
        code = process.returncode
        return Ending(code if code >= 0 else 128 - code, "".join(last_line.result()).rstrip("\n"), reason)


def environment() -> dict[str, str]:
    """The stage's environment: the part of the worker's that it needs, and where this checkout's code is."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    return {**passed, "SPARK_BERT_HOME": str(home()), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
