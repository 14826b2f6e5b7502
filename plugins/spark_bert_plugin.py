"""What Airflow loads at start: the Spark-BERT plugin, with its page of artifact files."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_bert.files import PREFIX, app


class SparkBertPlugin(AirflowPlugin):
    """Serves reports, verdicts, Data Docs and submissions to whoever is logged in."""

    name = "spark_bert"
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Spark-BERT artifacts"}]  # noqa: RUF012 Airflow's own type
