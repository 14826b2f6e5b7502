"""The paths of a deployment: code, runs, artifacts, cache, data and the Python environment of the stages."""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from include.folders import user_path
from include.runs import Run
from include.stages import BadInput
from include.tables import fixed_part


def _repository() -> Path:
    """Return $SPARK_BERT_CHECKOUT, or this file's checkout, or AIRFLOW_HOME if the plugin is installed as a package."""
    if checkout := os.environ.get("SPARK_BERT_CHECKOUT"):
        return Path(checkout).absolute()
    above = Path(__file__).parents[3]
    airflow_home = Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    return above if (above / "plugins").is_dir() else airflow_home.absolute()


#: Where relative data paths start, and below which the stages' code and the home lie by default.
REPOSITORY = _repository()
#: A name that can be part of a container's name and of a label. It has no dot, because a dot ends it in both.
_DEPLOYMENT = re.compile(r"[a-z0-9]([a-z0-9_-]{0,30}[a-z0-9])?")
#: The Airflow tasks whose mapped indices work together in the run of their Dag run, not each in a run of its own.
TOGETHER = ("search",)


def home() -> Path:
    """Return the folder that holds artifacts/ and runs/: $SPARK_BERT_HOME, or work/ in REPOSITORY."""
    return _path(os.environ.get("SPARK_BERT_HOME") or f"{REPOSITORY}/work").absolute()


@lru_cache(maxsize=8)  # the panel asks for each of thousands of runs
def _path(text: str) -> Path:
    return Path(text)


def deployment() -> str:
    """Return the name that marks this deployment's work: $SPARK_BERT_DEPLOYMENT, or a digest of its home's path."""
    name = os.environ.get("SPARK_BERT_DEPLOYMENT") or hashlib.sha256(str(home()).encode()).hexdigest()[:12]
    if not _DEPLOYMENT.fullmatch(name):
        raise BadInput(
            f"SPARK_BERT_DEPLOYMENT={name!r} cannot be part of a container's name: write up to 32 of the characters "
            "a-z, 0-9, _ and -, beginning and ending with a letter or a digit"
        )
    return name


def tasks_python() -> Path:
    """Return the Python interpreter of the stages: $SPARK_BERT_TASKS_PYTHON, or the one that `make setup` installed."""
    return Path(os.environ.get("SPARK_BERT_TASKS_PYTHON") or REPOSITORY / ".venv/tasks/bin/python").absolute()


def cache() -> Path:
    """Return the folder of downloaded encoders and corpora: $SPARK_BERT_CACHE, or one in the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SPARK_BERT_CACHE") or user / "spark-bert").absolute()


def data_path(text: str) -> Path:
    """Return the absolute path of a file or folder that an experiment names.

    A relative path starts from the checkout. If it begins with data/, does not exist in the checkout, and
    $SPARK_BERT_DATA is set, that folder takes the place of data/.
    """
    path, root = user_path(text), os.environ.get("SPARK_BERT_DATA")
    if root and path.parts[:1] == ("data",) and not fixed_part(REPOSITORY / path).exists():
        return Path(root, *path.parts[1:])
    return REPOSITORY / path


def run_folder(dag_id: str, run_id: str) -> Path:
    """Return the folder of a Dag run. The digest in its name keeps apart ids that differ only in unsafe characters."""
    whole = f"{dag_id}-{run_id}"
    digest = hashlib.sha256(f"{dag_id}\n{run_id}".encode()).hexdigest()[:8]
    return home() / "runs" / f"{re.sub(r'[^A-Za-z0-9_-]+', '_', whole)[:100]}-{digest}"


def run_name(task: Any) -> str:
    """Return the id of the Dag run of a task instance or its key, with the index if each has a run of its own."""
    together = getattr(task, "task_id", "") in TOGETHER
    return indexed(str(task.run_id), -1 if together else getattr(task, "map_index", -1))


def indexed(run_id: str, map_index: int) -> str:
    """Return the id of a Dag run and the index in a mapped task group, or only the id if the index is negative."""
    return run_id if map_index < 0 else f"{run_id}[{map_index}]"


def without_index(run_name: str) -> tuple[str, int]:
    """Return the arguments of `indexed` for what it returned. An id has no brackets of its own."""
    run_id, _, index = run_name.partition("[")
    return run_id, int(index.removesuffix("]")) if index else -1


def this_run(context: Any) -> Run:
    """Return the run that the context of an Airflow task belongs to."""
    dag_run, ti = context["dag_run"], context.get("ti")
    return Run(run_folder(dag_run.dag_id, dag_run.run_id if ti is None else run_name(ti)))
