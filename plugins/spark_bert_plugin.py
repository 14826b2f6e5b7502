"""The Airflow plugin of Spark-BERT."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spark_bert.dag import pools
from spark_bert.studies.ablation import StudyMapper, Table5Window
from spark_bert.studies.timetable import ConfigurationTimetable
from spark_bert.telemetry import metrics
from spark_bert.web.files import app
from spark_bert.web.links import PANEL, PREFIX
from spark_bert.web.panel.app import CARDS, VIEWS
from spark_bert.web.panel.app import app as panel

app.include_router(metrics.router)


class SparkBertPlugin(AirflowPlugin):
    """Registers the web apps, the panel's views, the ablation's timetable and partitions, and a listener for pools."""

    name = "spark_bert"
    # The panel comes first, because its path lies below the other one.
    fastapi_apps = [  # noqa: RUF012 Airflow's own type
        {"app": panel, "url_prefix": PANEL, "name": "Spark-BERT quality"},
        {"app": app, "url_prefix": PREFIX, "name": "Spark-BERT artifacts"},
    ]
    external_views = VIEWS
    react_apps = CARDS
    timetables = [ConfigurationTimetable]  # noqa: RUF012
    partition_mappers = [StudyMapper]  # noqa: RUF012
    windows = [Table5Window]  # noqa: RUF012
    listeners = [pools]  # noqa: RUF012
