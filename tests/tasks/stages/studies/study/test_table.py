"""The figures of a study: means, intervals, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from tasks.reporting.papers import METHODS
from tasks.scoring.intervals import over_seeds
from tasks.stages.studies.study.arms import find
from tasks.stages.studies.study.table import summarize
from tests.tasks.stages.studies.study.homes import arm


def study(home: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The summary, and its rows by configuration."""
    summary = summarize("SST-2", *find(home / "runs", "SST-2"))
    return summary, {row["configuration"]: row for row in summary["rows"]}


def test_means_over_seeds_beside_base(tmp_path: Path) -> None:
    arm(tmp_path, "base", 1, 0.90)
    arm(tmp_path, "full", 1, 0.91, rows_per_second=120.0, memory=8 * 10**8, bytes={"all": 2 * 10**7})
    arm(tmp_path, "full", 2, 0.93, rows_per_second=130.0, memory=8 * 10**8, bytes={"all": 2 * 10**7})
    summary, rows = study(tmp_path)
    assert (summary["metric"], summary["task"], summary["reference"]) == ("accuracy", "SST-2", "base")
    assert rows["full"]["seeds"] == [1, 2]
    assert [rows["full"][key] for key in ("metric", "rows_per_second", "wire")] == pytest.approx([0.92, 125, 4e5])
    relative = {"metric": 0.02, "steps": 0.0, "rows_per_second": 0.25, "memory": -0.2, "wire": -0.8, "seconds": 0.0}
    assert rows["full"]["relative"] == pytest.approx(relative)


def test_one_seed_has_the_interval_of_its_dev_rows_and_two_have_students(tmp_path: Path) -> None:
    arm(tmp_path, "base", 1, 0.90)
    arm(tmp_path, "full", 1, 0.91)
    arm(tmp_path, "full", 2, 0.93)
    _, rows = study(tmp_path)
    assert (rows["base"]["interval"], rows["base"]["interval_over"]) == (pytest.approx([0.88, 0.92]), "dev rows")
    assert rows["full"]["interval"] == pytest.approx((0.92 - 0.1270620, 0.92 + 0.1270620))  # 12.70620 * 0.01
    assert rows["full"]["interval_over"] == "seeds"


def test_students_interval_is_scipys() -> None:
    values = [0.9, 0.91, 0.935, 0.92]
    assert over_seeds(values) == pytest.approx(stats.ttest_1samp(values, 0).confidence_interval(0.95))


def test_a_figure_that_was_not_measured_is_none(tmp_path: Path) -> None:
    arm(tmp_path, "base", 1, bytes={"all": 0}, seconds=None)
    arm(tmp_path, "full", 1, None)
    arm(tmp_path, "full", 2, 0.9, steps=0, rows_per_second=None)
    _, rows = study(tmp_path)
    assert [rows["full"][key] for key in ("metric", "interval", "wire", "rows_per_second")] == [None] * 4
    assert rows["full"]["relative"]["memory"] == 0
    assert [rows["full"]["relative"][key] for key in ("metric", "rows_per_second", "wire", "seconds")] == [None] * 4
    assert rows["base"]["wire"] == 0 and rows["base"]["relative"]["wire"] is None


def test_the_difference_is_tested_over_dev_rows_and_seeds(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        arm(tmp_path, "default", seed, right=[row % 4 > 0 for row in range(400)])
        arm(tmp_path, "focal", seed, right=[row % 4 > 0 for row in range(400)])
        arm(tmp_path, "lexicon", seed, right=[row % 10 > 0 for row in range(400)])
        arm(tmp_path, "average", seed, right=[True] * 300)  # of other rows
    _, rows = study(tmp_path)
    assert rows["default"]["difference"] is None and rows["average"]["difference"] is None
    assert rows["focal"]["values"] == [0.75] * 3 and rows["focal"]["difference"]["value"] == 0
    found = rows["lexicon"]["difference"]
    assert found["value"] == pytest.approx(0.15) and found["p"] < 0.01
    low, high = found["interval"]
    assert 0.08 < low < 0.12 < 0.18 < high < 0.22
    assert rows["lexicon"]["papers"] and not rows["default"]["papers"]


def test_without_base_the_first_there_is_is_the_reference(tmp_path: Path) -> None:
    arm(tmp_path, "full")
    arm(tmp_path, "mixed-precision")
    assert study(tmp_path)[0]["reference"] == "mixed-precision"


def test_the_papers_table_stands_beside_ours(tmp_path: Path) -> None:
    arm(tmp_path, "topk")
    assert study(tmp_path)[0]["table_5"] == []
    arm(tmp_path, "base")
    summary, rows = study(tmp_path)
    table = {row["configuration"]: row for row in summary["table_5"]}
    assert list(table) == list(METHODS) and table["full"]["ours"] is None
    assert table["base"]["ours"] == rows["base"]
    assert [table[name]["paper"]["accuracy"] for name in table] == [90.5, 91.2, 91.8, 92.2, 92.7]
    assert table["full"]["paper"] == {"accuracy": 92.7, "throughput": 37.2, "memory": 58.3}
