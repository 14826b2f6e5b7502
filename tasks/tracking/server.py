"""The MLflow server or database of a home: its address, its login, its client, and writing runs to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from include.secrets import LOGIN, PROMOTER, VARIABLE
from include.stages import BadInput, Transient
from tasks.tracking.record import Point, TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

#: The tag that identifies a run, and the tag that marks its state as completely written.
IDENTITY, STATE = "spark-bert.identity", "spark-bert.state"
#: The tag of a run that a registered version was created from. Its value is the name of the registered model.
REGISTERED = "spark-bert.registered"
#: MLflow's limits: params or tags per call, metrics per call, and characters per param and per tag.
_ENTITIES, _METRICS, _PARAM, _TAG = 100, 1000, 6000, 8000
#: Short timeouts: a later try repeats the tracking, so a server that does not answer must not block for minutes.
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
#: The databases that MLflow knows. It has no other addresses that do not need one of its extensions or an account.
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
#: What errors of a database say that another try does not solve.
_LASTING = ("is not a database", "is malformed", "Can't locate revision", "out-of-date database schema")


class Server:
    """The MLflow of a home: $MLFLOW_TRACKING_URI, or an SQLite database in the home if the variable is not set.

    With `promoter`, log in as the user who may move the champion alias, if the deployment has one.
    """

    def __init__(self, home: Path, promoter: bool = False) -> None:
        self._folder, self._promoter = home / "mlflow", promoter
        self._named = os.environ.get("MLFLOW_TRACKING_URI", "")
        if self._named and not _is_address(self._named):
            raise BadInput(
                f"MLFLOW_TRACKING_URI={self._named.rpartition('@')[2]} is not an address that this project can use: "
                "write that of a server, such as http://mlflow:5000, or of a database, such as sqlite:////srv/mlflow.db"
            )
        self._address = self._named or f"sqlite:///{self._folder}/mlflow.db"

    @property
    def uri(self) -> str:
        """The address without user name and password, for messages and records."""
        return self._without_login(self._address)

    @property
    def is_new(self) -> bool:
        """Whether it is an SQLite database that does not exist yet; the first connection creates it."""
        return not self._named and not (self._folder / "mlflow.db").is_file()

    def _without_login(self, text: str) -> str:
        login, at, _ = urlsplit(self._address).netloc.rpartition("@")
        return text.replace(login + at, "") if at else text

    def connect(self) -> MlflowClient:
        """Return a client; raise Transient or BadInput (see `translate_errors`) if there can be none."""
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # this import takes seconds, so it waits until a client is needed

        if self._named:
            _log_in(self._promoter)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
        with self.translate_errors("does not open; another try may succeed"):
            return MlflowClient(self._address)

    @contextmanager
    def translate_errors(self, news: str) -> Iterator[None]:
        """Raise errors of MLflow as Transient with `news` or, if another try cannot help, as BadInput."""
        from alembic.util import CommandError
        from mlflow.exceptions import MlflowException
        from requests import RequestException  # raised by uploads of files
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (MlflowException, RequestException, SQLAlchemyError, CommandError, ModuleNotFoundError) as error:
            said = self._without_login(str(error))
            if isinstance(error, ModuleNotFoundError):
                raise BadInput(f"MLflow at {self.uri} needs a driver that is not installed here: {said}") from error
            if any(words in said for words in _LASTING):
                raise BadInput(
                    f"the database of MLflow at {self.uri} is damaged or of another version: restore it from a backup, "
                    f"or migrate it ({said[:300]})"
                ) from error
            raise Transient(f"MLflow at {self.uri} {news}: {said[:500]}") from error

    def write(self, client: MlflowClient, tracked: TrackedRun) -> Run:
        """Create or update a run, unless MLflow has it in this state already."""
        with self.translate_errors("does not accept the run; try again, or let a later run track it"):
            name, files = f"spark-bert/{tracked.task}", None if self._named else f"{self._folder}/artifacts"
            known = client.get_experiment_by_name(name)
            experiment = str(known.experiment_id if known else client.create_experiment(name, files))
            found = client.search_runs([experiment], f"tags.`{IDENTITY}` = '{tracked.identity}'", max_results=1)
            run = found[0] if found else None
            if run is None or run.data.tags.get(STATE) != tracked.state:
                run = _write(client, experiment, run, tracked)
        return run

    def url(self, run: Run) -> str:
        """Return the address of the run's page; "" if there is no server."""
        info = run.info
        page = f"{self.uri.rstrip('/')}/#/experiments/{info.experiment_id}/runs/{info.run_id}"
        return page if self.uri.startswith("http") else ""


