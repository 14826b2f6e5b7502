"""The files that people open: numbers, escaping, self-containment."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import warnings
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.stages import BadInput
from tasks.scoring.intervals import of_share
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.evaluate import plots
from tasks.stages.pipeline.evaluate.explaining import tinted
from tasks.stages.pipeline.evaluate.rows import kept_of
from tests.tasks.stages.pipeline.evaluate.made_up import made_up, of_classes, of_labels, write_report

PNG = b"\x89PNG\r\n\x1a\n"
PLOTS = {
    "SST-2": {"operating", "reliability", "risk", "training"},
    "MNLI": {"reliability", "risk", "training"},
    "STS-B": {"scatter", "errors", "training"},
}


@pytest.mark.parametrize("name", PLOTS)
def test_writes_everything(name: str, tmp_path: Path, history: Path) -> None:
    dev = made_up(name)
    summary = write_report(tmp_path, dev, None, history)
    assert json.loads((tmp_path / "metrics.json").read_text())["metrics"] == summary["metrics"]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == summary["rows"]
    assert {file.stem for file in tmp_path.glob("*.png")} == PLOTS[name]
    assert all(file.read_bytes().startswith(PNG) for file in tmp_path.glob("*.png"))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("data:image/png;base64,") == len(PLOTS[name])
    assert f"{summary['metrics'][dev.task.metric]:.4f}" in html
    assert all(f"{value:.4f}" in html for value in summary["interval"])
    assert all(fact in html for fact in ("0123456789abcdef", "f00ba4", "all-MiniLM-L6-v2"))


def test_dollar_signs_in_label_names_are_no_formula(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    names = ("under $10_0$", r"over $\nothing$")
    dev = dataclasses.replace(sst2, task=dataclasses.replace(sst2.task, label_names=names))
    html = page_of(tmp_path, dev, history)
    assert all(name in html for name in names)


def test_explained_words_are_tinted_where_they_stand_in_the_texts() -> None:
    words = [
        {"word": "a", "text": 1, "contribution": {"x": 0.5, "y": -0.1}},
        {"word": "a", "text": 1, "contribution": {"x": -0.25, "y": 0.0}},
        {"word": "b", "text": 2, "contribution": {}},
    ]
    first, second = tinted(("is a, a", "b"), words)
    assert first == [
        ("is ", None, ""),
        ("a", 1, "x +0.500, y -0.100"),
        (", ", None, ""),
        ("a", -0.5, "x -0.250, y +0.000"),
        ("", None, ""),
    ]
    assert second == [("", None, ""), ("b", 0, ""), ("", None, "")]
    [[_, faint, _]] = tinted(("a",), [{"word": "a", "contribution": 0.02}])
    assert faint.share == pytest.approx(0.2) and faint.title == "+0.020"


def test_the_text_of_a_mistake_is_escaped(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    write_report(tmp_path, sst2, None, history)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#39;1 &amp; 2&#39;)&lt;/script&gt; says &#34;this&#34;" in html


def test_a_long_text_of_a_mistake_is_folded(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    sentences = [*sst2.sentences[:-1], ("long " * 100,)]  # of the surest mistake
    html = page_of(tmp_path, dataclasses.replace(sst2, sentences=sentences), history)
    (folded,) = re.findall(r"<details><summary>(.*)…</summary>(.*)</details>", html)
    assert "".join(folded) == "long " * 100 and len(folded[0]) < 300


@pytest.mark.parametrize("paper, ink", [("#ffffff", "#23262a"), ("#161616", "#e3e4e6")])
def test_every_cell_of_the_confusion_matrix_can_be_read(
    paper: str, ink: str, sst2: ScoredSplit, tmp_path: Path, history: Path
) -> None:
    perfect = dataclasses.replace(sst2, logits=5.0 * np.eye(2)[sst2.labels])
    html = page_of(tmp_path, perfect, history)
    assert f"--paper: {paper}; --ink: {ink}" in html and "color: #ffffff" not in html
    alpha = max(map(float, re.findall(r"rgba\(49, 104, 142, ([\d.]+)\)", html)))
    cell = [alpha * over + (1 - alpha) * under for over, under in zip((49, 104, 142), _rgb(paper), strict=True)]
    light, dark = sorted((_luminance(cell), _luminance(_rgb(ink))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 4.5, "as WCAG demands of text"


def _rgb(color: str) -> list[float]:
    return [int(color[at : at + 2], 16) for at in (1, 3, 5)]


def _luminance(rgb: list[float]) -> float:
    linear = [one / 255 / 12.92 if one / 255 <= 0.04045 else ((one / 255 + 0.055) / 1.055) ** 2.4 for one in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_both_directions_of_bad_calibration_are_explained(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    html = page_of(tmp_path, sst2, history)
    assert "overconfident: it is right less often than it says" in html
    assert "underconfident: it is right more often than it says" in html


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_calibration_before_and_after_is_shown(kind: str, tmp_path: Path, history: Path) -> None:
    dev = of_labels(["acting", "plot"], 60) if kind == "labels" else of_classes(["a", "b", "c"], 60).cross_fitted()
    limits = (0.5, 0.5) if kind == "labels" else ()
    found = write_report(tmp_path, dev, None, history, limits)["calibration"]
    html = " ".join((tmp_path / "report.html").read_text(encoding="utf-8").split())
    assert found["ece"] != found["before"]["ece"]
    for figure in (found["ece"], *found["interval"], found["before"]["ece"], *found["before"]["interval"]):
        assert f"{figure:.4f}" in html
    assert "each part has the temperature that fits the others best" in html
    assert ("Each label of each row counts as a decision" in html) == (kind == "labels")
    assert (tmp_path / "reliability.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("values", [[0.7512, 0.7533], [0.97, 0.999], [0.5], [0.2, 0.9], [-0.01, 0.02]])
def test_a_small_change_of_a_metric_looks_small(values: list[float]) -> None:
    none = pd.Series([], dtype=float)
    low, high = plots.training(none, none, pd.Series(values), "accuracy").axes[1].get_ylim()
    assert high - low >= 0.2 - 1e-9 and low < min(values) and max(values) <= high <= 1


def test_needs_nothing_beside_it(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    write_report(tmp_path, sst2, None, history)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)', html)
    assert "@import" not in html


def test_an_undefined_metric_is_called_so(stsb: ScoredSplit, tmp_path: Path, history: Path) -> None:
    flat = dataclasses.replace(stsb, logits=np.full((len(stsb), 1), 2.5))
    write_report(tmp_path, flat, stsb, history)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<span class="main number">undefined</span>' in html
    assert "held out (120 rows)" in html


def test_no_mistakes(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    perfect = dataclasses.replace(sst2, logits=5.0 * np.eye(2)[sst2.labels])
    write_report(tmp_path, perfect, None, history)
    assert "None: every row is right." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_one_row_is_enough(tmp_path: Path, history: Path) -> None:
    for name in ("SST-2", "STS-B"):
        whole = made_up(name)
        write_report(tmp_path, whole.at(np.array([0])), None, history)


def test_the_same_bytes_every_time(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write_report(folder, sst2, None, history)
    for file in folders[0].iterdir():
        assert file.read_bytes() == (folders[1] / file.name).read_bytes(), file.name


def test_predictions(sst2: ScoredSplit, stsb: ScoredSplit, tmp_path: Path, history: Path) -> None:
    write_report(tmp_path, sst2, None, history)
    table = pq.read_table(tmp_path / "predictions.parquet")
    assert table.column_names == ["row", "label", "prediction", "probabilities", "temperature"]
    probabilities = np.array(table["probabilities"].to_pylist())
    assert probabilities.sum(axis=1) == pytest.approx(1)
    assert (probabilities.argmax(axis=1) == table["prediction"].to_numpy()).all()
    write_report(tmp_path, stsb, None, history)
    assert pq.read_table(tmp_path / "predictions.parquet").column_names == ["row", "label", "prediction"]


def test_curves_are_read(history: Path) -> None:
    losses = plots.read_curve(history, "loss")
    assert (len(losses), losses.tolist()[:2]) == (100, [1.0, 0.5])
    assert plots.read_curve(history, "accuracy").to_dict() == {50: 0.8, 100: 0.9}
    assert plots.read_curve(history, "dev_loss").to_dict() == {50: 0.6, 100: 0.5}


def page_of(folder: Path, dev: ScoredSplit, history: Path) -> str:
    """The report's text, without its pictures."""
    write_report(folder, dev, None, history)
    html = (folder / "report.html").read_text(encoding="utf-8")
    return re.sub(r'src="data:[^"]*"', "", html)


