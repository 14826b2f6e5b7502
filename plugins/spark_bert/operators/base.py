"""What every runtime's operator shares: the command line, the XCom, and exit codes as retry policy."""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from include.experiment import Experiment
from include.stages import STAGES, BadInput, ExitCode, StageError, parse_result
from spark_bert.inputs import check_inputs
from spark_bert.links import LINKS
from spark_bert.params import from_form
from spark_bert.places import this_run
from spark_bert.retries import Interrupted

#: Seconds between SIGTERM and SIGKILL: time for a training to end its step and write a checkpoint (of 1.8 GB for
#: an encoder of 109 million weights), and for any stage to remove what it had half-written.
GRACE = 60


class Refused(AirflowFailException):
    """A stage has judged (a gate, a comparison, drift) and said no."""


class Ending(NamedTuple):
    """How a stage's process ended.

    Attributes:
        code: its exit code; 128 + n when signal n ended it.
        line: its last line on stdout: the result, where there is one.
        reason: its last error message, else the last line of its log.
    """

    code: int
    line: str
    reason: str


class StageOperator(BaseOperator):
    """Runs one stage and returns its result. A runtime says how, in `run_stage`.

    Args:
        stage: its name.
        experiment_of: what the run is, of the task's context. Raises BadInput when that is nothing that can be.
    """

    template_fields: Sequence[str] = ("command",)
    ui_color = "#e8f1fb"

    grace = GRACE

    experiment: Experiment  # it and the command are known once the run's params are: see render_template_fields

    def __init__(
        self, *, stage: str, experiment_of: Callable[[Context], Experiment] = from_form, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.stage = STAGES[stage].name
        self.experiment_of = experiment_of
        self.command: list[str] = []
        self.result: dict[str, Any] = {}
        self.operator_extra_links = LINKS.get(stage, ())

    @abstractmethod
    def run_stage(self, context: Context) -> Ending:
        """Run the command to its end, its log streaming into the task's."""

    def python(self) -> list[str]:
        """How the command starts: with nothing where an image's entry point is `python -m tasks`."""
        return []

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """Write the command line, so that it stands under Rendered Templates before the stage starts."""
        try:
            self.experiment = self.experiment_of(context)
            check_inputs(self.stage, self.experiment)
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        self.command = [
            *self.python(), self.stage,
            "--experiment", self.experiment.model_dump_json(exclude_defaults=True),
            "--run", str(this_run(context).folder),
        ]  # fmt: skip

    def execute(self, context: Context) -> dict[str, Any]:
        """The stage's result. Raises AirflowFailException where another try cannot help, else AirflowException."""
        self.result = {}
        ending = self.run_stage(context)
        if ending.code != ExitCode.DONE:
            self._keep_evidence(ending, context)
            raise failure(self.stage, ending)
        try:
            self.result = parse_result(ending.line)
        except StageError as error:
            raise AirflowException(str(error)) from error
        return self.result

    def _keep_evidence(self, ending: Ending, context: Context) -> None:
        """A stage that refuses with evidence (a verdict, Data Docs) prints a result too; one that crashed does not."""
        with suppress(StageError):
            self.result = parse_result(ending.line)
            context["ti"].xcom_push(key="return_value", value=self.result)


def generation(context: Context) -> str:
    """What is the same for all retries of a task, and another once the task has been cleared.

    A clear raises the number of tries that the task may have, unless the task runs; it counts in the Dag run, too,
    unless whoever clears leaves the run as it is.
    """
    return f"{context['ti'].max_tries}.{context['dag_run'].clear_number}"


def failure(stage: str, ending: Ending) -> AirflowException:
    """The exception that makes Airflow do what the exit code asks for: give up, or try again."""
    if ending.code == ExitCode.GATE_FAILED:
        return Refused(f"{stage}: {ending.reason}")
    if ending.code == ExitCode.BAD_INPUT:
        return AirflowFailException(f"{stage}: {ending.reason}")
    kind = Interrupted if ending.code == ExitCode.STOPPED else AirflowException
    return kind(f"{stage} {_ending(ending.code)}, another try may succeed: {ending.reason}")


def _ending(code: int) -> str:
    if code in list(ExitCode):
        return f"ended with exit code {code} ({ExitCode(code).name.lower()})"
    if code - 128 in list(signal.Signals):
        memory = ", which the kernel sends when memory runs out" if code - 128 == signal.SIGKILL else ""
        return f"was ended by {signal.Signals(code - 128).name}{memory}"
    return f"crashed with exit code {code}"
