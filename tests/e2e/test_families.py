"""`make run EXPERIMENT=my.yaml` with an encoder of each family, a folder as the Hugging Face hub has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.make_run import ROOT, make_run

pytestmark = pytest.mark.long

FAMILIES = ("bert", "distilbert", "electra", "mpnet", "roberta", "modernbert", "albert", "xlm-roberta", "deberta-v2")
EXPERIMENT = """
model: {{name: {encoder}, pooling: native}}
preprocessing: {{sample: 0.1, max_length: 64}}
training: {{epochs: 1, ranks: 1}}
gate: {{accuracy: 0.0, beat_baseline: false}}  # the weights are random
"""
#: What runs in the environment of the stages, which has transformers.
MAKE = """
import sys
from pathlib import Path
from tests.tasks.encoder.families import family
family(Path(sys.argv[1]), sys.argv[2])
"""
AGREEMENT = """
import sys
import pyarrow.parquet as pq
from transformers import pipeline
model, texts, predictions = sys.argv[1:]
sentences = pq.read_table(texts).sort_by("row")["sentence1"].to_pylist()
predicted = pq.read_table(predictions)["predicted_label"].to_pylist()
classify = pipeline("text-classification", model=model, device="cpu")
answers = classify(sentences, batch_size=32, truncation=True, max_length=64)
print(sum(answer["label"] == label for answer, label in zip(answers, predicted, strict=True)) / len(predicted))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of all runs, which share the validated data."""
    return tmp_path_factory.mktemp("home")


def in_tasks(code: str, *arguments: Path | str) -> str:
    """Run Python code in the environment of the stages, and return what it prints."""
    python = [str(ROOT / ".venv/tasks/bin/python"), "-c", code, *map(str, arguments)]
    return subprocess.run(python, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout


def result_of(record: dict[str, Any], stage: str) -> dict[str, Any]:
    result: dict[str, Any] = record["stages"][stage]["result"]
    return result


@pytest.mark.parametrize("kind", FAMILIES)
def test_an_encoder_of_the_family_runs_from_text_to_submission(home: Path, tmp_path: Path, kind: str) -> None:
    encoder, experiment = tmp_path / kind, tmp_path / "my.yaml"
    in_tasks(MAKE, encoder, kind)
    experiment.write_text(EXPERIMENT.format(encoder=encoder))
    code, output = make_run(home, experiment=str(experiment))
    assert code == 0, output
    newest = max(home.glob("runs/*/run.json"), key=lambda path: path.stat().st_mtime)
    record = json.loads(newest.read_text())
    assert record["experiment"]["model"]["name"] == str(encoder)
    offered = {form["name"] for form in result_of(record, "package")["forms"] if form["offered"]}
    assert {"torch-fp32", "onnxruntime-fp32", "openvino-fp32"} <= offered
    assert Path(result_of(record, "export")["artifact"], "submission.zip").is_file()

    made = {stage: Path(result_of(record, stage)["artifact"]) for stage in ("validate", "train", "predict")}
    files = made["train"] / "model", made["validate"] / "test.parquet", made["predict"] / "predictions.parquet"
    assert float(in_tasks(AGREEMENT, *files)) >= 0.998