def test_the_title_names_data_and_run(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    html = page_of(tmp_path, sst2, history)
    assert f"<title>tickets (classification), run manual__2026-11-22: accuracy {sst2.metrics()['accuracy']:.4f}" in html


def test_threshold_baseline_and_verdict_are_shown(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    html = page_of(tmp_path, sst2, history)
    constant = max(np.bincount(sst2.labels)) / len(sst2)
    assert "<h2>Gate: failed</h2>" in html
    assert '<td class="n">at least 0.927</td>' in html and f'<td class="n">{constant:.4f}</td>' in html
    assert "below gate.accuracy = 0.927" in html


NAMES = ["好评", "差评", "😀 emoji", "$a$", 'a, "b"', "accuracy", "macro avg"]


def test_names_of_any_script_are_text_never_pictures(tmp_path: Path, history: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a glyph that it lacks
        html = page_of(tmp_path, of_classes(NAMES, 200), history)
    matrix = html[html.index("<h2>Confusion</h2>") : html.index("<h2>Confidence</h2>")]
    assert all(escape(name).replace("&quot;", "&#34;") in matrix for name in NAMES)


@pytest.mark.parametrize("classes", [2, 12, 13, 100])
def test_a_confusion_matrix_of_any_size_can_be_read(classes: int, tmp_path: Path, history: Path) -> None:
    dev = of_classes([f"topic {number}" for number in range(classes)], 600)
    html = page_of(tmp_path, dev, history)
    counts = json.loads((tmp_path / "metrics.json").read_text())["confusion"]
    wrong = np.array(counts) - np.diag(np.diag(counts))
    label, predicted = np.unravel_index(wrong.argmax(), wrong.shape)
    assert (tmp_path / "confusion.png").exists() == (classes > 12)
    assert (html.count("background: rgba") == classes**2) == (classes <= 12)
    pair = f'<td class="text">topic {label}</td><td class="text">topic {predicted}</td><td class="n">{wrong.max()}</td>'
    assert (pair in html) == (classes > 2)


def test_classes_and_slices_have_intervals(sst2: ScoredSplit, tmp_path: Path, history: Path) -> None:
    html, between = page_of(tmp_path, sst2, history), of_share(*_recall(sst2, 1))
    assert between is not None
    low, high = between
    assert f'<div class="soft">{low:.4f} to {high:.4f}</div>' in html  # of the class positive
    assert f'<td class="n">{low:.4f} to {high:.4f}</td>' in html  # of the slice label:positive


def _recall(dev: ScoredSplit, label: int) -> tuple[int, int]:
    rows = dev.labels == label
    return int((dev.predicted[rows] == label).sum()), int(rows.sum())


@pytest.mark.parametrize("name", ["SST-2", "STS-B"])
def test_every_row_stands_in_the_csv(name: str, tmp_path: Path, history: Path) -> None:
    dev = made_up(name)
    write_report(tmp_path, dev, None, history)
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in rows] == dev.rows.tolist()
    assert [row["sentence1"] for row in rows] == [texts[0] for texts in dev.sentences]
    if name == "SST-2":
        assert [row["label"] for row in rows] == [dev.task.label_names[label] for label in dev.labels]
        assert [float(row["probability:positive"]) for row in rows] == pytest.approx(dev.probabilities[:, 1].tolist())
    else:
        assert [float(row["prediction"]) for row in rows] == pytest.approx(dev.predicted.tolist())


def test_a_report_on_several_labels(tmp_path: Path, history: Path) -> None:
    dev = of_labels(("acting", "<music>", "plot"), 150)
    summary = write_report(tmp_path, dev, None, history, thresholds=(0.4, 0.55, 0.61))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert {file.stem for file in tmp_path.glob("*.png")} == {"reliability", "training"}
    for name, row in summary["labels"].items():
        assert escape(name) in html
        assert all(f"{row[figure]:.4f}" in html for figure in ("threshold", "precision", "recall", "f1"))
        recall = summary["slices"][f"label:{name}"]
        assert (recall["metric"], recall["recall"]) == ("recall", pytest.approx(row["recall"]))
        assert recall["rows"] == row["rows"]
    for metrics in (summary["metrics"], *summary["other_thresholds"].values()):
        assert all(f"{value:.4f}" in html for value in metrics.values())
    assert "&lt;music&gt;" in html and "<music>" not in html


def test_the_listing_of_several_labels(tmp_path: Path, history: Path) -> None:
    dev = of_labels(("acting", "plot"), 40)
    write_report(tmp_path, dev, None, history, thresholds=(0.5, 0.5))
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = np.array(dev.task.label_names)
    assert [row["label"] for row in rows] == ["|".join(names[labels == 1]) for labels in dev.labels]
    assert [row["prediction"] for row in rows] == ["|".join(names[labels == 1]) for labels in dev.predicted]
    assert [float(row["probability:plot"]) for row in rows] == pytest.approx(dev.probabilities[:, 1].tolist())


def test_kept_columns_of_the_dev_file_stand_in_the_csv_and_beside_the_mistakes(tmp_path: Path, history: Path) -> None:
    dev = of_classes(("no", "yes"), 40, right=0.5).at(np.arange(39, 4, -1))
    texts = {int(row): texts[0] for row, texts in zip(dev.rows, dev.sentences, strict=True)}
    kept = {"row": range(45), "Label": ["x"] * 45, "id": [f"<{row}>" for row in range(45)], "n": [0] * 45}
    pq.write_table(pa.table({**kept, "body": [texts.get(row, "") for row in range(45)]}), tmp_path / "kept.parquet")
    write_report(tmp_path, dev, None, history, kept=kept_of(tmp_path / "kept.parquet", dev))
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["body"]) for row in rows] == [(f"<{row}>", texts[int(row)]) for row in dev.rows]
    assert list(rows[0])[:6] == ["row", "id", "n", "body", "sentence1", "label"]  # its label is there already
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    wrong = int(dev.rows[np.flatnonzero(dev.labels != dev.predicted)[0]])
    assert f"<td>&lt;{wrong}&gt;</td><td>0</td>" in html and "<th>body</th>" not in html
    pq.write_table(pa.table({"row": range(39)}), tmp_path / "kept.parquet")
    with pytest.raises(BadInput, match=r"kept\.parquet has other rows than the dev split: run validate again"):
        kept_of(tmp_path / "kept.parquet", dev)
    assert kept_of(tmp_path / "nothing.parquet", dev) == {}
