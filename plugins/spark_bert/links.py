"""Buttons on a task's page that open what its stage made: report, predictions, verdict and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: Where Airflow serves the artifacts' files (files.py). It stands here because a Dag needs it, but not FastAPI.
PREFIX = "/spark-bert"


@attrs.frozen
class ArtifactLink(BaseOperatorLink):
    """Opens one of the files that the stage's result lists under "files"."""

    title: str
    file: str

    @property
    def name(self) -> str:
        """The button's text."""
        return self.title

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the address."""
        return f"_link_{self.file}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The file's address, "" when this try made none. Airflow asks as soon as the task has ended, failed or not."""
        result = getattr(operator, "result", {})
        file = result.get("files", {}).get(self.file)
        if not file:
            return ""
        return address(ti_key.dag_id, ti_key.run_id, result["stage"], file)


def address(dag_id: str, run_id: str, stage: str, file: str) -> str:
    """Where the browser finds a file that a stage has made in a run, from the root of Airflow's pages."""
    below = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    run = f"{quote(dag_id, safe='')}/{quote(run_id, safe='')}"
    return f"{below}{PREFIX}/runs/{run}/{stage}/{quote(file)}"


#: Stage to the files of its artifact that have a button.
LINKS: dict[str, tuple[ArtifactLink, ...]] = {
    "validate": (ArtifactLink("Data Docs", "data_docs"),),
    "evaluate": (ArtifactLink("Report", "report"), ArtifactLink("Dev predictions", "predictions")),
    "gate": (ArtifactLink("Verdict", "verdict"),),
    "predict": (ArtifactLink("Predictions", "predictions"), ArtifactLink("Predictions (Parquet)", "parquet")),
    "export": (ArtifactLink("Submission", "submission"),),
    "challenge": (ArtifactLink("Challenge", "challenge"),),
    "study": (ArtifactLink("Study", "report"),),
}
