"""What the operators' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment that says nothing but where its folders are."""
    for name in [name for name in os.environ if name.startswith("SPARK_BERT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "home"
