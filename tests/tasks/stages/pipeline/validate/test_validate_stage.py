from __future__ import annotations

import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from include.artifacts import Artifact
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, ExitCode
from tasks.runner import run_stage
from tasks.stages.pipeline.export import stage as export
from tasks.stages.pipeline.predict.stage import run as predict
from tests.tasks.contexts import surroundings
from tests.tasks.stages.pipeline.validate import made_up


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Sound but for what only deserves a warning."""
    root = tmp_path_factory.mktemp("sound")
    folder = made_up.write_sst2(root)
    made_up.append(
        folder / "train.tsv",
        b"Train  Sentence 7\t0",  # line 202: repeats row 7 under another label
        b"dev sentence, 3\t1",  # stands in dev
        b"test SENTENCE 5\t1",  # stands in test
        b"   \t1",  # line 205: blank
        "don\u00e2\u20ac\u2122t {bad} <script>alert(1)</script>\t1".encode(),
        b"long " * 200_000 + b"\t0",  # 1 MB
    )
    return made_up.validate(root, made_up.sst2(root))


def test_sound_data_pass_with_warnings(sound: Artifact) -> None:
    result = sound.manifest.result
    assert sound.manifest.exit_code == ExitCode.DONE
    assert result["rows"] == {"train": 203, "dev": 40, "test": 40}
    assert (result["quarantined"], result["overlap_removed"], result["overlap"]) == (1, 2, {"dev": 1, "test": 1})
    assert result["warnings"] == [
        "train: quarantine: 1 of 206 rows cannot be used (line 205: empty text); quarantine.jsonl lists them",
        "train: encoding: 1 of 203 rows seem to be wrongly decoded in sentence1 "
        "(such as \u00e2\u20ac\u2122 for an apostrophe); decode the source again, as UTF-8",
        "train: length: 1 of 203 texts have more than 10,000 characters; check the file for missing line ends",
        "train: duplicates: 2 of 203 rows share their text with another row; "
        "remove the duplicates if they are unwanted",
        "train: contradictory labels: 2 of 203 rows have a text that also occurs with another label; "
        "choose one label per text",
        "dev: overlap: 1 of 40 rows also occur in train; they were removed from train and are listed in overlap.jsonl",
        "test: published row count: 40 rows, while the published file has 1,821; "
        "GLUE accepts submissions for the published rows only",
        "test: overlap: 1 of 40 rows also occur in train; they were removed from train and are listed in overlap.jsonl",
    ]


def test_tables_hold_rows_lines_and_no_test_labels(sound: Artifact) -> None:
    train, dev, test = (pq.read_table(sound.path / f"{split}.parquet") for split in ("train", "dev", "test"))
    types = {name: str(kind) for name, kind in zip(train.schema.names, train.schema.types, strict=True)}
    assert types == {"row": "int64", "line": "int64", "sentence1": "string", "label": "int64"}
    assert train.schema == dev.schema == test.schema
    assert train.slice(200).to_pylist()[0] == {"row": 200, "line": 202, "sentence1": "Train  Sentence 7", "label": 0}
    assert train.column("row").to_pylist()[-3:] == [200, 204, 205]  # overlap and quarantine leave gaps
    assert test.column("row").to_pylist() == list(range(40))
    assert test.column("label").null_count == 40


def test_quarantine_and_overlap_name_the_rows(sound: Artifact) -> None:
    [entry] = made_up.lines(sound.path / "quarantine.jsonl")
    assert entry["file"].endswith("SST-2/train.tsv")
    assert (entry["split"], entry["line"], entry["reason"], entry["text"]) == ("train", 205, "empty text", "   \t1")
    found = [(entry["line"], entry["also_in"]) for entry in made_up.lines(sound.path / "overlap.jsonl")]
    assert found == [(203, ["dev"]), (204, ["test"])]


def test_validation_json_has_every_rule(sound: Artifact) -> None:
    rules = made_up.rules(sound)
    assert {rule for split, rule in rules if split == "train"} == {
        "row count", "quarantine", "quarantine limit", "schema", "nulls", "encoding", "length", "long tail",
        "duplicates", "contradictory labels", "one class only", "label set", "class balance",
    }  # fmt: skip
    assert {rule for split, rule in rules if split == "test"} >= {"unlabeled", "overlap", "overlap limit"}
    balance = rules["train", "class balance"]
    assert (balance["severity"], balance["success"], balance["seen"]) == (
        "warning", True, "101 of 203 rows are positive",
    )  # fmt: skip


class Links(HTMLParser):
    """The links of a page, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a":
            self.links.append(values.get("href") or "")
        self.loads += [values["src"] or ""] if "src" in values else []
        self.loads += [values.get("href") or ""] if tag == "link" else []
        self.loads += ["a script"] if tag == "script" else []


def test_data_docs_can_be_moved_and_opened(sound: Artifact, tmp_path: Path) -> None:
    docs = Path(shutil.copytree(sound.path / sound.manifest.result["files"]["data_docs"].split("/")[0], tmp_path / "d"))
    front = Links(docs / "index.html")
    assert front.loads == []  # nothing from the net
    assert len(front.links) == 3
    for link in front.links:
        page = docs / link
        assert Links(page).loads == [] and "url(" not in page.read_text()
        local = [href for href in Links(page).links if href and not href.startswith(("#", "http"))]
        assert local
        assert all((page.parent / href).resolve().is_file() for href in local)
    assert str(sound.path.parent) not in "".join(page.read_text() for page in docs.rglob("*.html"))


