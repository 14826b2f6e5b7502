"""What Prometheus is told of runs, models, streams, and the disk: /spark-bert/metrics, from the files in the home.

The numbers of runs fall when old records are removed; therefore they are gauges and not counters.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from spark_bert.deployment.places import home
from spark_bert.web.access import current_user
from spark_bert.web.panel.datasets import list_windows
from spark_bert.web.panel.index import INDEX, Row
from spark_bert.web.panel.records import is_number, list_names, outcome_of, read_json

router = APIRouter()
Labels = tuple[str, ...]
#: The value of each sample, by its labels.
Values = dict[Labels, float]


def require_cluster_activity(request: Request, user: Annotated[Any, Depends(current_user)]) -> None:
    """Answer 403 to a user who may not see what the cluster does as a whole. No right on a Dag is required."""
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import requires_access_view

    requires_access_view(AccessView.CLUSTER_ACTIVITY)(request, user)


@router.get("/metrics", dependencies=[Depends(require_cluster_activity)])
def metrics() -> Response:
    """Send the metrics in Prometheus' text format."""
    return Response(generate_latest(HomeCollector()), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class HomeCollector(Collector):
    """Collects the metrics from the files of the home."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        recorded = INDEX.recorded()
        runs = [run for run in recorded if not run.damaged]
        yield from _ended(runs)
        yield from _measured(runs)
        champions: Values = {(run.champion.model,): run.champion.version for run in runs if run.champion}
        about = "Version of a registered model that is the champion"
        yield _gauge("spark_bert_champion_version", about, ("model",), champions)
        damaged: Values = {(): len(recorded) - len(runs)}
        yield _gauge("spark_bert_damaged_records", "Records of runs that cannot be read", (), damaged)
        yield from _streams()
        yield from _disk()


def _ended(runs: list[Row]) -> Iterator[Metric]:
    of_run: Counter[Labels] = Counter()
    of_stage: Counter[Labels] = Counter()
    last: Values = {}
    for run in runs:
        of_run[run.dag_id, outcome_of(run.stages)] += 1
        for name, stage in run.stages.items():
            key = run.dag_id, name, stage.outcome
            of_stage[key] += 1
            ended = run.changed if stage.ended is None else stage.ended
            if ended > last.get(key, 0):
                last[key] = ended
    labels = ("dag", "stage", "outcome")
    yield _gauge("spark_bert_runs", "Runs, by the outcome of their stages so far", ("dag", "outcome"), of_run)
    yield _gauge("spark_bert_stages", "Stages that have ended", labels, of_stage)
    yield _gauge("spark_bert_stage_last_end_timestamp_seconds", "When a stage last ended so", labels, last)


def _measured(runs: list[Row]) -> Iterator[Metric]:
    seconds: Values = {}
    speed: Values = {}
    dev: Values = {}
    for run in runs:
        of_run = run.dag_id, *(str(run.value(field)) for field in ("data.task", "model.kind", "model.name"))
        for name, stage in run.stages.items():
            if (took := stage.measured("seconds")) is not None:
                seconds[run.dag_id, name] = took
            if (rows_per_second := stage.measured("rows_per_second")) is not None:
                speed[*of_run, name] = rows_per_second
        dev |= {(*of_run, name): score for name, score in run.metrics.items()}
    run_labels = "dag", "task", "kind", "model"
    last = "of a stage in the last run that did not find its artifact"
    yield _gauge("spark_bert_stage_seconds", f"Duration {last}", ("dag", "stage"), seconds)
    yield _gauge("spark_bert_rows_per_second", f"Speed {last}", (*run_labels, "stage"), speed)
    yield _gauge("spark_bert_dev_metric", "Metric of dev in the last run", (*run_labels, "metric"), dev)


def _streams() -> Iterator[Metric]:
    beats: Values = {}
    states: Values = {}
    rows: Values = {}
    drift: Values = {}
    limits: Values = {}
    for name in list_names(home() / "streams"):
        beat, written = read_json(home() / "streams", name, "heartbeat.json")
        if beat:
            beats[name,] = written
            states[name, str(beat.get("state"))] = 1
            rows |= {(name, to): _number(beat.get(key)) for to, key in (("labeled", "rows"), ("set_aside", "aside"))}
        for figure in _figures(name):
            drift[name, str(figure.get("name"))] = _number(figure.get("value"))
            limits[name, str(figure.get("name"))] = _number(figure.get("limit"))
    figure_labels = ("stream", "figure")
    yield _gauge("spark_bert_stream_heartbeat_timestamp_seconds", "Last heartbeat of a stream", ("stream",), beats)
    yield _gauge("spark_bert_stream_state", "1 for the state that a stream is in", ("stream", "state"), states)
    labels = ("stream", "outcome")
    yield _filled(CounterMetricFamily("spark_bert_stream_rows", "Rows since a stream was started", labels=labels), rows)
    yield _gauge("spark_bert_stream_drift", "Drift of the last window from the training", figure_labels, drift)
    yield _gauge("spark_bert_stream_drift_limit", "The largest drift that is accepted", figure_labels, limits)


def _figures(stream: str) -> list[dict[str, Any]]:
    """Return the figures of drift of the last window of a stream; none if it was not compared with the training."""
    for window in list_windows(stream)[:1]:
        figures = read_json(home() / "streams", stream, "windows", window)[0].get("figures")
        return [figure for figure in figures if isinstance(figure, dict)] if isinstance(figures, list) else []
    return []


def _disk() -> Iterator[Metric]:
    try:
        disk = os.statvfs(home() / "artifacts")
    except FileNotFoundError:
        return
    size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    yield _gauge("spark_bert_disk_bytes", "Size of the disk that holds the artifacts", (), {(): size})
    yield _gauge("spark_bert_disk_free_bytes", "What is free on the disk that holds the artifacts", (), {(): free})


def _gauge(name: str, help_text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    return _filled(GaugeMetricFamily(name, help_text, labels=labels), values)


def _filled(metric: GaugeMetricFamily | CounterMetricFamily, values: Mapping[Labels, float]) -> Metric:
    for labels, value in values.items():
        # The name of a file need not be UTF-8.
        metric.add_metric([label.encode(errors="replace").decode() for label in labels], value)
    return metric


def _number(value: Any) -> float:
    return float(value) if is_number(value) else math.nan
