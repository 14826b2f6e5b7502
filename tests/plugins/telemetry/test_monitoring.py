"""What Prometheus and Grafana are given: alerts, configuration, login, and a dashboard of metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
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


class Promtool:
    """Prometheus' tool that checks its files."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def __call__(self, *arguments: str | Path, text: str = "") -> None:
        done = subprocess.run([self.program, *arguments], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    """The one of this machine, or else Debian's, which is unpacked and not installed."""
    found = shutil.which("promtool")
    if found:
        return Promtool(Path(found))
    if shutil.which("apt-get") is None:
        pytest.skip("promtool is missing here: install Prometheus")
    folder = tmp_path_factory.mktemp("promtool")
    lists = [f"--option=Dir::State::Lists={folder}/lists", f"--option=Dir::Cache={folder}/cache"]
    download = ["apt-get", "-qq", "download", "prometheus"]
    if subprocess.run(download, cwd=folder, capture_output=True, check=False).returncode:
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "cache/archives/partial").mkdir(parents=True)
        subprocess.run(["apt-get", "-qq", *lists, "update"], cwd=folder, check=True)
        subprocess.run([*download, *lists], cwd=folder, check=True)
    (package,) = folder.glob("prometheus_*.deb")
    subprocess.run(["dpkg", "--extract", package, folder], check=True)
    return Promtool(folder / "usr/bin/promtool")


def alerts() -> dict[str, Any]:
    (group,) = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_the_alerts_fire_when_they_should(promtool: Promtool, tmp_path: Path) -> None:
    cases = (Path(__file__).parent / "alerts.yml").read_text().replace("ALERTS", str(PROMETHEUS / "alerts.yml"))
    (tmp_path / "cases.yml").write_text(cases)
    promtool("test", "rules", tmp_path / "cases.yml")
    tested = {case["alertname"] for test in yaml.safe_load(cases)["tests"] for case in test["alert_rule_test"]}
    assert tested == set(alerts())


def test_prometheus_takes_its_configuration(promtool: Promtool, tmp_path: Path) -> None:
    for file in PROMETHEUS.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "airflow_token").touch()
    config = tmp_path / "prometheus.yml"
    config.write_text(config.read_text().replace("/run/secrets/", f"{tmp_path}/"))
    promtool("check", "config", config)


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
    """Yield the names of the service's samples. This environment cannot import its module."""
    source = (ROOT / "tasks/serving/metrics.py").read_text()
    kinds = {"Gauge": ("",), "Counter": ("_total",), "Histogram": ("_bucket", "_sum", "_count")}
    found = re.findall(r'(Gauge|Counter|Histogram)\(\s*"(\w+)"', source)
    assert len(found) == source.count('"spark_bert_')
    for kind, name in found:
        yield from (name + suffix for suffix in kinds[kind])


def test_prometheus_has_no_complaint_about_the_metrics(promtool: Promtool, collector: HomeCollector) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    promtool("check", "metrics", text=generate_latest(registry).decode())


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


def test_the_dashboards_expressions_are_sound(promtool: Promtool, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    assert not [rule for rule in rules if "$" in rule["expr"]]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


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
