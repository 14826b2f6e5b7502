"""The stage score: each row of a table gets a prediction or is set aside, and a stopped run repeats nothing."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from include.artifacts import Artifact
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.encoder.loading import load_trained
from tasks.inference import packaged_backends
from tasks.inference.parts import part_file
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tasks.launching.launch import ROOT
from tasks.runner import run_stage
from tasks.scoring.predictions import predict
from tasks.stages.labeling.score.files import write_files
from tasks.stages.labeling.score.table import take_in
from tests.tasks.sources.lakes import catalog, delete_by_position, delta, iceberg, rows
from tests.tasks.stages.labeling.score.models import CLASSES, SCORES, SETS, trained
from tests.tasks.stages.pipeline.package.packages import SENTENCES, packaged

WORDS = ["good", "bad", "film", "the", "was", "very", "dull", "it", "moved", "me", "great", "acting"]


def texts(count: int) -> list[str]:
    """Different sentences of one to twelve words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(1, 12))) for _ in range(count)]


def score(home: Path, table: Path, model: Path, run: str = "one", engine: str = "auto", **scoring: Any) -> Artifact:
    """Score a file in a run of the home."""
    given = {"input": str(table), "model": str(model), **scoring}
    experiment = build({"scoring": given, "runtime": {"engine": engine}}, "test")
    return run_stage("score", experiment, Run(home / "runs" / run))


def expected(model: Path, rows: list[tuple[str, ...]]) -> tuple[list[Any], Any]:
    """Predictions and probabilities that one process computes."""
    runner = Runner(model, TorchBackend(load_trained(model), threads=1))
    predicted, probabilities = predict(runner.head.kind, np.concatenate(list(runner.logits(rows))))
    return predicted.tolist(), probabilities


