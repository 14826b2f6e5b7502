"""Where Airflow's page shows the panel: in its navigation, as a tab of runs and of tasks, and on its dashboard."""

from __future__ import annotations

from typing import Any

from spark_bert.web.links import PANEL, base_path

_BASE = f"{base_path()}{PANEL}"
_RUN = f"{_BASE}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}"
#: Airflow puts the ids of the run into the braces, but leaves those of the index if the task is not mapped. Every view
#: needs a route of its own.
VIEWS: list[dict[str, Any]] = [
    {
        "name": "Quality",
        "href": f"{_BASE}/runs",
        "destination": "nav",
        "nav_top_level": True,
        "url_route": "quality",
        "icon": f"{_BASE}/static/icon.svg",
        "icon_dark_mode": f"{_BASE}/static/icon-dark.svg",
    },
    {"name": "Quality", "href": _RUN, "destination": "dag_run", "url_route": "quality-run"},
    {
        "name": "Quality",
        "href": f"{_RUN}&map_index={{MAP_INDEX}}",
        "destination": "task_instance",
        "url_route": "quality-task",
    },
]
#: The card on the dashboard. Airflow loads it as a module of its own page.
CARDS: list[dict[str, Any]] = [
    {
        "name": "SparkBertQuality",
        "bundle_url": f"{_BASE}/static/card.js",
        "destination": "dashboard",
        "url_route": "quality-card",
    }
]
