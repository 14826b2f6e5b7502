"""Rows with several labels: how files write them, and what stops the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.named_experiments import build
from include.stages import BadInput, ExitCode
from tests.tasks.stages.pipeline.validate.made_up import rules, validate

CELLS = ["acting|plot", "", "plot", " plot | acting ", "music"]
EXPECTED = ["101", "000", "001", "101", "010"]


def experiment(folder: Path, **data: Any) -> Experiment:
    own = {
        "task": "multi-label", "source": "files", "path": str(folder), "labels": ["acting", "music", "plot"],
        "train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv",
    }  # fmt: skip
    return build({"data": own | data}, "test")


def write(folder: Path, split: str, cells: list[str]) -> None:
    rows = [f"{split} sentence {number}\t{cell}" for number, cell in enumerate(cells)]
    (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "dev", "test"):
        write(tmp_path, split, CELLS * 20)
    return tmp_path


def labels(path: Path, split: str) -> list[str]:
    found: list[str] = pq.read_table(path / f"{split}.parquet")["label"].to_pylist()
    return found


def test_an_empty_cell_is_a_row_without_a_label(folder: Path) -> None:
    artifact = validate(folder, experiment(folder))
    assert artifact.manifest.exit_code == ExitCode.DONE
    assert labels(artifact.path, "train") == labels(artifact.path, "dev") == EXPECTED * 20
    assert labels(artifact.path, "test") == [None] * 100
    assert artifact.manifest.result["warnings"] == []


def test_lists_in_a_parquet_file_need_no_separator(folder: Path) -> None:
    lists = [[name.strip() for name in cell.split("|")] if cell else [] for cell in CELLS]
    lists[1] = None  # type: ignore[call-overload]
    texts = [f"train sentence {number}" for number in range(5)]
    pq.write_table(pa.table({"sentence": texts, "label": pa.array(lists)}), folder / "train.parquet")
    artifact = validate(folder, experiment(folder, train="train.parquet"))
    assert labels(artifact.path, "train") == EXPECTED


def test_an_unknown_label_is_named_with_its_row(folder: Path) -> None:
    write(folder, "train", [*CELLS * 20, "plot|sound", "plot;music"])
    artifact = validate(folder, experiment(folder))
    assert artifact.manifest.exit_code == ExitCode.BAD_INPUT
    separated = "is not one of acting, music, plot (labels are separated by data.label_separator, '|')"
    for line, label in ((102, "sound"), (103, "plot;music")):
        assert f"line {line}: label {label!r} {separated}" in artifact.manifest.message


def test_a_missing_column_is_told_with_the_remedy(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"train.tsv has no column 'labels' for the role label; found: sentence, label"):
        validate(folder, experiment(folder, columns={"label": "labels"}))


def test_a_text_with_the_same_labels_in_another_order_is_no_contradiction(folder: Path) -> None:
    rows = ["one\tplot|acting", "one\tacting|plot", "two\tplot", "Two \tmusic", *(f"{n}\tmusic" for n in range(60))]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    found = rules(validate(folder, experiment(folder)))
    assert found["train", "contradictory labels"]["observed"] == 2
    assert found["train", "duplicates"]["observed"] == 4


def test_a_rare_label_is_a_warning_and_a_single_set_stops_the_run(folder: Path) -> None:
    write(folder, "train", ["plot", "acting"] * 60)
    artifact = validate(folder, experiment(folder))
    assert "train: label balance: 0 of 120 rows have the label music" in " ".join(artifact.manifest.result["warnings"])
    write(folder, "train", [""] * 60)
    stopped = validate(folder, experiment(folder))
    assert "train: one class only: 1 different labels" in stopped.manifest.message


def test_overlaps_are_removed_from_train(folder: Path) -> None:
    (folder / "dev.tsv").write_text("sentence\tlabel\nTrain, sentence 0.\tplot\nmore\tmusic\nless\t\n" + "".join(
        f"dev {number}\tacting\n" for number in range(40)
    ))  # fmt: skip
    artifact = validate(folder, experiment(folder))
    assert artifact.manifest.result["overlap_removed"] == 1