def test_every_page_has_a_verdict_and_explains_our_columns(sound: Artifact) -> None:
    for page in (sound.path / "data_docs").rglob("validations/train/**/*.html"):
        text = page.read_text(encoding="utf-8")
        top = text[: text.index("Expectation Validation Result")]
        assert "train: can be used, with warnings (quarantine, encoding, length, duplicates" in top
        assert "<dt>labels_of_text</dt><dd>how many different labels" in top
        assert text.count("✔ passed") > 5 and text.count("✘ failed") == 5
        assert 'class="fas' not in text


def test_rows_set_aside_and_overlaps_are_files_of_the_result(sound: Artifact) -> None:
    files = sound.manifest.result["files"]
    assert (files["quarantine"], files["overlap"]) == ("quarantine.jsonl", "overlap.jsonl")


def test_no_text_of_the_data_becomes_markup(sound: Artifact) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (sound.path / "data_docs").rglob("*.html")]
    assert len(pages) == 7
    assert not any("alert(1)" in page for page in pages)


def test_the_sound_artifact_is_found_again(sound: Artifact) -> None:
    root = sound.path.parents[3]
    again = made_up.validate(root, made_up.sst2(root))
    assert again.path == sound.path
    assert again.manifest.result == sound.manifest.result  # with the seconds of the first time


def test_spark_finds_what_pandas_finds(sound: Artifact, spark: object, tmp_path: Path) -> None:
    experiment = made_up.sst2(sound.path.parents[3], engine="spark")
    other = made_up.validate(tmp_path, experiment)
    assert other.manifest.key == sound.manifest.key
    assert json.loads((other.path / "validation.json").read_text()) == json.loads(
        (sound.path / "validation.json").read_text()
    )


def test_scores_of_pairs(tmp_path: Path) -> None:
    rows = [f"first {number},second {number},{number % 11 / 2}" for number in range(110)]
    for split in ("train", "dev", "test"):
        text = "\n".join(["a,b,score", *(row.replace("first", split) for row in rows)])
        (tmp_path / f"{split}.csv").write_text(text)
    with (tmp_path / "train.csv").open("a") as stream:
        stream.write("\nsame,pair,1.0\nSame ,pair,5\nSame!,pair,5")
    columns = {"sentence": "a", "sentence2": "b", "label": "score"}
    files = {split: f"{split}.csv" for split in ("train", "dev", "test")}
    data = {"task": "regression", "source": "files", "path": str(tmp_path), "score_range": (0, 5)}
    experiment = Experiment.model_validate({"data": {**data, **files, "columns": columns}})
    artifact = made_up.validate(tmp_path, experiment)
    assert artifact.manifest.message == ""
    last = pq.read_table(artifact.path / "train.parquet").to_pylist()[-1]
    assert last == {"row": 112, "line": 114, "sentence1": "Same!", "sentence2": "pair", "label": 5.0}
    assert made_up.rules(artifact)["train", "contradictory labels"]["observed"] == 2


def test_a_folder_without_test_and_labels_goes_through_all_stages(tmp_path: Path, encoder: Path, spark: object) -> None:
    for split, count in (("train", 30), ("dev", 10)):
        rows = [f"{split} sentence {number}\t{('good', 'bad', 'so-so')[number % 3]}" for number in range(count)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    data = {"task": "auto", "source": "files", "path": str(tmp_path)}
    asked = Experiment.model_validate({"data": data, "model": {"name": str(encoder)}})
    artifact = made_up.validate(tmp_path, asked)
    assert artifact.manifest.message == ""
    assert artifact.manifest.result["rows"] == {"train": 30, "dev": 10, "test": 0}
    assert artifact.manifest.result["warnings"] == [
        f"there is no file {tmp_path / 'test.tsv'}, so nothing is predicted: put it there, or name another"
    ]
    run = Run(tmp_path / "work" / "runs" / "first")
    tokens = run_stage("preprocess", asked, run)  # finds the labels that validate has found
    assert sorted(path.name for path in tokens.path.iterdir() if path.is_dir()) == ["dev", "train"]
    found = build(run.record()["experiment"], "the run's")
    assert (found.data.task, found.data.labels) == ("classification", ("bad", "good", "so-so"))
    output = tmp_path / "output"
    predicted = predict(surroundings(found, run, {"preprocess": tokens}, output))
    assert predicted.result == {"rows": 0, "files": {}}
    without = Artifact(output, replace(artifact.manifest, stage="predict", result=predicted.result))
    assert export.run(surroundings(found, run, {"predict": without}, output), export.Plan([])).result["files"] == {}
    assert made_up.validate(tmp_path, found).path == artifact.path
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(BadInput, match="run the stage validate first"):
        run_stage("preprocess", asked, Run(tmp_path / "work" / "runs" / "second"))


def test_a_label_that_no_training_row_has_is_said(tmp_path: Path) -> None:
    rows = [f"sentence {number}\t{('good', 'bad')[number % 2]}" for number in range(40)]
    (tmp_path / "all.tsv").write_text("\n".join(["sentence\tlabel", *rows, "one more\tFine ", ""]))
    labels = ["bad", "good", "fine"]
    data = {"task": "classification", "source": "files", "path": str(tmp_path / "all.tsv"), "labels": labels}
    artifact = made_up.validate(tmp_path, Experiment.model_validate({"data": data}))
    assert artifact.manifest.result["rows"] == {"train": 32, "dev": 4, "test": 4}
    assert artifact.manifest.result["warnings"][0] == (
        "no row of train has the label 'fine', so the model cannot learn it: add some, or remove it from data.labels"
    )
    assert artifact.manifest.message.endswith(
        '; if \'Fine \' (1 row) are labels in another spelling, write data.label_map: {"Fine ": "fine"}'
    )
