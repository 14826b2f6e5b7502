"""Data that must stop the run: what is said, how it ends, and that nothing half-written stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, ExitCode
from tests.tasks.stages.pipeline.validate import made_up

MANY = [f"new sentence {number}\t1".encode() for number in range(60)]


def refused(root: Path, experiment: Experiment) -> str:
    """The message of a run that ends with evidence and exit code 2, and that no later stage accepts."""
    artifact = made_up.validate(root, experiment)
    assert artifact.manifest.exit_code == ExitCode.BAD_INPUT
    assert (artifact.path / "data_docs" / "index.html").is_file()
    with pytest.raises(BadInput, match="validate failed in the run first"):
        Run(root / "work" / "runs" / "first").artifact("validate")
    return artifact.manifest.message


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("train", [b"a\t2", b"b\t", b"c\t1.0"],
         "train: quarantine limit: 3 of 203 rows cannot be used (line 202: label '2' is not one of 0, 1; line 203: "
         "label '' is not one of 0, 1; line 204: label '1.0' is not one of 0, 1); correct the rows that "
         "quarantine.jsonl "
         "lists (validation.max_quarantine is 0.01)"),
        ("dev", [b"{observed} caf\xe9\t1"],
         "dev: quarantine limit: 1 of 41 rows cannot be used (line 42: broken encoding: byte 0xe9 is not UTF-8)"),
        ("test", [b"40\t "],
         "test: quarantine limit: 1 of 41 rows cannot be used (line 42: empty text); correct the rows that "
         "quarantine.jsonl lists (every test row needs a prediction)"),
        ("test", [b"39\tduplicate index"], "line 42: index '39', expected 40"),
        ("dev", [f"train sentence {number}\t1".encode() for number in range(3)],
         "dev: overlap limit: 3 of 43 rows also occur in train; train and this split are not independent: "
         "split the data again, or raise validation.max_overlap (0.05)"),
    ],
)  # fmt: skip
def test_too_many_bad_rows_stop_the_run(tmp_path: Path, file: str, rows: list[bytes], message: str) -> None:
    folder = made_up.write_sst2(tmp_path)
    made_up.append(folder / f"{file}.tsv", *rows)
    assert message in refused(tmp_path, made_up.sst2(tmp_path))


def test_what_follows_from_rows_that_were_set_aside_is_not_told_too(tmp_path: Path) -> None:
    folder = made_up.write_sst2(tmp_path)
    train = folder / "train.tsv"
    train.write_text(train.read_text().replace("\t1\n", "\tYes\n").replace("\t0\n", "\tNo\n"))
    message = refused(tmp_path, made_up.sst2(tmp_path))
    assert message.startswith("the data cannot be used. train: quarantine limit: 200 of 200 rows cannot be used")
    assert message.count("train: ") == 1
    warnings = Run(tmp_path / "work/runs/first").record()["stages"]["validate"]["result"]["warnings"]
    assert not any("cannot be used" in warning for warning in warnings)


def test_one_class_only_stops_the_run(tmp_path: Path) -> None:
    folder = made_up.write_sst2(tmp_path)
    (folder / "train.tsv").write_bytes(b"\n".join([b"sentence\tlabel", *MANY]))
    message = refused(tmp_path, made_up.sst2(tmp_path))
    assert "train: one class only: 1 different labels; a model needs at least two labels to learn" in message


def test_a_split_without_a_usable_row_stops_the_run(tmp_path: Path) -> None:
    folder = made_up.write_sst2(tmp_path)
    (folder / "dev.tsv").write_bytes(b"sentence\tlabel\nlost\t7\n")
    message = refused(tmp_path, made_up.sst2(tmp_path, max_quarantine=1))
    assert "dev: row count: 0 usable rows; add usable rows to the split" in message


def test_limits_can_be_raised(tmp_path: Path) -> None:
    folder = made_up.write_sst2(tmp_path)
    made_up.append(folder / "dev.tsv", b"a\t2", *(f"train sentence {number}\t1".encode() for number in range(3)))
    artifact = made_up.validate(tmp_path, made_up.sst2(tmp_path, max_quarantine=0.1, max_overlap=0.1))
    assert artifact.manifest.message == ""
    assert artifact.manifest.result["overlap_removed"] == 3


def test_an_unbalanced_class_is_a_warning(tmp_path: Path) -> None:
    folder = made_up.write_sst2(tmp_path)
    (folder / "train.tsv").write_bytes(b"\n".join([b"sentence\tlabel", *MANY, b"but\t0"]))
    artifact = made_up.validate(tmp_path, made_up.sst2(tmp_path))
    assert "train: class balance: 1 of 61 rows are negative" in " ".join(artifact.manifest.result["warnings"])
    assert artifact.manifest.exit_code == ExitCode.DONE


@pytest.mark.parametrize(
    ("score", "reason"),
    [("5.1", "score 5.1 is not between 0 and 5"), ("five", "score 'five' is not a number"), ("nan", "score nan is")],
)
def test_scores_outside_the_range_stop_the_run(tmp_path: Path, score: str, reason: str) -> None:
    for split in ("train", "dev", "test"):
        rows = [f"{split} {number}\t{number % 5}" for number in range(20)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    made_up.append(tmp_path / "train.tsv", b"", f"wrong\t{score}".encode())
    data = {"task": "regression", "source": "files", "path": str(tmp_path), "score_range": (0, 5)}
    assert reason in refused(tmp_path, Experiment.model_validate({"data": data}))


@pytest.mark.parametrize("content", [None, b"", b"sentence\tlabel\n", b"label\tsentence\n1\tx\n"])
def test_an_unusable_file_leaves_nothing_behind(tmp_path: Path, content: bytes | None) -> None:
    """Through the command line: exit code 2, one message that names the file, no result and no artifact."""
    folder = made_up.write_sst2(tmp_path)
    (folder / "dev.tsv").unlink()
    if content is not None:
        (folder / "dev.tsv").write_bytes(content)
    experiment = made_up.sst2(tmp_path).model_dump_json()
    command = [sys.executable, "-m", "tasks", "validate", "--experiment", experiment]
    done = subprocess.run([*command, "--run", tmp_path / "work/runs/first"], capture_output=True, text=True)
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stdout == ""
    assert "ERROR tasks: " in done.stderr
    assert "SST-2/dev.tsv" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "work" / "artifacts").rglob("*.*"))
