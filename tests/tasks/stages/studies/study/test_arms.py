"""Which runs are a study's arms, and what is said of those that cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from include.stages import BadInput
from tasks.stages.studies.study.arms import by_configuration, find
from tests.tasks.stages.studies.study.homes import arm


def test_the_newest_of_a_configuration_and_seed_counts(tmp_path: Path) -> None:
    arm(tmp_path, "base", 1, run="a", finished="2026-01-02T12:00:00+00:00")
    arm(tmp_path, "base", 1, run="b", finished="2026-01-02T11:30:00-01:00")
    arm(tmp_path, "base", 2, run="c")
    arm(tmp_path, "base", 1, run="d", study="CoLA", finished="2026-02-01T00:00:00+00:00")
    arms, warnings = find(tmp_path / "runs", "SST-2")
    assert [one.metadata.run for one in arms] == ["b", "c"] and warnings == []


def test_without_arms_the_studies_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="existing studies: none: run the Dag ablation first"):
        find(tmp_path / "runs", "SST-2")
    arm(tmp_path, "base", study="SST-2-0a1b2c")
    arm(tmp_path, "base", study="CoLA")
    with pytest.raises(BadInput, match=r"an arm of study.name ''; existing studies: CoLA, SST-2-0a1b2c"):
        find(tmp_path / "runs", "")


def test_what_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    arm(tmp_path, "base")
    vanished, damaged, broken, headless = (arm(tmp_path, name) for name in ("full", "topk", "onebit", "int4"))
    vanished.file.unlink()
    damaged.artifact("evaluate").path.joinpath("metrics.json").write_text("{}")
    broken.file.write_text('{"stages": {')
    (headless.folder / "arm.json").write_text('{"study": "SST-2"')
    arms, warnings = find(tmp_path / "runs", "SST-2")
    assert [one.metadata.configuration for one in arms] == ["base"]
    said = "\n".join(warnings)
    assert "full with seed 1 is left out: the run ablation-SST-2-full-1 has no evaluate yet" in said
    assert "metrics.json is missing or damaged: remove" in said
    assert "onebit with seed 1 is left out" in said and "run.json is damaged" in said
    assert "ablation-SST-2-int4-1/arm.json is damaged and left out, so its study is unknown" in said
    assert len(warnings) == 4


def test_a_study_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    shutil.rmtree(arm(tmp_path, "base").artifact("evaluate").path)
    with pytest.raises(BadInput, match=r"no arm of the study SST-2 can be read: base with seed 1 .* is gone"):
        find(tmp_path / "runs", "SST-2")


def test_configurations_come_in_the_lists_order_and_strangers_last(tmp_path: Path) -> None:
    for name in ("full", "base", "a stranger"):
        arm(tmp_path, name)
    arms, _ = find(tmp_path / "runs", "SST-2")
    assert [name for name, _ in by_configuration(arms, ["base", "topk", "full"])] == ["base", "full", "a stranger"]
