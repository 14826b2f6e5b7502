"""What Airflow loads at start: the Spark-BERT plugin, with its page of artifact files and its timetable."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_bert.files import PREFIX, app
from spark_bert.timetable import ConfigurationTimetable


class SparkBertPlugin(AirflowPlugin):
    """Serves reports, verdicts, Data Docs and submissions to whoever is logged in; knows the ablations' timetable."""

    name = "spark_bert"
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Spark-BERT artifacts"}]  # noqa: RUF012 Airflow's own type
    timetables = [ConfigurationTimetable]  # noqa: RUF012
