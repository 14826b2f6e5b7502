"""Where things lie on the Airflow machine: the code, the runs and artifacts, the task environment."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from include.paths import user_path
from include.runs import Run
from include.stages import BadInput

#: The checkout: plugins/, include/ and tasks/ lie below it, and relative data paths start from it.
REPOSITORY = Path(__file__).parents[2]
#: Names that containers and labels can carry, and that no other name can be taken for: a dot ends them.
_DEPLOYMENT = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")


def home() -> Path:
    """The folder that holds artifacts/ and runs/: $SPARK_BERT_HOME, else work/ in the checkout."""
    return Path(os.environ.get("SPARK_BERT_HOME") or REPOSITORY / "work").absolute()


def deployment() -> str:
    """The name of this deployment, in the names and labels of its containers: $SPARK_BERT_DEPLOYMENT, else of its home.

    Raises BadInput for a name that a container cannot carry.
    """
    name = os.environ.get("SPARK_BERT_DEPLOYMENT") or hashlib.sha256(str(home()).encode()).hexdigest()[:12]
    if not _DEPLOYMENT.fullmatch(name):
        raise BadInput(
            f"SPARK_BERT_DEPLOYMENT={name!r} cannot be part of a container's name: write up to 32 of a-z, 0-9, _ and "
            "-, the first and the last of them a letter or a digit"
        )
    return name


def tasks_python() -> Path:
    """The task environment's interpreter: $SPARK_BERT_TASKS_PYTHON, else the one that set-up made."""
    return Path(os.environ.get("SPARK_BERT_TASKS_PYTHON") or REPOSITORY / ".venv/tasks/bin/python").absolute()


def cache() -> Path:
    """The folder of fetched encoders and corpora: $SPARK_BERT_CACHE, else the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SPARK_BERT_CACHE") or user / "spark-bert").absolute()


def data(text: str) -> Path:
    """Where a path of an experiment lies: a relative one below the checkout, or, where $SPARK_BERT_DATA is set, what
    begins with data/ below that.

    Raises BadInput for the home (~name) of a user that is not known here.
    """
    path, root = user_path(text), os.environ.get("SPARK_BERT_DATA")
    if root and path.parts[:1] == ("data",) and not (REPOSITORY / path).exists():
        return Path(root, *path.parts[1:])
    return REPOSITORY / path


def run_folder(dag_id: str, run_id: str) -> Path:
    """The folder of one Dag run: readable, safe as a file name, and never that of another run."""
    whole = f"{dag_id}-{run_id}"
    digest = hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()[:8]
    return home() / "runs" / f"{re.sub(r'[^A-Za-z0-9_-]+', '_', whole)[:100]}-{digest}"


def this_run(context: Any) -> Run:
    """The run of a task's context."""
    return Run(run_folder(context["dag_run"].dag_id, context["dag_run"].run_id))
