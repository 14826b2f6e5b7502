"""What `make run` says at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from include.artifacts import write_json
from include.runs import Run
from spark_bert.summary import summary

VALIDATED: dict[str, Any] = {
    "artifact": "/home/validate/1", "files": {"data_docs": "data_docs/index.html"}, "rows": {"train": 1200, "dev": 100},
    "quarantined": 2, "overlap_removed": 3, "warnings": ["train: 5 of 1,200 rows share their text", "dev: odd"],
}  # fmt: skip
CHECKS: list[dict[str, Any]] = [
    {"metric": "accuracy", "slice": "", "value": 0.9, "threshold": 0.85, "baseline": 0.5625},
    {"metric": "accuracy", "slice": "length:long", "value": 0.8, "threshold": 0.7, "baseline": None},
]


def said(tmp_path: Path, **stages: dict[str, Any]) -> list[str]:
    """The summary's lines for a run with these stages."""
    run = Run(tmp_path / "runs" / "one")
    run.folder.mkdir(parents=True)
    write_json(run.file, {"run": "one", "stages": stages})
    return summary(run).splitlines()


def done(result: dict[str, Any]) -> dict[str, Any]:
    """The record of a stage that ended well."""
    return {"key": "1", "exit_code": 0, "message": "", "result": result}


def test_every_warning_is_told_below_its_stage(tmp_path: Path) -> None:
    *_, stage, first, second = said(tmp_path, validate=done(VALIDATED))
    assert stage.startswith("validate    train 1,200, dev 100 rows; 2 set aside, 3 removed as overlap; 2 warnings: ")
    assert first.strip() == "warning: train: 5 of 1,200 rows share their text"
    assert second.strip() == "warning: dev: odd"


def test_a_stage_that_failed_tells_why_and_its_warnings(tmp_path: Path) -> None:
    failed = {"key": "1", "exit_code": 2, "message": "the data cannot be used", "result": VALIDATED}
    *_, stage, first, _ = said(tmp_path, validate=failed)
    assert (stage, first.strip()[:8]) == ("validate    the data cannot be used", "warning:")
    broken = {"exit_code": 75, "message": "no space left", "key": ""}
    *_, first, second = said(tmp_path / "broken", validate=broken, predict=broken)
    assert (first, second) == ("validate    no space left", "predict     no space left")


def test_the_gates_numbers_and_its_baseline(tmp_path: Path) -> None:
    gate = {"artifact": "/home/gate/1", "files": {"verdict": "verdict.json"}, "checks": CHECKS}
    assert said(tmp_path, gate=done(gate))[-1] == (
        "gate        passed (accuracy 0.9000, threshold 0.85, baseline 0.5625; "
        "accuracy on length:long 0.8000, threshold 0.7): /home/gate/1/verdict.json"
    )


def test_a_trainings_line_says_what_it_ran_on(tmp_path: Path) -> None:
    result = {"rows_per_second": 157.4, "seconds": 51.2, "ranks": 1, "threads": 2, "device": "cpu"}
    *_, line = said(tmp_path, train=done(result))
    assert line == "train       157 rows/s in 51 s on 1 rank x 2 threads (cpu)"
