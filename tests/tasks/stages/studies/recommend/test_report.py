"""The report of a search: what it says, its plots, and what it does without a winner or with one trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.reporting.drawing import save
from tasks.stages.studies.recommend import plots, report
from tests.searches import summary

HOSTILE = "<img src=x onerror=alert(1)>|$x$"


def pages(content: dict[str, Any], folder: Path) -> tuple[str, str, set[str]]:
    """The page, the Markdown, and the names of the plots."""
    drawn = {plot.__name__: plot(content) for plot in (plots.progress, plots.importance, plots.coordinates)}
    files = {name: folder / f"{name}.png" for name, figure in drawn.items() if figure}
    for name, file in files.items():
        figure = drawn[name]
        assert figure
        save(figure, file)
    return report.html(content, files), report.markdown(content), set(files)


def test_the_recommendation_comes_first_with_the_test_in_words(tmp_path: Path) -> None:
    content = summary()
    best = content["trials"][content["best"]]
    html, markdown, drawn = pages(content, tmp_path)
    assert f"<h1>The settings of trial {best['number']} are better than the default</h1>" in html
    words = "95 % interval +0.0031 to +0.0247. p is 0.011 on 872 dev rows."
    assert words in html and words in markdown and html.index(words) < html.index("The best trials")
    assert "| 2 | 0.8911 | 0.9025 |" in markdown and "| mean | 0.8894 | 0.9033 |" in markdown
    assert "18 trials (3 complete, 14 paused, 1 failed) in 29.0 of 30 minutes" in markdown
    assert drawn == {"progress", "importance", "coordinates"} and html.count("data:image/png") == 3


def test_trials_that_have_come_further_come_first(tmp_path: Path) -> None:
    lines = pages(summary(), tmp_path)[1].splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| trial | accuracy"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : start + 12]]
    rungs = [int(row[2]) for row in rows]
    assert rungs == sorted(rungs, reverse=True) and rungs[0] == 3 and len(rows) == report.BEST
    for rung in (3, 2):
        scores = [float(row[1]) for row in rows if row[2] == str(rung)]
        assert scores == sorted(scores, reverse=True)


def test_no_winner_is_recommended_where_chance_explains_it(tmp_path: Path) -> None:
    html, markdown, _ = pages(summary(recommended="default"), tmp_path)
    assert "<h1>Keep the default settings</h1>" in html and "no more than chance may do. p is 0.43" in markdown


def test_the_default_itself_may_be_the_best(tmp_path: Path) -> None:
    content = summary(trials=1)
    none: dict[str, Any] = {"runs": [], "values": [], "mean": None}
    unknown = {"seeds": [], "rows": 0, "difference": None, "interval": None, "p": None, "recommended": "default"}
    content["comparison"] |= {"winner": none, "default": none, **unknown}
    html, markdown, drawn = pages(content, tmp_path)
    assert "undefined" not in html and f"accuracy of trial {content['best']}" in html
    assert "Seeds: accuracy" not in html and "| seed |" not in markdown
    assert drawn == {"progress"} and "too few trials" in html


@pytest.mark.filterwarnings("error")
def test_choices_of_any_kind_are_drawn_and_escaped(tmp_path: Path) -> None:
    choices = [HOSTILE, None, [1, 2], True]
    content = summary(trials=4)
    content |= {"search": HOSTILE, "space": {"loss.kind": {"choices": choices}}, "default": {"loss.kind": HOSTILE}}
    for trial, choice in zip(content["trials"], choices, strict=True):
        trial["values"] = {"loss.kind": choice}
    html, markdown, _ = pages(content, tmp_path)
    assert "<img src=x" not in html and "\\<img src=x" in markdown and "\\|$x$" in markdown


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-5, "1e-5"), (1.234e-4, "1.234e-4"), (0.05, "0.05"), (2.0, "2"), (3, "3"), ("a", "a"), (True, "true")],
)
def test_values_are_written_as_people_write_them(value: Any, text: str) -> None:
    assert plots.written(value) == text
