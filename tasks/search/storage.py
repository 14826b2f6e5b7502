"""Where the trials of a search are kept: Optuna's storage, and the folder with the locks of those that work on it.

The storage is an SQLite file below the home with SQLite's own journal: its locks end with the process that holds them,
also by SIGKILL, and a write that was cut off is undone by the next one that opens the file. (A write-ahead log needs
memory that all processes share, which folders of other machines lack, and the lock of Optuna's journal file is a file,
which a killed process leaves behind.) A secret file or variable (SEARCHES in include/secrets.py) may name a Postgres
database instead, for processes on several machines.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from optuna import Study, create_study
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from include.artifacts import in_turn
from include.secrets import SEARCHES, SEARCHES_VARIABLE, VARIABLE
from include.stages import BadInput, Transient
from tasks.staging import repeating

FILE, LOCK = "trials.db", "lock"
#: The attribute of a trial with the seconds that processes have worked on it.
SECONDS = "seconds"
#: The attribute of a study with what its trials depend on.
_ABOUT = "about"
_BEAT = 5.0  # seconds of work after which they are counted, at the latest
_PATIENCE = 60  # seconds for another process's write


class Storage:
    """The trials of one search."""

    def __init__(self, home: Path, name: str) -> None:
        self.name, self.folder = name, home / "searches" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._url = _url(self.folder / FILE)

    def deciding(self) -> AbstractContextManager[None]:
        """Be the only process that decides what is done next."""
        return in_turn(self.folder / LOCK)

    def open(self, about: dict[str, Any]) -> Study:
        """Return the study, made if there is none. Raise BadInput if it is of other settings or other data."""
        options = (
            {"connect_args": {"timeout": _PATIENCE}} if self._url.startswith("sqlite") else {"pool_pre_ping": True}
        )
        text = json.dumps(about, sort_keys=True)
        with self.deciding(), self.errors():
            storage = RDBStorage(self._url, engine_kwargs=options)
            study = create_study(storage=storage, study_name=self.name, direction="maximize", load_if_exists=True)
            known = study.user_attrs.get(_ABOUT)
            if known is None:
                study.set_user_attr(_ABOUT, text)
        if known not in (None, text):
            raise BadInput(
                f"the search {self.name} in {self.folder} has other data, settings, or another space: write another "
                "search.name, or none"
            )
        return study

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the database's errors as Transient, without a login."""
        try:
            yield
        except (StorageInternalError, SQLAlchemyError) as error:
            said = str(error.__cause__ or error).replace(self._url, "the database")
            raise Transient(f"the storage of the search {self.name} does not answer: {said[:500]}") from None

    @contextmanager
    def counted(self, study: Study, trial: FrozenTrial) -> Iterator[None]:
        """Add the seconds of this context to those of a trial, again and again, so that a kill loses few of them."""
        begun, before = time.monotonic(), float(trial.user_attrs.get(SECONDS, 0.0))

        def count() -> None:
            spent = round(before + time.monotonic() - begun, 2)
            with self.errors():
                study._storage.set_trial_user_attr(trial._trial_id, SECONDS, spent)

        try:
            with repeating(count, _BEAT):
                yield
        finally:
            count()


def _url(file: Path) -> str:
    folder = os.environ.get(VARIABLE, "")
    secret = Path(folder, SEARCHES)
    given = secret.read_text(encoding="utf-8").strip() if folder and secret.is_file() else ""
    given = given or os.environ.get(SEARCHES_VARIABLE, "")
    try:
        is_postgres = not given or make_url(given).get_backend_name() == "postgresql"
    except (ArgumentError, ValueError):  # its text may have the password
        is_postgres = False
    if not is_postgres:
        raise BadInput(f"{SEARCHES} is not the address of a Postgres: write postgresql://user:password@host/database")
    if given:
        return re.sub(r"^postgresql\w*(\+\w+)?:", "postgresql+psycopg2:", given)
    return URL.create("sqlite", database=str(file)).render_as_string(hide_password=False)
