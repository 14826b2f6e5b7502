"""Prometheus' own tool takes the alerts, the configuration, the metrics, and the dashboard's expressions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from spark_bert.telemetry.metrics import HomeCollector
from tests.plugins.telemetry.test_monitoring import PROMETHEUS, alerts, collector, expressions

__all__ = ["collector"]


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


def test_prometheus_has_no_complaint_about_the_metrics(promtool: Promtool, collector: HomeCollector) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    promtool("check", "metrics", text=generate_latest(registry).decode())


def test_the_dashboards_expressions_are_sound(promtool: Promtool, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    assert not [rule for rule in rules if "$" in rule["expr"]]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")
