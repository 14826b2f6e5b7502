"""Buttons on the page of an Airflow task that open files of its stage's artifact, such as the report or the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs
from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from spark_bert.deployment.places import run_name

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: The path below which Airflow serves files of artifacts. Dags need it, and to import files.py would slow down their
#: parsing.
PREFIX = "/spark-bert"
#: The path below which Airflow serves the quality panel (panel/).
PANEL = f"{PREFIX}/quality"


@attrs.frozen
class ArtifactLink(BaseOperatorLink):
    """Opens one of the files that the stage's result lists under "files"."""

    name: str  # the text of the button
    file: str  # the key in "files"

    @property
    def xcom_key(self) -> str:
        """The XCom key under which Airflow stores the address."""
        return f"_link_{self.file}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the file, or "" if this try made none. Airflow calls it when the try has ended."""
        result = getattr(operator, "result", {})
        file = result.get("files", {}).get(self.file)
        if not file:
            return ""
        return address(ti_key.dag_id, run_name(ti_key), result["stage"], file)


def address(dag_id: str, run_id: str, stage: str, file: str) -> str:
    """Return the path at which Airflow serves a file of the artifact that a stage made in a run; see run_name."""
    run = f"{quote(dag_id, safe='')}/{quote(run_id, safe='')}"
    return f"{base_path()}{PREFIX}/runs/{run}/{stage}/{quote(file)}"


def base_path() -> str:
    """Return the path below which Airflow's whole page lies, "" if that is the root of its server."""
    return str(urlsplit(conf.get("api", "base_url", fallback="")).path).rstrip("/")


#: The buttons of each stage.
LINKS: dict[str, tuple[ArtifactLink, ...]] = {
    "validate": (
        ArtifactLink("Data Docs", "data_docs"),
        ArtifactLink("Rows set aside", "quarantine"),
        ArtifactLink("Rows removed as overlap", "overlap"),
    ),
    "evaluate": (ArtifactLink("Report", "report"), ArtifactLink("Dev predictions", "predictions")),
    "gate": (ArtifactLink("Verdict", "verdict"),),
    "package": (ArtifactLink("Package", "package"),),
    "predict": (ArtifactLink("Predictions", "predictions"), ArtifactLink("Predictions (Parquet)", "parquet")),
    "score": (
        ArtifactLink("Scored table", "scored"),
        ArtifactLink("Scored table (Parquet)", "parquet"),
        ArtifactLink("Rows set aside", "aside"),
    ),
    "export": (ArtifactLink("Submission", "submission"),),
    "challenge": (ArtifactLink("Challenge", "challenge"),),
    "publish": (ArtifactLink("Model card", "card"),),
    "study": (ArtifactLink("Study", "report"),),
    "leaderboard": (ArtifactLink("Leaderboard", "leaderboard"),),
    "search": (ArtifactLink("Trials", "search"),),
    "recommend": (ArtifactLink("Search", "report"), ArtifactLink("Recommended experiment", "experiment")),
}
