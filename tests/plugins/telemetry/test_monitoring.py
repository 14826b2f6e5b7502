"""What Prometheus and Grafana are given: alerts, configuration, login, and a dashboard of metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from include.artifacts import write_json
from spark_bert.telemetry.metrics import HomeCollector
from spark_bert.telemetry.prometheus_login import token
from tests.plugins.telemetry.test_metrics import entry, write_run

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "compose/prometheus"
DASHBOARD = json.loads((ROOT / "compose/grafana.json").read_text())
#: A metric of ours in an expression.
OURS = re.compile(r"\bspark_bert_\w+")


def alerts() -> dict[str, Any]:
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_the_platform_gives_prometheus_what_its_configuration_names() -> None:
    platform = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    services, prometheus = platform["services"], platform["services"]["prometheus"]
    assert prometheus["profiles"] == ["monitoring"] and "ports" not in prometheus
    mounted = dict(reversed(volume.removesuffix(":ro").rsplit(":", 1)) for volume in prometheus["volumes"])
    assert mounted["/etc/prometheus"] == "./compose/prometheus"
    assert mounted["/run/secrets"] == "${SPARK_BERT_HOME}/platform/monitoring"
    login = services["prometheus-login"]
    assert login["profiles"] == ["monitoring"]
    assert "${SPARK_BERT_HOME}/platform/monitoring:/monitoring" in login["volumes"]
    assert "python -m spark_bert.telemetry.prometheus_login" in login["command"][-1]
    for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]:
        for target in (target for config in job["static_configs"] for target in config["targets"]):
            host = target.split(":")[0]
            if host != "localhost":
                assert {*services[host]["networks"]} & {*prometheus["networks"]}, f"{host} is out of reach"
            if host.startswith("spark-"):  # Spark answers any other path with a page
                options = services[host]["environment"]["SPARK_DAEMON_JAVA_OPTS"]
                assert f".sink.prometheusServlet.path={job['metrics_path'].rstrip('/')}" in options
    addresses = [flag for flag in prometheus["command"] if flag.startswith("--web.listen-address=")]
    assert [address.rpartition("=")[2] for address in addresses] == ["receiver:9090", "127.0.0.1:9090"]
    assert "receiver" in prometheus["networks"]["airflow"]["aliases"] and not prometheus["networks"]["stages"]
    seen = [volume.split(":")[0] for volume in services["api-server"]["volumes"]]
    assert {f"${{SPARK_BERT_HOME}}/{folder}" for folder in ("artifacts", "runs", "streams")} <= set(seen)


def test_every_alert_is_documented() -> None:
    page = (ROOT / "docs/DEPLOY.md").read_text()
    assert [name for name in alerts() if f"| `{name}` |" not in page] == []


def test_every_metric_is_documented(exposed: set[str]) -> None:
    pages = "".join((ROOT / "docs" / page).read_text() for page in ("LOOK.md", "SERVING.md"))
    assert {
        name
        for name in exposed
        if name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") not in pages
    } == set()


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomeCollector:
    """The collector of a home in which everything has happened."""
    trained, evaluated = entry(seconds=1.0, rows_per_second=1.0), entry(metrics={"f1": 1.0})
    champion = entry(model="reviews", version="1")
    write_run(tmp_path / "runs/retrain-1-01234567", train=trained, evaluate=evaluated, champion=champion)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "streams/reviews/windows").mkdir(parents=True)
    write_json(tmp_path / "streams/reviews/heartbeat.json", {"state": "running", "rows": 1, "aside": 1})
    figures = [{"name": "length", "value": 0.1, "limit": 0.25}]
    write_json(tmp_path / "streams/reviews/windows/0-1.json", {"figures": figures})
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    return HomeCollector()


@pytest.fixture
def exposed(collector: HomeCollector) -> set[str]:
    """The names of the samples of the home, and those of the service."""
    families = list(collector.collect())
    assert all(family.samples and family.documentation for family in families)
    return {sample.name for family in families for sample in family.samples} | set(of_service())


def of_service() -> Iterator[str]:
    """Yield the names of the service's samples, which only the environment of the stages can list."""
    ask = "from tasks.serving.metrics import Metrics; print(Metrics().text().decode())"
    python = ROOT / ".venv/tasks/bin/python"
    text = subprocess.run([python, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name, kind in re.findall(r"# TYPE (spark_bert_\w+(?<!_created)) (gauge|counter|histogram)", text):
        yield from (f"{name}_{part}" for part in ("bucket", "sum", "count")) if kind == "histogram" else (name,)


def expressions() -> Iterator[str]:
    """Yield the expressions of the dashboard, with Grafana's variables replaced."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$dag", ".*")


def test_alerts_and_dashboard_ask_for_metrics_that_exist(exposed: set[str]) -> None:
    asked = [*expressions(), *(rule["expr"] for rule in alerts().values())]
    asked += [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    names = {name for expression in asked for name in OURS.findall(expression)}
    assert names and names - exposed == set()


def test_the_dashboard_can_be_imported() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    places = [panel["gridPos"] for panel in panels]
    taken = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    sources = {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"}
    assert sources == {"${datasource}"}


def test_prometheus_can_log_in_and_change_nothing(
    server: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    headers = {"Authorization": f"Bearer {token()}"}
    assert server.get("/spark-bert/metrics", headers=headers).status_code == 200
    assert server.post("/api/v2/pools", headers=headers, json={"name": "mine", "slots": 1}).status_code == 403
