"""The trial of a registered version: the service also lets it answer real requests, whose answers no client sees."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from include.artifacts import write_json
from include.runs import TRIAL
from spark_bert.deployment.places import this_run
from spark_bert.retrain.retraining import retraining_experiment
from spark_bert.retrain.service import SERVICE, ServiceTrigger, service

if TYPE_CHECKING:
    from httpx import AsyncClient


class Trial(BaseOperator):
    """Waits until the service has compared enough answers of the registered version with the champion's.

    The result has the figures, even if the time is over before there are enough. promote and the request for approval
    receive them; trial.json in the run's folder shows them to readers.
    """

    def execute(self, context: Context) -> None:
        """Let the triggerer wait, or skip the Airflow task if there is nothing to try out."""
        options, run = retraining_experiment(context).retraining, this_run(context)
        (run.folder / TRIAL).unlink(missing_ok=True)  # an earlier try may have tried out another version
        if not options.trial_texts:
            raise AirflowSkipException("no trial is asked for: retraining.trial_texts is 0")
        challenge = run.artifact("challenge").manifest.result
        if not challenge["champion"]:
            raise AirflowSkipException("there is no champion to compare with")
        if challenge["outcome"] == "undecided" and not options.approval:
            raise AirflowSkipException("the comparison is undecided and retraining.approval is off: the champion stays")
        if not service():
            raise AirflowFailException(
                f"retraining.trial_texts asks for a trial, but the deployment names no service: set {SERVICE} in "
                "Airflow's environment, or write retraining.trial_texts: 0"
            )
        entry, texts, minutes = run.artifact("register").manifest.result, options.trial_texts, options.trial_minutes
        trigger = TrialTrigger(service(), entry["model"], challenge["champion"], entry["version"], texts, minutes)
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Write the figures to trial.json and return them."""
        self.log.info("version %(version)s: %(same)d of %(texts)d texts get the champion's answer", event)
        write_json(this_run(context).folder / TRIAL, event)
        return event


class TrialTrigger(ServiceTrigger):
    """Fires when the service has compared `texts` texts of the model, or when the time is over.

    Each process of the service counts from its own start, so the figures are those of the process that has compared the
    most texts: how many `texts`, how many of them got the `same` answer, how many were `skipped` because too many
    waited, and the mean `milliseconds` per request; None if there was none.
    """

    def __init__(
        self, service: str, model: str, champion: str, version: str, texts: int, minutes: float, interval: float = 10
    ) -> None:
        super().__init__(service, minutes, interval)
        self.model, self.champion, self.version, self.texts = model, champion, version, texts
        self.figures = self._figures({})

    async def ask(self, client: AsyncClient, is_over: bool) -> dict[str, Any] | None:
        """Read the service's metrics."""
        from httpx import HTTPError, InvalidURL

        try:
            response = await client.get(f"{self.service}/metrics")
            values = _values(response.raise_for_status().text, self.model)
            self.figures = max(self._figures(values), self.figures, key=itemgetter("texts"))
        except (HTTPError, InvalidURL, ValueError) as error:
            self.log.warning("%s has no figures of the trial: %r", self.service, error)
        self.log.info("%d of %d texts are compared", self.figures["texts"], self.texts)
        return self.figures if is_over or self.figures["texts"] >= self.texts else None

    def _figures(self, values: dict[tuple[str, str, str], float]) -> dict[str, Any]:

        def count(outcome: str) -> int:
            return int(values.get(("spark_bert_shadow_answers_total", self.version, outcome), 0))

        def milliseconds(version: str) -> float | None:
            total = values.get(("spark_bert_model_seconds_sum", version, ""), 0)
            requests = values.get(("spark_bert_model_seconds_count", version, ""))
            return round(1000 * total / requests, 2) if requests else None

        return {
            "service": self.service,
            "champion": self.champion,
            "version": self.version,
            "texts": count("same") + count("other"),
            "same": count("same"),
            "skipped": count("skipped"),
            "milliseconds": {"champion": milliseconds(self.champion), "challenger": milliseconds(self.version)},
        }


def _values(metrics: str, model: str) -> dict[tuple[str, str, str], float]:
    """Return the value of each sample by its name, version and outcome. Raise ValueError if another model answers."""
    from prometheus_client.parser import text_string_to_metric_families  # only the triggerer needs it

    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    used = ", ".join(sample.labels["name"] for sample in samples if sample.name == "spark_bert_model")
    if used != model:
        raise ValueError(f"it answers with {used or 'no model'}, not with {model}")
    return {
        (sample.name, sample.labels.get("version", ""), sample.labels.get("outcome", "")): sample.value
        for sample in samples
    }
