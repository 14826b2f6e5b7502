"""The base of the operators of all runtimes: command line, XCom result, and exceptions for exit codes."""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from airflow.sdk import BaseOperator, Context
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from include.experiment import Experiment
from include.runs import DAG_ID, MAP_INDEX, RUN_ID, Run
from include.stages import STAGES, BadInput, ExitCode, StageError, parse_result
from spark_bert.deployment.inputs import check_inputs
from spark_bert.deployment.places import run_name, this_run, without_index
from spark_bert.operators.failures import Interrupted, Refused
from spark_bert.operators.tracing import StageSpans, environment
from spark_bert.web.links import LINKS

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

#: Seconds between SIGTERM and SIGKILL. In this time, a training completes its step and writes a checkpoint (1.8 GB for
#: an encoder with 109 million weights), and any stage removes its unfinished files.
GRACE = 60


class Outcome(NamedTuple):
    """How the process of a stage ended."""

    code: int  # 128 + n if signal n ended the process
    line: str  # the last line on stdout, which is the result if there is one
    reason: str  # the last error message in the log, or the last line of the log


class StageOperator(BaseOperator):
    """Runs a stage and returns its result. Each runtime implements `run_stage`.

    Args:
        experiment_of: returns the experiment of the run, or raises BadInput if the run's params make no valid one.
        told: returns environment variables for the stage besides those of its run.
    """

    template_fields: Sequence[str] = ("command",)
    ui_color = "#e8f1fb"

    grace = GRACE

    experiment: Experiment  # set in render_template_fields, where the run's params are known
    refusal: BadInput | None = None  # set there instead, if they make no valid experiment

    def __init__(
        self,
        *,
        stage: str,
        experiment_of: Callable[[Context], Experiment],
        told: Callable[[Context], dict[str, str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Airflow has copied the Dag's params, which a run has anyway. It would store them once more for each task, and
        # check them several times whenever it parses the Dag, which takes seconds.
        self.params = ParamsDict.filter_params_by_source(ParamsDict(self.params), source="task")
        self.stage = STAGES[stage].name
        self.experiment_of, self.told = experiment_of, told
        self.command: list[str] = []
        self.variables: dict[str, str] = {}  # by which the stage knows its Dag run, its try and its trace
        self.result: dict[str, Any] = {}
        self.operator_extra_links = LINKS.get(stage, ())

    @abstractmethod
    def run_stage(self, context: Context) -> Outcome:
        """Run the command, stream its log to the log of the Airflow task, and return how it ended."""

    def wait(self) -> None:
        """Wait for the end of what on_kill has only asked to stop."""

    def python(self) -> list[str]:
        """Return the beginning of the command. It is empty where the image's entry point is `python -m tasks`."""
        return []

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """Set the command and the variables. `execute` refuses the experiment: Airflow folds the log up to there."""
        self.variables = {DAG_ID: context["dag_run"].dag_id, RUN_ID: context["dag_run"].run_id}
        if context.get("ti") and (index := without_index(run_name(context["ti"]))[1]) >= 0:
            self.variables[MAP_INDEX] = str(index)
        try:
            self.experiment = self.experiment_of(context)
            check_inputs(self.stage, self.experiment)
        except BadInput as error:
            self.refusal = error
            return
        self.command = [
            *self.python(), self.stage,
            "--experiment", self.experiment.model_dump_json(exclude_defaults=True),
            "--run", str(this_run(context).folder),
        ]  # fmt: skip

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stage and return its result. A failure after which another try cannot succeed is final."""
        self.result = {}
        if self.refusal:
            self._refuse(self.refusal, this_run(context))
        self.variables |= environment(context) | (self.told(context) if self.told else {})
        spans = StageSpans(context, self.stage)
        try:
            outcome = self.run_stage(context)
        except BadInput as error:  # the deployment or the experiment makes the container impossible
            self._refuse(error, this_run(context), self.experiment)
        finally:
            spans.export()
        if outcome.code != ExitCode.DONE:
            with suppress(StageError):  # a stage that refuses prints a result that names its verdict or Data Docs
                self.result = parse_result(outcome.line)
                context["ti"].xcom_push(key="return_value", value=self.result)
            raise failure(self.stage, outcome)
        try:
            self.result = parse_result(outcome.line)
        except StageError as error:
            raise AirflowException(str(error)) from error
        return self.result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what the stage has read and made, also if it has failed; None if its experiment was not valid."""
        if not self.command:
            return None
        from spark_bert.operators.lineage import lineage  # only Airflow's OpenLineage provider comes here

        return lineage(self.stage, self.experiment, Run(Path(self.command[-1])), self.result)

    def _refuse(self, error: BadInput, run: Run, experiment: Experiment | None = None) -> NoReturn:
        """Record why the stage cannot start, and fail; skip if another stage of the run has said the same."""
        with suppress(BadInput, OSError):  # report the refusal, not the failure to record it
            for name, entry in run.record()["stages"].items():
                if name != self.stage and entry.get("message") == str(error):
                    raise AirflowSkipException(f"{name} was refused already: {error}")
            run.fail(self.stage, error, experiment, told=self.variables)
        raise AirflowFailException(str(error))


def failure(stage: str, outcome: Outcome) -> AirflowException:
    """Return the exception that makes Airflow fail or retry the Airflow task."""
    if outcome.code == ExitCode.GATE_FAILED:
        return Refused(f"{stage}: {outcome.reason}")
    if outcome.code == ExitCode.BAD_INPUT:
        return AirflowFailException(f"{stage}: {outcome.reason}")
    kind = Interrupted if outcome.code == ExitCode.STOPPED else AirflowException
    return kind(f"{stage} {_describe(outcome.code)}, another try may succeed: {outcome.reason}")


def _describe(code: int) -> str:
    if code in list(ExitCode):
        return f"ended with exit code {code} ({ExitCode(code).name.lower()})"
    if code - 128 in list(signal.Signals):
        memory = ", which the kernel sends when memory runs out" if code - 128 == signal.SIGKILL else ""
        return f"was ended by {signal.Signals(code - 128).name}{memory}"
    return f"crashed with exit code {code}"