def _is_address(text: str) -> bool:
    """Return whether a text is the address of a server, or of a database that MLflow knows."""
    try:
        parts = urlsplit(text)
        served = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address that is none
        return False
    return served or (parts.scheme.partition("+")[0] in _DATABASES and "://" in text)


def _log_in(promoter: bool) -> None:
    """Pass the login in the deployment's secret files to MLflow; without such files, its variables stay unchanged."""
    found = (_login(PROMOTER) if promoter else {}) or _login(LOGIN)
    for variable in LOGIN if found else ():
        os.environ.pop(variable, None)  # otherwise a token of one login could be combined with a password of another
    os.environ.update(found)


def _login(files: dict[str, str]) -> dict[str, str]:
    """Return variable name to value for the files that exist."""
    folder = Path(os.environ.get(VARIABLE, ""))
    there = {variable: folder / name for variable, name in files.items() if folder.name and (folder / name).is_file()}
    _, username, password = files
    for one, other in ((username, password), (password, username)):
        if one in there and other not in there:
            raise BadInput(f"{there[one]} is only half of a login: add the file {files[other]} to its folder")
    try:
        return {variable: file.read_text(encoding="utf-8").strip() for variable, file in there.items()}
    except OSError as error:
        raise BadInput(f"{error.filename} cannot be read: give the user that runs the stages read access") from error
    except UnicodeDecodeError as error:
        named = ", ".join(map(str, there.values()))
        raise BadInput(f"{named} is not UTF-8 text: write the login into it") from error


def _write(client: MlflowClient, experiment: str, run: Run | None, tracked: TrackedRun) -> Run:
    params = {key: value[:_PARAM] for key, value in tracked.params.items()}
    tags = {key: value[:_TAG] for key, value in tracked.tags.items()}
    if run is not None and not _goes_on(run, params, tags):
        if REGISTERED in run.data.tags:  # a registered version was created from it, so it is kept
            client.delete_tag(run.info.run_id, IDENTITY)
        else:
            client.delete_run(run.info.run_id)  # MLflow can still restore it
        run = None
    if run is None:
        run = client.create_run(experiment, tracked.ended, {IDENTITY: tracked.identity}, run_name=tracked.name)
    name = run.info.run_id
    _log(client, run, params, tracked, tags)
    for gone in set(run.data.tags) - set(tags):
        if not gone.startswith(("mlflow.", "spark-bert.")):
            client.delete_tag(name, gone)
    client.set_terminated(name, tracked.status, tracked.ended)
    client.set_tag(name, STATE, tracked.state)  # comes last, because it marks the run as complete
    return client.get_run(name)


def _goes_on(run: Run, params: dict[str, str], tags: dict[str, str]) -> bool:
    """Return whether the run can be updated: params cannot be changed, and steps of two trainings must not be mixed."""
    return run.data.params == params and run.data.tags.get("train.key") in (None, tags.get("train.key"))


def _log(client: MlflowClient, run: Run, params: dict[str, str], tracked: TrackedRun, tags: dict[str, str]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    name = run.info.run_id
    for part in _chunks([Param(*pair) for pair in params.items()], _ENTITIES):
        client.log_batch(name, params=part)
    for part in _chunks([Metric(*point) for point in _new_points(client, run, tracked.points)], _METRICS):
        client.log_batch(name, metrics=part)
    for part in _chunks([RunTag(*pair) for pair in tags.items()], _ENTITIES):
        client.log_batch(name, tags=part)


def _new_points(client: MlflowClient, run: Run, points: Sequence[Point]) -> list[Point]:
    """Return each point once that the run lacks, as a try that broke off: MLflow 2 refuses one that it has."""
    there = {
        (key, point.timestamp, point.step)
        for key in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, key)
    }
    found = {(point.key, point.timestamp, point.step): point for point in points}
    return [point for place, point in found.items() if place not in there]


def _chunks(values: Sequence[Any], size: int) -> Iterator[Any]:
    return (values[start : start + size] for start in range(0, len(values), size))
