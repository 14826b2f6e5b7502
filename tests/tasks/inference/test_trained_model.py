"""Which form of a model computes, and that each gives the answers of PyTorch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from include.artifacts import write_json
from include.fields.results import Prediction
from include.stages import BadInput
from tasks.encoder.loading import load_trained
from tasks.inference.examples import write_examples
from tasks.inference.labeler import Labeler
from tasks.inference.packaged_model import PackagedModel
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend, TrainedModel
from tasks.serving.served_model import open_model
from tasks.staging import Staging, below, fetched
from tests.tasks.encoder.samples import edit_config
from tests.tasks.stages.pipeline.package.packages import (
    CLASSES,
    SENTENCES,
    packaged,
    speeds_of,
    trained,
    unchanged_package,
)

FORMS = {"auto": "openvino-fp32"} | {name: name for name in ("torch-fp32", "onnxruntime-fp32", "openvino-fp32")}

#: Token ids, attention mask and segments of a batch.
ONE_ROW = (np.array([[2, 6, 9, 3]]), np.ones((1, 4), np.int64), np.zeros((1, 4), np.int64))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a tiny BERT that offers its forms of fp32, of which OpenVINO's is the fastest."""
    folder = packaged(tmp_path_factory.mktemp("home")).path
    described = json.loads((folder / "package.json").read_text())
    for form in described["forms"]:
        form["offered"] = form["name"] in FORMS.values()
        form["speeds"] = speeds_of(3.0 if form["name"] == "openvino-fp32" else 1.0)
    write_json(folder / "package.json", described)
    return folder


def prediction(form: str) -> Prediction:
    return Prediction.model_validate({"form": form})


def described(folder: Path, forms: list[dict[str, Any]]) -> Path:
    """A package that says this of its forms."""
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    write_json(folder / "package.json", {"forms": forms})
    return folder


def form(engine: str, precision: str, speed: float, reason: str = "") -> dict[str, Any]:
    file, reasons = f"{engine}/{precision}", [reason] if reason else []
    said = {"name": f"{engine}-{precision}", "engine": engine, "precision": precision, "file": file}
    return {**said, "offered": not reason, "reasons": reasons, "speeds": speeds_of(speed)}


@pytest.mark.parametrize("wanted", FORMS)
def test_every_form_gives_the_logits_of_the_trained_model(package: Path, wanted: str) -> None:
    model = TrainedModel.of(package, prediction(wanted))
    plain = TrainedModel.of(package / "model", prediction("torch-fp32"))
    assert (model.form, plain.form) == (FORMS[wanted], "torch-fp32")
    texts = [(text,) for text in SENTENCES]
    one, other = (np.concatenate(list(Runner(Path(m.folder), m.open(1)).logits(texts))) for m in (model, plain))
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert one.std() > 0.1