def aside(artifact: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (artifact.path / "aside.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_csv_file_comes_back_with_predictions_beside_its_columns(model: Path, tmp_path: Path) -> None:
    rows = texts(120)
    lines = [f'{number},"{text}, ""{number}"""' for number, text in enumerate(rows)]
    (tmp_path / "in.csv").write_text("\n".join(["id,review", *lines[:50], "50,", "51,a,b", *lines[50:]]) + "\n")
    artifact = score(tmp_path, tmp_path / "in.csv", model, text="review")
    table, result = pq.read_table(artifact.path / "scored.parquet"), artifact.manifest.result
    answers = ["prediction", "predicted_label", "probability", "probability:no", "probability:yes", "model_version"]
    assert table.column_names == ["id", "review", *answers]
    assert table["id"].to_pylist() == [str(number) for number in range(120)]
    predicted, probabilities = expected(model, [(f'{text}, "{number}"',) for number, text in enumerate(rows)])
    assert table["prediction"].to_pylist() == predicted and len(set(predicted)) == 2
    assert table["predicted_label"].to_pylist() == [("no", "yes")[at] for at in predicted]
    np.testing.assert_allclose(table["probability:yes"].to_numpy(), probabilities[:, 1], atol=1e-5)
    np.testing.assert_allclose(table["probability"].to_numpy(), probabilities.max(axis=1), atol=1e-5)
    assert set(table["model_version"].to_pylist()) == {result["model_version"]}
    assert result["model_version"].startswith("sha256:")
    assert (result["rows_in"], result["rows"], result["aside"]) == (122, 120, 2)
    assert [entry["line"] for entry in aside(artifact)] == [53, 52]
    assert result["reasons"] == {"empty text": 1, "wrong number of fields: 3 instead of 2": 1}
    with (artifact.path / result["files"]["scored"]).open(encoding="utf-8", newline="") as stream:
        sheet = list(csv.DictReader(stream))
    assert [row["review"] for row in sheet] == table["review"].to_pylist()
    assert [row["predicted_label"] for row in sheet] == table["predicted_label"].to_pylist()
    assert score(tmp_path, tmp_path / "in.csv", model, "two", text="review").path == artifact.path
    assert not list((tmp_path / "checkpoints/score").iterdir())


@pytest.mark.usefixtures("spark")
def test_executors_write_the_same_files_as_one_process(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("\n".join(["id,text", *(f"{at},{text}" for at, text in enumerate(texts(200)))]))
    made = [
        score(tmp_path / engine, tmp_path / "in.csv", model, engine=engine, explain=True)
        for engine in ("process", "spark")
    ]
    alone, there = (artifact.manifest.files for artifact in made)
    assert len(alone) == 3 and alone == there


def test_explanations_are_one_more_column(model: Path, tmp_path: Path) -> None:
    rows = texts(60)
    (tmp_path / "in.csv").write_text("\n".join(["text", *rows]) + "\n")
    plain = score(tmp_path, tmp_path / "in.csv", model)
    artifact = score(tmp_path, tmp_path / "in.csv", model, "two", explain=True)
    table = pq.read_table(artifact.path / "scored.parquet")
    assert table.drop_columns(["explanation"]).equals(pq.read_table(plain.path / "scored.parquet"))
    for row in table.slice(0, 5).to_pylist():
        words, label = row["text"].split(), row["prediction"]
        explained = json.loads(row["explanation"])
        assert [part["word"] for part in explained] == words
        others: list[tuple[str, ...]] = [(" ".join(words[:at] + words[at + 1 :]),) for at in range(len(words))]
        falls = row["probability"] - expected(model, others)[1][:, label]
        assert [part["contribution"] for part in explained] == pytest.approx(falls, abs=1e-5)
    with (artifact.path / "scored.csv").open(newline="") as file:
        assert [row["explanation"] for row in csv.DictReader(file)] == table["explanation"].to_pylist()


def test_a_column_with_the_name_of_explanations_is_in_their_way_only(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,Explanation\ngood film,seen twice\n")
    score(tmp_path, tmp_path / "in.csv", model)
    with pytest.raises(BadInput, match="has a column 'Explanation', a name that the predictions need: rename the col"):
        score(tmp_path, tmp_path / "in.csv", model, run="two", explain=True)


def test_a_version_of_a_table_is_scored_as_it_was(model: Path, tmp_path: Path) -> None:
    delta(tmp_path / "lake", rows(30), rows(10, 30))
    delete_by_position(iceberg(tmp_path, rows(30)), [0, 29])
    newest = score(tmp_path, tmp_path / "lake", model, text="body")
    result = newest.manifest.result
    assert result["table_version"] == "1" and set(result["files"]) == {"parquet", "aside"}
    table = pq.read_table(newest.path / "scored.parquet")
    assert sorted(table["id"].to_pylist()) == list(range(40))
    assert table["prediction"].to_pylist() == expected(model, [(text,) for text in table["body"].to_pylist()])[0]
    first = score(tmp_path, tmp_path / "lake", model, "two", text="body", version="0")
    assert pq.read_table(first.path / "scored.parquet", columns=["id"])["id"].to_pylist() == list(range(30))
    named = {"input": catalog(tmp_path), "table": "prod.shop.reviews", "text": "body", "model": str(model)}
    snapshot = run_stage("score", build({"scoring": named}, "test"), Run(tmp_path / "runs/three"))
    assert pq.read_table(snapshot.path / "scored.parquet")["id"].to_pylist() == list(range(1, 29))


def test_json_lines_lose_no_row(model: Path, tmp_path: Path) -> None:
    good = [{"text": text, "id": number, "more": {"a": [number]}} for number, text in enumerate(texts(30))]
    lines = [json.dumps(row).encode() for row in good]
    bad = [b'{"text": "cut off', b'{"text": "caf\xe9", "id": 1}', b"good film", b'{"text": null}', b'{"id": 3}']
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(b"\n".join([*lines[:10], *bad, *lines[10:]]) + b"\n"))
    artifact = score(tmp_path, tmp_path / "in.jsonl.*", model)
    table = pq.read_table(artifact.path / "scored.parquet")
    assert [{name: row[name] for name in ("text", "id", "more")} for row in table.to_pylist()] == good
    assert table["prediction"].to_pylist() == expected(model, [(str(row["text"]),) for row in good])[0]
    result = artifact.manifest.result
    assert (result["rows_in"], result["rows"]) == (35, 30)
    assert result["reasons"] == {"not a JSON object": 2, "broken encoding: byte 0xe9 is not UTF-8": 1, "no text": 2}
    assert [entry["line"] for entry in aside(artifact)] == [11, 12, 13, 14, 15]
    written = (artifact.path / result["files"]["scored"]).read_text(encoding="utf-8").split("\n")[:-1]
    assert result["files"]["scored"] == "scored.jsonl" and [json.loads(line) for line in written] == table.to_pylist()


def test_a_model_of_cleaned_texts_cleans_what_it_reads_and_leaves_the_table_as_it_is(
    model: Path, encoder: Path, tmp_path: Path
) -> None:
    spec = replace(CLASSES, cleaning=("html", "punctuation", "lowercase"), texts=1)
    cleaned, plain = trained(tmp_path / "cleaned", encoder, spec), texts(20)
    loud = [f"<p>{text.upper()}!</p>" for text in plain]
    (tmp_path / "in.csv").write_text("\n".join(["text", *loud, "<br/>..."]) + "\n")
    artifact = score(tmp_path, tmp_path / "in.csv", cleaned)
    table, result = pq.read_table(artifact.path / "scored.parquet"), artifact.manifest.result
    assert table["text"].to_pylist() == loud
    assert (result["rows_in"], result["rows"], result["reasons"]) == (21, 20, {"empty text after cleaning": 1})
    _, chances = expected(model, [(f" {text} ",) for text in plain])  # the same weights without the rules
    assert table["probability:yes"].to_numpy() == pytest.approx(chances[:, 1], abs=1e-5)
    assert expected(cleaned, [(text,) for text in loud])[1] == pytest.approx(chances, abs=1e-5)


@pytest.mark.parametrize(
    ("number", "given", "message"),
    [
        (1, {"text2": "b"}, r"scoring\.text2 names the column 'b', but .* single texts: leave scoring\.text2 empty"),
        (2, {}, r"scoring\.text2 is empty, but .* was trained on pairs: name the column with the second text"),
    ],
)
def test_the_number_of_texts_must_be_that_of_the_training(
    number: int, given: dict[str, str], message: str, encoder: Path, tmp_path: Path
) -> None:
    folder = trained(tmp_path / "model", encoder, replace(CLASSES, texts=number))
    (tmp_path / "in.csv").write_bytes(b"\xff\xfe")  # nothing of it is read
    with pytest.raises(BadInput, match=message):
        score(tmp_path, tmp_path / "in.csv", folder, **given)


def test_scores_of_pairs(encoder: Path, tmp_path: Path) -> None:
    model = trained(tmp_path / "model", encoder, SCORES)
    pairs = list(zip(texts(20), reversed(texts(20)), strict=True))
    columns = {"a": [first for first, _ in pairs], "b": [second for _, second in pairs], "n": range(20)}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    artifact = score(tmp_path, tmp_path / "in.parquet", model, text="a", text2="b")
    table = pq.read_table(artifact.path / "scored.parquet")
    assert table.column_names == ["a", "b", "n", "prediction", "model_version"]
    np.testing.assert_allclose(table["prediction"].to_numpy(), expected(model, list(pairs))[0], atol=1e-4)


def test_several_labels_are_a_list_and_in_csv_a_text(encoder: Path, tmp_path: Path) -> None:
    rows = texts(60)
    (tmp_path / "in.csv").write_text("\n".join(["text", *rows]) + "\n")
    model = trained(tmp_path / "sets", encoder, SETS)
    artifact = score(tmp_path, tmp_path / "in.csv", model)
    table = pq.read_table(artifact.path / "scored.parquet")
    assert table.column_names == ["text", "prediction", "probability:acting", "probability:plot", "model_version"]
    chosen, _ = expected(model, [(text,) for text in rows])
    names = [[name for name, one in zip(SETS.label_names, row, strict=True) if one] for row in chosen]
    assert table["prediction"].to_pylist() == names and len(set(map(tuple, names))) > 1
    with (artifact.path / "scored.csv").open(newline="") as file:
        assert [row["prediction"] for row in csv.DictReader(file)] == ["|".join(row) for row in names]


@pytest.mark.parametrize(("engine", "store"), [("process", ""), ("spark", ""), ("spark", "with_store")])
def test_a_run_that_was_stopped_goes_on_with_the_parts_that_it_lacks(
    spark: SparkSession,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    engine: str,
    store: str,
) -> None:
    if store:
        request.getfixturevalue(store)
    pq.write_table(pa.table({"text": texts(80)}), tmp_path / "in.parquet")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tasks.stages.labeling.score.files.write_files", stop)
        score(tmp_path, tmp_path / "in.parquet", model, engine=engine)
    assert not (tmp_path / "runs/one/run.json").exists()
    [kept] = (tmp_path / "checkpoints/score").iterdir()
    parts = [part_file(kept / "parts", part) for part in range(4)]
    before = [part.stat().st_mtime_ns for part in parts]
    parts[2].unlink()
    (kept / "parts/.part-00002.parquet.attempt-7").write_bytes(b"half of it")
    unchanged: list[bool] = []
    with monkeypatch.context() as patch:

        def looked_at(*arguments: Any) -> dict[str, str]:
            after = [part.stat().st_mtime_ns for part in parts]
            unchanged.extend(old == new for old, new in zip(before, after, strict=True))
            return write_files(*arguments)

        patch.setattr("tasks.stages.labeling.score.files.write_files", looked_at)
        artifact = score(tmp_path, tmp_path / "in.parquet", model, engine=engine)
    assert unchanged == [True, True, False, True]
    table = pq.read_table(artifact.path / "scored.parquet")
    assert table["text"].to_pylist() == texts(80)
    assert table["prediction"].to_pylist() == expected(model, [(text,) for text in texts(80)])[0]


def test_a_package_scores_in_the_form_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # bf16 may be the fastest form on this processor, and agrees with PyTorch in fewer digits.
    monkeypatch.setattr(packaged_backends, "computes", lambda precision: precision == "fp32")
    package = packaged(tmp_path / "home").path
    pq.write_table(pa.table({"text": SENTENCES}), tmp_path / "in.parquet")
    scoring = {"input": str(tmp_path / "in.parquet"), "model": str(package)}
    experiment = build({"scoring": scoring, "prediction": {"form": "openvino-fp32"}}, "test")
    artifact = run_stage("score", experiment, Run(tmp_path / "runs/one"))
    assert artifact.manifest.result["form"] == "openvino-fp32"
    table = pq.read_table(artifact.path / "scored.parquet")
    predicted, probabilities = expected(package / "model", [(text,) for text in SENTENCES])
    assert table["prediction"].to_pylist() == predicted and probabilities.std() > 0.05
    np.testing.assert_allclose(table["probability:positive"].to_numpy(), probabilities[:, 1], atol=1e-4)


def test_a_table_that_is_replaced_while_it_is_read_is_not_kept_under_its_old_key(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.stages.labeling.score import table

    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"text": texts(3)}), tmp_path / f"in/{name}.parquet")
    changes = [
        lambda: pq.write_table(pa.table({"text": ["other"] * 3}), tmp_path / "in/a.parquet"),
        (tmp_path / "in/b.parquet").unlink,
    ]

    def taken(*arguments: Any) -> Any:
        changes.pop()()
        return take_in(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(table, "take_in", taken)
        while changes:
            with pytest.raises(Transient, match="in was changed while it was read, so nothing was kept: run score"):
                score(tmp_path, tmp_path / "in", model)
    assert not list((tmp_path / "checkpoints/score").glob("*/table"))
    assert score(tmp_path, tmp_path / "in", model).manifest.result["rows"] == 3


def test_another_model_or_table_is_another_result(model: Path, encoder: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": texts(5)}), tmp_path / "in.parquet")
    first = score(tmp_path, tmp_path / "in.parquet", model)
    other = trained(tmp_path / "other", encoder)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "id2label": {"0": "bad", "1": "good"}}))
    second = score(tmp_path, tmp_path / "in.parquet", other)
    assert pq.read_schema(second.path / "scored.parquet").names[-2] == "probability:good"
    assert second.manifest.result["model_version"] != first.manifest.result["model_version"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "scoring.input is empty: name the table to score"),
        ("in.csv", r"nowhere is not the folder of a model .*: correct scoring\.model"),
        ("in.xlsx", r"in\.xlsx is missing: correct scoring\.input"),
    ],
)
def test_what_is_missing_is_named(table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\nx\n")
    given = {"input": table and str(tmp_path / table), "model": str(tmp_path / "nowhere")}
    with pytest.raises(BadInput, match=message):
        run_stage("score", build({"scoring": given}, "test"), Run(tmp_path / "runs/one"))


@pytest.mark.long
def test_a_killed_process_goes_on(model: Path, tmp_path: Path) -> None:
    rows = texts(12_000)
    pq.write_table(pa.table({"text": rows}), tmp_path / "in.parquet")
    given = {"input": str(tmp_path / "in.parquet"), "model": str(model)}
    experiment = json.dumps({"scoring": given, "runtime": {"spark_master": "local[1]"}})
    run = str(tmp_path / "runs/one")
    command = [sys.executable, "-m", "tasks", "score", "--experiment", experiment, "--run", run]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while len(list((tmp_path / "checkpoints").glob("score/*/parts/part-*"))) < 1:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = list((tmp_path / "checkpoints").glob("score/*/parts/part-*"))
    assert not list((tmp_path / "artifacts/score").glob("[0-9a-f]*"))
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1 <= len(done) < 4 and f"scoring {4 - len(done)} of 4 parts" in again.stderr
    result = json.loads(again.stdout.splitlines()[-1])
    assert pq.read_table(Path(result["artifact"]) / "scored.parquet")["text"].to_pylist() == rows


def test_the_command_line_says_which_variables_its_fields_are(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/score.py", "--input", str(tmp_path / "in.csv"), "--model", str(tmp_path)]
    environment = {**os.environ, "SPARK_BERT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    *_, said, names = done.stderr.splitlines()
    assert done.returncode == 2 and "in.csv is missing: correct scoring.input" in said
    assert names == (
        "(make score: scoring.input is INPUT, scoring.text is TEXT, scoring.text2 is TEXT2, scoring.model is MODEL)"
    )


@pytest.mark.long
def test_the_command_line_copies_the_files_into_a_new_folder(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("no,a b\n1,good film\n2,\n3,bad film\n")
    command = [sys.executable, "scripts/score.py", "--input", str(tmp_path / "in.csv"), "--text", "a b",
               "--model", str(model), "--output", str(tmp_path / "new/out")]  # fmt: skip
    environment = {**os.environ, "SPARK_BERT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 in, 2 scored, 1 set aside, 1 x empty text" in done.stdout
    assert {file.name for file in (tmp_path / "new/out").iterdir()} == {"scored.csv", "scored.parquet", "aside.jsonl"}
    assert str(tmp_path / "new/out/scored.csv") in done.stdout
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 2 and "is there already: name a new folder as OUTPUT" in again.stderr
