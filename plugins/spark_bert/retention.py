"""What the Dag retention removes: as the deployment says, and whoever triggers it."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import Context, Param, task
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from include.experiment import Experiment
from include.named import build, merge
from include.stages import BadInput
from spark_bert.params import filled, form

#: Days after which what is unused is removed. Without it the Dag only lists it.
AFTER = "SPARK_BERT_PRUNE_AFTER"
_DAY = 86400

log = logging.getLogger(__name__)


def retention_form() -> dict[str, Param]:
    """The Dag's params: the fields of the section retention."""
    return {key: param for key, param in form(more=("retention",)).items() if key.startswith("retention.")}


def asked_retention(context: Context) -> Experiment:
    """What the deployment says, and on top of it the run's params. Raises BadInput for what cannot be."""
    days = os.environ.get(AFTER, "")
    if days and not days.isdecimal():
        raise BadInput(f"{AFTER}={days!r}: write a number of days, as 30")
    given: dict[str, Any] = {"retention.days": int(days), "retention.remove": True} if days else {}
    return build(merge({}, given | filled(context["params"])), AFTER if days else "the retention")


@task(task_id="logs", doc_md="list or remove the logs of tasks that ended long ago")
def logs(**context: Any) -> dict[str, int]:
    """The folders of old logs and their bytes; removed if the run says so."""
    try:
        asked = asked_retention(context).retention  # type: ignore[arg-type]  # a Context, as keywords
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    old = list(old_logs(Path(conf.get("logging", "base_log_folder")), asked.days))
    size = sum(file.lstat().st_size for folder in old for file in folder.rglob("*"))
    log.info("%d folders of logs, %.1f MB, are older than %d days", len(old), size / 1e6, asked.days)
    for folder in old if asked.remove else ():
        shutil.rmtree(folder)
    return {"folders": len(old), "bytes": size, "removed": len(old) if asked.remove else 0}


def old_logs(base: Path, days: float) -> Iterator[Path]:
    """The folders of Airflow's log files, one a Dag run, in which nothing was written for so many days."""
    oldest = time.time() - days * _DAY
    for folder in sorted(base.glob("dag_id=*/run_id=*")):
        if not folder.is_symlink() and all(path.lstat().st_mtime < oldest for path in (folder, *folder.rglob("*"))):
            yield folder
