"""MLflow itself: where it is, and bringing its run up to an account."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from include.stages import Transient
from tasks.tracking.account import Account
from tasks.tracking.login import log_in

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

#: The tags by which a run is found again, and by which it is known to be complete.
IDENTITY, STATE = "spark-bert.identity", "spark-bert.state"
#: The tag of a run that a version in the registry was made from: the registered model's name.
REGISTERED = "spark-bert.registered"
#: What MLflow takes in one call, and how long a value may be.
_ENTITIES, _METRICS, _PARAM, _TAG = 100, 1000, 6000, 8000
#: Tracking is tried again later: a server that does not answer is given up in seconds, not minutes.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
_T = TypeVar("_T")


class Server:
    """The MLflow of a home: $MLFLOW_TRACKING_URI, else an SQLite database below it.

    Args:
        home: the folder that also holds artifacts/ and runs/.
        promoter: whether to log in to a server as the one who may move the champion's alias.
    """

    def __init__(self, home: Path, promoter: bool = False) -> None:
        self._folder, self._promoter = home / "mlflow", promoter
        self._named = os.environ.get("MLFLOW_TRACKING_URI", "")

    @property
    def uri(self) -> str:
        """Its address, to be shown: without a password that may stand in it."""
        return self._without_login(self._address)

    @property
    def is_new(self) -> bool:
        """Whether nobody has written into it yet: it is a database, which is made when it is first connected to."""
        return not self._named and not (self._folder / "mlflow.db").is_file()

    @property
    def _address(self) -> str:
        return self._named or f"sqlite:///{self._folder}/mlflow.db"

    def _without_login(self, text: str) -> str:
        login, at, _ = urlsplit(self._address).netloc.rpartition("@")
        return text.replace(login + at, "") if at else text

    def connect(self) -> MlflowClient:
        """A client. Raises Transient when the database cannot be opened, BadInput for a login that cannot be read."""
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # takes seconds, which a run that is tracked already need not spend

        if self._named:
            log_in(self._promoter)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
        with self.explained("does not open; another try may succeed"):
            return MlflowClient(self._address)

    @contextmanager
    def explained(self, news: str) -> Iterator[None]:
        """Turn what MLflow says into an error that gives the news, which says what to do."""
        from mlflow.exceptions import MlflowException
        from requests import RequestException  # what moving a file to a server raises

        try:
            yield
        except (MlflowException, RequestException) as error:
            raise Transient(f"MLflow at {self.uri} {news}: {self._without_login(str(error))[:500]}") from error

    def write(self, client: MlflowClient, account: Account) -> Run:
        """Have MLflow hold the account. What it holds in the same state already is left alone."""
        with self.explained("does not take the run; another try may succeed, else a later run catches it up"):
            experiment = self._experiment(client, f"spark-bert/{account.task}")
            run = _find(client, experiment, account)
            if run is None or run.data.tags.get(STATE) != account.state:
                run = _write(client, experiment, run, account)
        return run

    def url(self, run: Run) -> str:
        """The run's page; "" where there is no server to show it."""
        info = run.info
        page = f"{self.uri.rstrip('/')}/#/experiments/{info.experiment_id}/runs/{info.run_id}"
        return page if self.uri.startswith("http") else ""

    def _experiment(self, client: MlflowClient, name: str) -> str:
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(client.create_experiment(name, None if self._named else f"{self._folder}/artifacts"))


def _find(client: MlflowClient, experiment: str, account: Account) -> Run | None:
    found = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{account.identity}'", max_results=1)
    return found[0] if found else None


def _write(client: MlflowClient, experiment: str, run: Run | None, account: Account) -> Run:
    params = {key: value[:_PARAM] for key, value in account.params.items()}
    tags = {key: value[:_TAG] for key, value in account.tags.items()}
    if run is not None and not _goes_on(run, params, tags):
        _set_aside(client, run)
        run = None
    if run is None:
        run = client.create_run(experiment, account.ended, {IDENTITY: account.identity}, run_name=account.name)
    name = run.info.run_id
    _log(client, name, params, account, tags)
    for gone in set(run.data.tags) - set(tags):
        if not gone.startswith(("mlflow.", "spark-bert.")):
            client.delete_tag(name, gone)
    client.set_terminated(name, account.status, account.ended)
    client.set_tag(name, STATE, account.state)  # last: from now on it is complete
    return client.get_run(name)


def _goes_on(run: Run, params: dict[str, str], tags: dict[str, str]) -> bool:
    """Whether the account can be added to the run: MLflow changes no param, and two trainings' steps must not mix."""
    return run.data.params == params and run.data.tags.get("train.key") in (None, tags.get("train.key"))


def _set_aside(client: MlflowClient, run: Run) -> None:
    """Make room for another run of the same folder. One that a registered version was made from stays what it is."""
    if REGISTERED in run.data.tags:
        client.delete_tag(run.info.run_id, IDENTITY)
    else:
        client.delete_run(run.info.run_id)  # MLflow keeps it under Deleted


def _log(client: MlflowClient, run: str, params: dict[str, str], account: Account, tags: dict[str, str]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    for part in _chunks([Param(*pair) for pair in params.items()], _ENTITIES):
        client.log_batch(run, params=part)
    for part in _chunks([Metric(*point) for point in account.points], _METRICS):
        client.log_batch(run, metrics=part)
    for part in _chunks([RunTag(*pair) for pair in tags.items()], _ENTITIES):
        client.log_batch(run, tags=part)


def _chunks(values: Sequence[_T], size: int) -> Iterator[Any]:
    return (values[start : start + size] for start in range(0, len(values), size))
