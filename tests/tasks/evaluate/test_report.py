"""The files that people open: numbers, escaping, self-containment."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.evaluate import curves
from tasks.evaluate.stage import write
from tasks.scored import Scored
from tests.tasks.evaluate.made_up import FACTS, made_up

PNG = b"\x89PNG\r\n\x1a\n"
PLOTS = {
    "SST-2": {"confusion", "reliability", "training"},
    "MNLI": {"confusion", "reliability", "training"},
    "STS-B": {"scatter", "errors", "training"},
}


@pytest.mark.parametrize("name", PLOTS)
def test_writes_everything(name: str, tmp_path: Path, history: Path) -> None:
    dev = made_up(name)
    summary = write(tmp_path, dev, None, history, FACTS)
    assert json.loads((tmp_path / "metrics.json").read_text())["metrics"] == summary["metrics"]
    assert {file.stem for file in tmp_path.glob("*.png")} == PLOTS[name]
    assert all(file.read_bytes().startswith(PNG) for file in tmp_path.glob("*.png"))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") == len(PLOTS[name])
    assert f"{summary['metrics'][dev.task.metric]:.4f}" in html
    assert all(f"{value:.4f}" in html for value in summary["interval"])
    assert all(fact in html for fact in ("0123456789abcdef", "f00ba4", "all-MiniLM-L6-v2"))


def test_dollar_signs_in_label_names_are_no_formula(sst2: Scored, tmp_path: Path, history: Path) -> None:
    names = ("under $10_0$", r"over $\nothing$")
    dev = dataclasses.replace(sst2, task=dataclasses.replace(sst2.task, label_names=names))
    write(tmp_path, dev, None, history, FACTS)
    assert (tmp_path / "confusion.png").read_bytes().startswith(PNG)


def test_the_text_of_a_mistake_is_escaped(sst2: Scored, tmp_path: Path, history: Path) -> None:
    write(tmp_path, sst2, None, history, FACTS)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#39;1 &amp; 2&#39;)&lt;/script&gt; says &#34;this&#34;" in html


def test_needs_nothing_beside_it(sst2: Scored, tmp_path: Path, history: Path) -> None:
    write(tmp_path, sst2, None, history, FACTS)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)', html)
    assert "@import" not in html


def test_an_undefined_metric_is_called_so(stsb: Scored, tmp_path: Path, history: Path) -> None:
    flat = dataclasses.replace(stsb, logits=np.full((len(stsb), 1), 2.5))
    write(tmp_path, flat, stsb, history, FACTS)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<span class="main number">undefined</span>' in html
    assert "held out (120 rows)" in html


def test_no_mistakes(sst2: Scored, tmp_path: Path, history: Path) -> None:
    perfect = dataclasses.replace(sst2, logits=5.0 * np.eye(2)[sst2.labels])
    write(tmp_path, perfect, None, history, FACTS)
    assert "None: every row is right." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_one_row_is_enough(tmp_path: Path, history: Path) -> None:
    for name in ("SST-2", "STS-B"):
        whole = made_up(name)
        write(tmp_path, whole.at(np.array([0])), None, history, FACTS)


def test_the_same_bytes_every_time(sst2: Scored, tmp_path: Path, history: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write(folder, sst2, None, history, FACTS)
    for file in folders[0].iterdir():
        assert file.read_bytes() == (folders[1] / file.name).read_bytes(), file.name


def test_predictions(sst2: Scored, stsb: Scored, tmp_path: Path, history: Path) -> None:
    write(tmp_path, sst2, None, history, FACTS)
    table = pq.read_table(tmp_path / "predictions.parquet")
    assert table.column_names == ["row", "label", "prediction", "probabilities"]
    probabilities = np.array(table["probabilities"].to_pylist())
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert (probabilities.argmax(axis=1) == table["prediction"].to_numpy()).all()
    write(tmp_path, stsb, None, history, FACTS)
    assert pq.read_table(tmp_path / "predictions.parquet").column_names == ["row", "label", "prediction"]


def test_curves_are_read(history: Path) -> None:
    found = curves.read(history, "accuracy")
    assert (len(found.steps), found.losses[:2]) == (100, [1.0, 0.5])
    assert (found.dev_steps, found.dev_metrics) == ([50, 100], [0.8, 0.9])
