"""The settings of the Dag `retention`, and the Airflow task that lists or removes old logs."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from airflow.sdk import Context, Param, task
from airflow.sdk.configuration import conf

from include.experiment import Experiment
from include.named_experiments import build, merge
from include.stages import BadInput
from spark_bert.dag.params import filled, form

#: The variable with the days after which unused files are removed. Without it, the Dag only lists them.
AFTER = "SPARK_BERT_PRUNE_AFTER"

log = logging.getLogger(__name__)


def retention_form() -> dict[str, Param]:
    """Return the Dag's params, which are the fields of the section retention."""
    return {key: param for key, param in form(more=("retention",)).items() if key.startswith("retention.")}


def retention_experiment(context: Context) -> Experiment:
    """Return the experiment with the retention settings of the deployment, which the run's params override."""
    days = os.environ.get(AFTER, "")
    if days and not days.isdecimal():
        raise BadInput(f"{AFTER}={days!r} is not valid: write a number of days, for example 30")
    given: dict[str, Any] = {"retention.days": int(days), "retention.remove": True} if days else {}
    return build(merge({}, given | filled(context["params"])), AFTER if days else "the retention")


@task(task_id="logs", doc_md="list or remove the old logs of Airflow tasks")
def logs(**context: Any) -> dict[str, int]:
    """List the folders of old logs, remove them if the settings ask for that, and return their number and size."""
    settings = retention_experiment(context).retention  # type: ignore[arg-type]  # a Context, as keywords
    oldest = time.time() - settings.days * 86400
    old = [
        folder
        for folder in sorted(Path(conf.get("logging", "base_log_folder")).glob("dag_id=*/run_id=*"))
        if not folder.is_symlink() and all(path.lstat().st_mtime < oldest for path in (folder, *folder.rglob("*")))
    ]
    size = sum(file.lstat().st_size for folder in old for file in folder.rglob("*"))
    log.info("%d folders of logs (%.1f MB) are older than %d days", len(old), size / 1e6, settings.days)
    for folder in old if settings.remove else ():
        shutil.rmtree(folder)
    return {"folders": len(old), "bytes": size, "removed": len(old) if settings.remove else 0}
