"""The Airflow plugin of Spark-BERT: artifact files in the browser, pools, and the ablation's timetable and mappers."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_bert import startup
from spark_bert.files import app
from spark_bert.links import PREFIX
from spark_bert.partitions import StudyMapper, Table5Window
from spark_bert.timetable import ConfigurationTimetable


class SparkBertPlugin(AirflowPlugin):
    """Registers the web app for artifact files, the ablation's timetable and partitions, and the listener for pools."""

    name = "spark_bert"
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Spark-BERT artifacts"}]  # noqa: RUF012 Airflow's own type
    timetables = [ConfigurationTimetable]  # noqa: RUF012
    partition_mappers = [StudyMapper]  # noqa: RUF012
    windows = [Table5Window]  # noqa: RUF012
    listeners = [startup]  # noqa: RUF012