@pytest.mark.parametrize(
    ("wanted", "needed"), [("torch-fp32", set()), ("onnxruntime-fp32", {"onnx"}), ("openvino-fp32", {"openvino"})]
)
def test_executors_get_what_a_form_needs(
    spark: SparkSession, bucket: str, package: Path, tmp_path: Path, wanted: str, needed: set[str]
) -> None:
    shutil.copytree(package, tmp_path / "package")
    model = TrainedModel.of(tmp_path / "package", prediction(wanted))
    labeler = Labeler.of(Staging(below(bucket, wanted)), model, prediction(wanted), "v1")
    shutil.rmtree(tmp_path / "package")

    def label(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in labeler.label(batches, ["text"]):
            there = sorted({file.name for file in fetched(labeler.address).parent.rglob("*") if file.is_dir()})
            rows = table.append_column("there", [[there] * len(table)])
            yield from rows.select(["text", "prediction", "model_version", "there"]).to_batches()

    frame = spark.createDataFrame([(text,) for text in SENTENCES], ["text"]).coalesce(1)
    schema = "text string, prediction long, model_version string, there array<string>"
    found = frame.mapInArrow(label, schema).toArrow()
    logits = np.concatenate(list(Runner(package / "model", TorchBackend(load_trained(package / "model"), 1)).logits(
        [(text,) for text in SENTENCES]
    )))  # fmt: skip
    assert found["prediction"].to_pylist() == logits.argmax(1).tolist() and found["text"].to_pylist() == SENTENCES
    assert set(found["model_version"].to_pylist()) == {"v1"}
    assert set(found["there"][0].as_py()) - {"package"} == needed | {"model"}


def test_the_head_is_the_same_without_pytorch(package: Path) -> None:
    head = TrainedModel.of(package, prediction("openvino-fp32")).head()
    expected = TrainedModel.of(package, prediction("torch-fp32")).head()
    assert head == replace(expected, pooling=head.pooling, dropout=head.dropout)  # which only matter in training
    assert head.label_names and head.max_length


def test_a_model_without_a_package_has_only_pytorch(package: Path) -> None:
    with pytest.raises(BadInput, match=r"is no package, so it has no prediction.form openvino-bf16: write auto or"):
        TrainedModel.of(package / "model", prediction("openvino-bf16"))
    assert TrainedModel.of(package / "model", prediction("auto")).form == "torch-fp32"


@pytest.mark.parametrize("content", ["{", "[]", '{"forms": [{"name": "torch-fp32"}]}'])
def test_a_damaged_description_is_named(tmp_path: Path, package: Path, content: str) -> None:
    unchanged_package(tmp_path, package / "model")
    (tmp_path / "package.json").write_text(content)
    with pytest.raises(BadInput, match=r"package\.json is damaged.*: package the model again"):
        TrainedModel.of(tmp_path, prediction("auto"))


@pytest.mark.parametrize(
    "values",
    [
        {"engine": "json"},  # a module of Python, which a package may not choose
        {"engine": "os.path"},
        {"engine": "onnxruntime", "file": "../elsewhere.onnx"},
        {"engine": "onnxruntime", "file": "/elsewhere.onnx"},
    ],
)
def test_a_package_names_no_library_and_no_file_elsewhere(tmp_path: Path, values: dict[str, str]) -> None:
    folder = described(tmp_path, [{**form("onnxruntime", "fp32", 1), **values}])
    with pytest.raises(BadInput, match=r"package\.json is damaged|has no form for this machine"):
        TrainedModel.of(folder, prediction("auto"))
    with pytest.raises(BadInput):
        open_model(folder, "", "", 1)
    with pytest.raises((ValueError, KeyError)):
        PackagedModel(folder, form(values["engine"], "fp32", 1)["name"])


def test_a_package_that_allows_no_change_is_served_where_the_processor_rounds_otherwise(
    package: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(package, tmp_path / "package")
    described = json.loads((folder / "package.json").read_text())
    described["limits"] |= {"max_mean_change": 0.0, "max_tail_change": 0.0}
    write_json(folder / "package.json", described)
    examples = json.loads((folder / "examples.json").read_text())
    changed = {form: np.add(logits, [0.0, 1e-5]).tolist() for form, logits in examples["logits"].items()}
    write_json(folder / "examples.json", {**examples, "logits": changed})
    assert open_model(folder, "", "", 1).form == "openvino-fp32"


@pytest.mark.parametrize("kind", ["evil", "pooled-encoder"])
def test_no_code_of_a_package_is_ever_run(tmp_path: Path, kind: str) -> None:
    """With a pickle, a module for each auto class, and only the form of PyTorch."""
    folder, mark, model = tmp_path / "package", tmp_path / "mark", tmp_path / "model"
    spec = CLASSES if kind == "evil" else replace(CLASSES, pooling="mean")
    logits = TorchBackend(trained(model, "bert", spec), 1).logits(*ONE_ROW)
    unchanged_package(folder, model)
    write_examples(folder, [["good"]])
    for file in ("evil.py", "pooled_encoder.py"):
        (folder / "model" / file).write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    names = {"AutoConfig": "evil.Config", "AutoModelForSequenceClassification": "evil.Model", "AutoModel": "evil.Model"}
    edit_config(folder / "model", model_type=kind, auto_map=names)
    loads: list[Callable[[], Any]] = [
        lambda: open_model(folder, "", "", 1).package.backend,
        lambda: TrainedModel.of(folder, prediction("auto")).open(1),
        lambda: PackagedModel(folder).backend,
    ]
    for load in loads:
        if kind == "evil":
            with pytest.raises((BadInput, ValueError), match=r"is never run|does not recognize this|custom code"):
                load()
        else:
            np.testing.assert_allclose(load().logits(*ONE_ROW), logits, atol=1e-5)
    assert not mark.exists()


def test_a_package_that_says_something_else_than_its_model_is_not_served(tmp_path: Path) -> None:
    trained(tmp_path / "model", "bert", CLASSES)
    unchanged_package(tmp_path / "package", tmp_path / "model")
    write_json(tmp_path / "package/examples.json", {"texts": [["good"]], "logits": {"torch-fp32": [[0.0, 0.0]]}})
    edit_config(tmp_path / "package/model", id2label={"0": "positive", "1": "negative"}, label2id=None)
    with pytest.raises(BadInput, match=r"describes a classification of \['negative', 'positive'\], but .*package the"):
        open_model(tmp_path / "package", "", "", 1)
