"""The runtime `process`: runs a stage as a subprocess of the worker, in the Python environment of the stages."""

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

from include.experiment import Experiment
from include.secrets import STORE_PREFIXES, VARIABLE, VARIABLES
from spark_bert.deployment.containers import needed_secrets
from spark_bert.deployment.inputs import stores, uses_mlflow
from spark_bert.deployment.places import REPOSITORY, home, tasks_python
from spark_bert.operators.base import Outcome, StageOperator
from spark_bert.operators.stage_log import forward_log

_GUARD = Path(__file__).with_name("guard.py")
#: The variables that a stage gets from the worker, apart from secrets that are not its own. None is Airflow's secret.
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_CACHE_HOME|JAVA_HOME|LD_LIBRARY_PATH|SSL_CERT_(FILE|DIR)"
    r"|(REQUESTS|CURL)_CA_BUNDLE|(?i:https?_proxy|no_proxy)|KUBECONFIG"
    r"|(SPARK|HADOOP|YARN|AWS|AZURE|GOOGLE|HF|HOROVOD|CUDA|NVIDIA|OMP|GOMP|MKL|MLFLOW)_\w+"
)


class ProcessStageOperator(StageOperator):
    """Runs a stage in subprocesses, none of which outlives the try of the Airflow task."""

    _process: subprocess.Popen[str] | None = None

    def python(self) -> list[str]:
        """Return the interpreter and the module that run a stage."""
        return [str(tasks_python()), "-m", "tasks"]

    def run_stage(self, context: Context) -> Outcome:
        """Run the command under guard.py, which stops all its processes if this worker ends."""
        if not os.access(self.command[0], os.X_OK):
            raise AirflowFailException(
                f"there is no Python environment of the stages at {self.command[0]}: create it with `make setup`, "
                "or set SPARK_BERT_CHECKOUT to a checkout that has one"
            )
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", str(_GUARD), str(self.grace), *self.command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="backslashreplace",
            cwd=REPOSITORY, env=environment(self.stage, self.experiment) | self.variables, start_new_session=True,
        )  # fmt: skip
        assert process.stdin and process.stdout and process.stderr
        with ThreadPoolExecutor(1) as pool:
            last_line = pool.submit(deque[str], process.stdout, 1)
            try:
                reason = forward_log(process.stderr, self.log)
            finally:
                process.stdin.close()  # makes the guard stop the stage after an interrupt or a timeout
                process.wait()
        code = process.returncode
        return Outcome(code if code >= 0 else 128 - code, "".join(last_line.result()).rstrip("\n"), reason)

    def on_kill(self) -> None:
        """Ask the guard to stop all processes of the stage. It does so even if this worker is killed meanwhile."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait until no process of the stage is left. Its log has to be read meanwhile, as `run_stage` does."""
        if self._process is not None:
            self._process.wait()


def environment(stage: str, experiment: Experiment) -> dict[str, str]:
    """Return the worker's variables that the stage may have, with the secrets that its container would get."""
    needed = needed_secrets(stage, experiment)
    withheld = {variable for file, variables in VARIABLES.items() if file not in needed for variable in variables}
    if not needed:
        withheld.add(VARIABLE)
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name) and name not in withheld}
    if not uses_mlflow(stage, experiment):
        passed = {name: value for name, value in passed.items() if not name.startswith("MLFLOW_")}
    if not stores(stage, experiment):
        passed = {name: value for name, value in passed.items() if not name.startswith(STORE_PREFIXES)}
    return {**passed, "SPARK_BERT_HOME": str(home()), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
