"""What the operators' tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spark_bert.operators.base import StageOperator


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment that says nothing but where its folders are."""
    for name in [name for name in os.environ if name.startswith("SPARK_BERT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "home"


def execute(task: StageOperator, context: Any) -> Any:
    """Execute an operator outside of an Airflow task."""
    return type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]
