"""What the operators' tests share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_bert.operators.base import StageOperator
from tests.plugins.operators.cluster import Cluster


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment that says nothing but where its folders are."""
    for name in [name for name in os.environ if name.startswith("SPARK_BERT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "home"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A stand-in for the API server of the cluster that is configured."""
    cluster = Cluster()
    (tmp_path / "kubeconfig").write_text(json.dumps(cluster.kubeconfig))
    configure(tmp_path / "kubeconfig", monkeypatch)
    yield cluster
    cluster.close()


def configure(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What KUBECONFIG does: the client reads that only once."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))


def execute(task: StageOperator, context: Any) -> Any:
    """Execute an operator outside of an Airflow task."""
    return type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
