"""GLUE from the hub, out of a cache of the hub's own library that is made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from datasets.arrow_writer import ArrowWriter

from include.stages import ExitCode

ROWS = 40
FEATURES = datasets.Features(
    {
        "question": datasets.Value("string"),
        "sentence": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["entailment", "not_entailment"]),
        "idx": datasets.Value("int32"),
    }
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QNLI as `datasets` keeps it after a download."""
    cache = tmp_path_factory.mktemp("hub")
    folder = cache / "nyu-mll___glue" / "qnli" / "0.0.0" / "0123456789abcdef"
    folder.mkdir(parents=True)
    info = datasets.DatasetInfo(features=FEATURES, config_name="qnli", dataset_name="glue", version="0.0.0")
    info.splits = datasets.SplitDict({split: _write(folder, split) for split in ("train", "validation", "test")})
    info.write_to_directory(str(folder))
    return cache


def _write(folder: Path, split: str) -> datasets.SplitInfo:
    with ArrowWriter(path=str(folder / f"glue-{split}.arrow"), features=FEATURES) as writer:
        for number in range(ROWS):
            label = -1 if split == "test" else number % 2
            question, sentence = f"{split} question {number}", f"answer {number}"
            writer.write({"question": question, "sentence": sentence, "label": label, "idx": number})
        examples, size = writer.finalize()
    return datasets.SplitInfo(split, num_examples=examples, num_bytes=size, dataset_name="glue")


def validate(root: Path, cache: Path, task: str) -> subprocess.CompletedProcess[str]:
    experiment = json.dumps({"data": {"task": task, "source": "hub"}})
    command = [sys.executable, "-m", "tasks", "validate", "--experiment", experiment, "--run", str(root / "runs/first")]
    environment = {**os.environ, "HF_DATASETS_CACHE": str(cache), "HF_HOME": str(root / "home")}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_cached_rows_keep_their_order_and_label_ids(tmp_path: Path, cache: Path) -> None:
    done = validate(tmp_path, cache, "QNLI")
    assert done.returncode == ExitCode.DONE, done.stderr
    result = json.loads(done.stdout)
    assert result["rows"] == {"train": ROWS, "dev": ROWS, "test": ROWS}
    dev, test = (pq.read_table(Path(result["artifact"]) / f"{split}.parquet").to_pylist() for split in ("dev", "test"))
    assert dev[1] == {
        "row": 1, "line": 2, "sentence1": "validation question 1", "sentence2": "answer 1", "label": 1,
    }  # fmt: skip
    assert [row["row"] for row in test] == list(range(ROWS))


def test_what_is_not_cached_is_not_fetched(tmp_path: Path, cache: Path) -> None:
    done = validate(tmp_path, cache, "RTE")
    assert done.returncode == ExitCode.BAD_INPUT
    assert "nyu-mll/glue/rte/train is not in the hub's local cache" in done.stderr
    assert "fetch it with `make fetch`, or set runtime.download" in done.stderr
    assert done.stdout == ""
