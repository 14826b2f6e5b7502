"""The stage study as the command line runs it: its files, what is escaped, and when it is found again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from include.artifacts import Artifact
from include.named_experiments import load
from include.runs import Run
from include.stages import BadInput
from tasks.__main__ import main
from tasks.runner import run_stage
from tests.tasks.stages.studies.study.homes import arm

EVIL = "<script>alert('1 & 2')</script> | *x* $\\frac$"


def study(home: Path, name: str = "SST-2") -> Artifact:
    return run_stage("study", load("movies", [f"study.name='{name}'"]), Run(home / "runs" / "study"))


@pytest.fixture
def table_5(tmp_path: Path) -> Path:
    """The five arms of table 5 with one seed, and another of two."""
    for place, name in enumerate(("base", "dynamic-batching", "mixed-precision", "gradient-compression", "full")):
        arm(tmp_path, name, 1, 0.9 + place / 200, rows_per_second=100.0 + 7 * place, memory=10**9 - place * 10**7)
    for seed in (1, 2):
        arm(tmp_path, "topk", seed, 0.89 + seed / 100)
    return tmp_path


def test_the_command_line_writes_the_study(table_5: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "--run", str(table_5 / "runs/study"), "--set", "study.name=SST-2"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["study"], result["arms"], result["configurations"], result["warnings"]) == ("SST-2", 7, 6, [])
    folder = Path(result["artifact"])
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "manifest.json", "study.json", "study.md", "report.html", "metric.png", "tradeoff.png",
    }  # fmt: skip
    html = (folder / "report.html").read_text()
    assert html.count("data:image/png;base64,") == 2 and not re.search(r'(src|href)="(?!data:)', html)
    assert set(result["files"].values()) <= names
    markdown = (folder / "study.md").read_text()
    assert (
        "| full | 1 | 0.9200 | 0.9000 to 0.9400 (over dev rows) | +0.0200 | 50 (+0.0 %) | 128 (+28.0 %) |" in markdown
    )
    assert "| full | 92.7 % | +37.2 % | -58.3 % | 92.0 % | +28.0 % | -4.0 % |" in markdown
    assert len({line.count(" | ") for line in markdown.splitlines() if "over dev rows" in line}) == 1


def test_it_is_found_again_until_an_arm_changes(table_5: Path) -> None:
    first = study(table_5)
    assert study(table_5).path == first.path
    arm(table_5, "base", 1, 0.5, run="again", finished="2026-02-01T00:00:00+00:00")
    again = study(table_5)
    assert again.path != first.path
    (table_5 / "runs/again/run.json").unlink()
    assert study(table_5).manifest.result["warnings"][0].startswith("base with seed 1 is left out: the run again has")


def test_what_stands_in_the_records_is_escaped(tmp_path: Path) -> None:
    arm(tmp_path, EVIL, study="SST-2", run="evil")
    arm(tmp_path, "base", run="<b>gone").file.unlink()
    folder = study(tmp_path).path
    html = (folder / "report.html").read_text()
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>" not in html
    markdown = (folder / "study.md").read_text()
    assert r"\<script\>alert('1 & 2')\</script\> \| \*x\*" in markdown and "<b>" not in markdown


def test_differences_have_intervals_and_claims_stand_next_to_them(tmp_path: Path) -> None:
    for seed in (1, 2):
        arm(tmp_path, "default", seed, right=[row % 4 > 0 for row in range(400)])
        arm(tmp_path, "domain-pretraining", seed, right=[row % 10 > 0 for row in range(400)])
    markdown = (study(tmp_path).path / "study.md").read_text()
    (row,) = (line for line in markdown.splitlines() if line.startswith("| domain-pretraining"))
    assert re.search(r"0\.9000 \(0\.9000, 0\.9000\) .* \+0\.1500 \(\+0\.\d+ to \+0\.\d+, p = 0\.\d+\)", row)
    assert row.endswith("| SST-2 0.9040 to 0.9090, of 10,000 rows |")
    assert markdown.count("| papers |") == 1


def test_missing_figures_are_dashes(tmp_path: Path) -> None:
    arm(tmp_path, "topk", accuracy=None, rows_per_second=None, bytes={}, seconds=None, memory=None)
    folder = study(tmp_path).path
    assert not (folder / "metric.png").exists() and not (folder / "tradeoff.png").exists()
    assert "| topk | 1 | — | — |  | 50 | — | — | — | — |" in (folder / "study.md").read_text()
    html = (folder / "report.html").read_text()
    assert "the first configuration, because the study has no <em>base</em>" in html


def test_an_unknown_study_is_bad_input(table_5: Path) -> None:
    with pytest.raises(BadInput, match=r"'CoLA'; existing studies: SST-2"):
        study(table_5, "CoLA")
