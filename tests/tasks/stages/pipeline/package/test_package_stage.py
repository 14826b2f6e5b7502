"""The stage package: what it offers and refuses, and that its folder works where this project is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.models import Model

from tasks.encoder import tokens
from tasks.encoder.loading import load_trained
from tasks.inference.packaged_backends import computes, fastest
from tasks.inference.packaged_model import PackagedModel
from tasks.scoring.drift import read_profile
from tasks.scoring.predictions import Array
from tasks.scoring.risk import EVIDENCE
from tasks.stages.pipeline.package import forms
from tasks.stages.pipeline.package.forms import quantized_groups
from tasks.tracking.champions import Champions
from tasks.tracking.server import Server
from tests.ports import free_port
from tests.tasks.stages.pipeline.package.packages import (
    CALIBRATED,
    CLASSES,
    PAIRS,
    SCORES,
    SENTENCES,
    SETS,
    doubt,
    packaged,
)

ROOT = Path(__file__).parents[5]
#: The largest change of an answer by bf16 that tests accept.
CHANGE = 0.02
#: Load a model with MLflow where nothing can be imported but what a requirements.txt names, with what that needs.
LOAD = """
import importlib.util, json, re, sys
from importlib import metadata
from importlib.machinery import PathFinder
model, requirements = sys.argv[1:]
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
owners = metadata.packages_distributions()
installed = {plain(name) for names in owners.values() for name in names}
wanted, allowed = [line.partition("==")[0] for line in open(requirements)], {"pip", "setuptools"}
while wanted:
    name = plain(wanted.pop())
    if name in installed - allowed:
        allowed.add(name)
        needs = metadata.requires(name) or ()
        wanted += [re.match("[A-Za-z0-9._-]+", need)[0] for need in needs if "extra ==" not in need]
class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        found = {plain(each) for each in owners.get(name.partition(".")[0], ())}
        return None if found and not found & allowed else super().find_spec(name, *rest)
sys.meta_path[sys.meta_path.index(PathFinder)] = Others
import mlflow, pandas
assert importlib.util.find_spec("tasks") is None and importlib.util.find_spec("include") is None
columns = json.load(sys.stdin)
found = mlflow.pyfunc.load_model(model)
print(found.predict(pandas.DataFrame(columns, index=range(7, 7 + len(columns["sentence"])))).to_json(orient="split"))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a tiny, calibrated BERT."""
    return packaged(tmp_path_factory.mktemp("home"), spec=CALIBRATED).path


def environment() -> dict[str, str]:
    """This process's environment without the project on its path."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != ROOT]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MLFLOW_DISABLE_TELEMETRY": "true"}


def loaded_elsewhere(
    model: str, package: Path, folder: Path, columns: dict[str, list[str]], **variables: str
) -> pd.DataFrame:
    """Let a process that has only the requirements of a package load a model in a folder and label the rows."""
    command = [sys.executable, "-P", "-c", LOAD, model, str(package / "requirements.txt")]
    done = subprocess.run(
        command, input=json.dumps(columns), cwd=folder, env={**environment(), **variables}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return pd.DataFrame(said["data"], said["index"], said["columns"])


def expected(folder: Path, columns: list[list[str]]) -> Array:
    """The logits of PyTorch, row by row."""
    words, model = tokens.open_tokenizer(folder / "model/tokenizer.json", 24), load_trained(folder / "model")
    import torch

    rows = []
    with torch.no_grad():
        for encoding in tokens.encode(words, columns):
            ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
            rows.append(model(ids, torch.ones_like(ids), segments)[0].numpy())
    return np.stack(rows)


def test_the_package_says_how_every_form_did_and_names_the_fastest(package: Path) -> None:
    said = json.loads((package / "package.json").read_text())
    found = {form["name"]: form for form in said["forms"]}
    assert list(found) == ["torch-fp32", "onnxruntime-fp32", "openvino-fp32", "openvino-bf16", "openvino-int8"]
    for name in ("torch-fp32", "onnxruntime-fp32", "openvino-fp32"):
        form = found[name]
        assert form["offered"] and form["agreement"] == 1 and form["largest_change"] < 1e-4 and form["metric"] == 1
        assert list(form["speeds"]) == ["one_thread", "one_client", "many_clients"]
        for speed in form["speeds"].values():
            assert 0 < speed["lowest"] <= speed["rows_per_second"] <= speed["highest"]
        assert form["megabytes"] > 0 and (package / form["file"]).exists()
    offered = [form for form in said["forms"] if form["offered"]]
    assert said["served"] == fastest(offered, "serving")["name"]
    assert said["predicts"] == fastest(offered, "prediction")["name"]
    assert {speed["times_torch"] for speed in found["torch-fp32"]["speeds"].values()} == {1}
    page = (package / json.loads((package / "manifest.json").read_text())["result"]["files"]["package"]).read_text()
    assert all(form["name"] in page for form in said["forms"]) and "How much each form changes" in page
    for form in said["forms"]:
        assert bool(form["reasons"]) != form["offered"]
    result = json.loads((package / "manifest.json").read_text())["result"]
    assert result["forms"] == said["forms"] and result["served"] == said["served"]
    assert said["limits"]["max_mean_change"] == 0.005 and "99.9" in page
    examples = json.loads((package / "examples.json").read_text())
    assert list(examples["logits"]) == [form["name"] for form in said["forms"] if form["offered"]]


def test_the_package_has_the_profile_of_the_training_rows(package: Path) -> None:
    profile = read_profile(package)
    assert profile is not None and profile.rows == profile.labels.total() == len(SENTENCES)
    assert set(profile.labels) <= set(CLASSES.label_names)
    assert profile.words == Counter(" ".join(SENTENCES).split())


def test_mlflow_answers_only_where_the_risk_allows_it(package: Path, tmp_path: Path) -> None:
    evidence = json.loads((package / EVIDENCE).read_text())
    said = json.loads((package / "package.json").read_text())
    assert list(evidence) == [form["name"] for form in said["forms"] if form["offered"]]
    dev = evidence["torch-fp32"]
    assert dev["rows"] == dev["answered"][0] == len(SENTENCES) and set(dev["wrong"]) == {0}
    shutil.copytree(package, tmp_path / "package")
    confidence = PackagedModel(package).predict(pd.DataFrame({"sentence": SENTENCES}))["probabilities"].map(max)
    doubt(tmp_path / "package", float(confidence.median()))
    model = mlflow.pyfunc.load_model(str(tmp_path / "package"), model_config={"max_risk": 0.05})
    answers = model.predict(pd.DataFrame({"sentence": SENTENCES}))
    assert list(answers) == ["label", "probabilities", "abstained"] and answers["abstained"].str.contains("below").any()
    assert answers["label"].isna().equals(answers["abstained"].notna()) and answers["label"].notna().any()


def test_a_form_that_disagrees_is_not_offered_and_its_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "quantized_groups", _coarse)
    made = packaged(tmp_path, "distilbert")
    refused = next(form for form in made.manifest.result["forms"] if form["name"] == "openvino-int8")
    assert not refused["offered"] and "packaging.max_mean_change" in "; ".join(refused["reasons"])
    assert refused["speeds"]["one_thread"]["rows_per_second"] > 0
    assert (made.path / "openvino/fp32.xml").is_file() and not list((made.path / "openvino").glob("int8.*"))
    with pytest.raises(ValueError, match="does not offer the form 'openvino-int8': choose one of torch-fp32"):
        PackagedModel(made.path, "openvino-int8")


def _coarse(weight: Array) -> tuple[Array, Array]:
    """Round a weight to three values, which is too few."""
    groups, scales = quantized_groups(weight)
    return np.rint(groups / 127).astype(np.int8), scales * 127


def test_a_processor_without_bf16_is_spared_it(package: Path) -> None:
    said = json.loads((package / "package.json").read_text())
    form = next(form for form in said["forms"] if form["precision"] == "bf16")
    if not computes("bf16"):
        assert form["reasons"] == ["this processor does not compute in bf16"] and "agreement" not in form
    else:
        assert form["largest_change"] > 0


def test_mlflow_labels_text_without_this_project(package: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(package, tmp_path / "copy"))
    found = loaded_elsewhere(str(copy), copy, copy, {"sentence": SENTENCES})
    logits = expected(package, [SENTENCES])
    assert found["label"].tolist() == [CLASSES.label_names[number] for number in logits.argmax(1)]
    assert found.index.tolist() == list(range(7, 47))
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(np.array(found["probabilities"].tolist()), chances, atol=CHANGE)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_mlflow_scores_pairs_without_this_project(tmp_path: Path, kind: str) -> None:
    package = packaged(tmp_path, kind, SCORES).path
    first, second = (list(column) for column in zip(*PAIRS, strict=True))
    found = loaded_elsewhere(str(package), package, package, {"sentence": first, "sentence2": second})
    np.testing.assert_allclose(found["score"], expected(package, [first, second])[:, 0], atol=5 * CHANGE)


@pytest.mark.parametrize("form", ["torch-fp32", "onnxruntime-fp32", "openvino-fp32"])
def test_every_offered_form_can_be_chosen(package: Path, form: str) -> None:
    model = PackagedModel(package, form, threads=1)
    np.testing.assert_allclose(model.logits([SENTENCES]), expected(package, [SENTENCES]), atol=1e-4)


def test_every_form_is_calibrated(package: Path) -> None:
    calibrated = expected(package.parents[2] / "made/raw", [SENTENCES]) / CALIBRATED.temperature
    forms = [form["name"] for form in json.loads((package / "package.json").read_text())["forms"] if form["offered"]]
    assert len(forms) >= 3
    for form in forms:
        found = PackagedModel(package, form, threads=1).logits([SENTENCES])
        np.testing.assert_allclose(found, calibrated, atol=1e-4 if form.endswith("fp32") else CHANGE)


def test_data_without_text_is_refused(package: Path) -> None:
    model = PackagedModel(package, "onnxruntime-fp32")
    with pytest.raises(ValueError, match="the column sentence is missing: the columns are text"):
        model.predict(pd.DataFrame({"text": ["fine"]}))
    with pytest.raises(ValueError, match="row 1 of the column sentence is not a text: None"):
        model.predict(pd.DataFrame({"sentence": ["fine", None]}))
    assert model.predict(pd.DataFrame({"sentence": []})).empty


def test_mlflow_reads_the_signature_and_transformers_the_model(package: Path) -> None:
    import mlflow.transformers

    described = Model.load(str(package / "MLmodel"))
    assert described.signature.inputs.input_names() == ["sentence"]
    assert described.signature.outputs.input_names() == ["label", "probabilities"]
    found = mlflow.transformers.load_model(str(package))(SENTENCES, truncation=True)
    logits = expected(package, [SENTENCES])
    assert [row["label"] for row in found] == [CLASSES.label_names[number] for number in logits.argmax(1)]


def test_a_form_that_cannot_be_written_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("no operator for this\nin a long list")

    monkeypatch.setattr(forms, "quantize", fails)
    found = {form["name"]: form for form in packaged(tmp_path / "int8").manifest.result["forms"]}
    assert found["openvino-int8"]["reasons"] == ["it cannot be written: no operator for this"]
    assert found["onnxruntime-fp32"]["offered"] and found["openvino-fp32"]["offered"]
    monkeypatch.setattr(forms, "export_onnx", fails)
    artifact = packaged(tmp_path / "onnx")
    assert [form["name"] for form in artifact.manifest.result["forms"] if form["offered"]] == ["torch-fp32"]
    assert artifact.manifest.result["served"] == "torch-fp32"
    assert not (artifact.path / "onnx").exists() and not (artifact.path / "openvino").exists()


def test_several_labels_have_the_thresholds_of_the_training(tmp_path: Path) -> None:
    found = packaged(tmp_path, spec=SETS)
    assert all(form["agreement"] == 1 for form in found.manifest.result["forms"] if form["precision"] == "fp32")
    chances = 1 / (1 + np.exp(-expected(found.path, [SENTENCES])))
    predicted = PackagedModel(found.path, "onnxruntime-fp32").predict(pd.DataFrame({"sentence": SENTENCES}))
    assert np.array(predicted["probabilities"].tolist()) == pytest.approx(chances, abs=1e-4)
    limits = SETS.thresholds
    names = [[name for name, sure in zip(SETS.label_names, row >= limits, strict=True) if sure] for row in chances]
    assert predicted["labels"].tolist() == names and len(set(map(tuple, names))) > 1
    signature = Model.load(str(found.path / "MLmodel")).signature
    assert signature.outputs.input_names() == ["labels", "probabilities"]


@pytest.mark.long
def test_a_model_of_cleaned_texts_cleans_them_where_this_project_is_not(tmp_path: Path) -> None:
    made = packaged(tmp_path / "home", spec=replace(CLASSES, cleaning=("html", "lowercase", "whitespace"), texts=1))
    loud = [f"{text.upper()}<br/>" for text in SENTENCES]
    found = loaded_elsewhere(str(made.path), made.path, tmp_path, {"sentence": loud})
    logits = expected(made.path, [SENTENCES])
    assert found["label"].tolist() == [CLASSES.label_names[number] for number in logits.argmax(1)]
    assert not np.allclose(logits, expected(made.path, [loud]), atol=1e-2)


@pytest.mark.usefixtures("database")
def test_mlflow_loads_the_champion(package: Path, tmp_path: Path) -> None:
    registry = Champions(Server(tmp_path), "movies")
    client: MlflowClient = registry.client
    run = client.create_run(client.create_experiment("e", f"{tmp_path}/artifacts")).info.run_id
    registry.make_champion(registry.add(run, package, {}))
    server = f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    rows = {"sentence": SENTENCES}
    found = loaded_elsewhere("models:/movies@champion", package, tmp_path, rows, MLFLOW_TRACKING_URI=server)
    assert found["label"].tolist() == [CLASSES.label_names[at] for at in expected(package, [SENTENCES]).argmax(1)]


@pytest.mark.long
def test_mlflow_serves_the_folder_over_http(package: Path, tmp_path: Path) -> None:
    port = free_port()
    binaries = Path(sys.executable).parent
    command = [str(binaries / "mlflow"), "models", "serve", "-m", str(package), "--env-manager", "local"]
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "-p", str(port)], cwd=tmp_path, env={**environment(), "PATH": path}, stdout=log, stderr=log
        )
    try:
        rows = {"dataframe_split": {"columns": ["sentence"], "data": [[text] for text in SENTENCES]}}
        answer = _post(f"http://127.0.0.1:{port}/invocations", rows, server, tmp_path / "log")
    finally:
        server.terminate()
        server.wait(30)
    labels = [row["label"] for row in answer["predictions"]]
    assert labels == [CLASSES.label_names[number] for number in expected(package, [SENTENCES]).argmax(1)]
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in answer["predictions"])


def _post(address: str, content: object, server: subprocess.Popen[bytes], log: Path) -> Any:
    request = Request(address, json.dumps(content).encode(), {"Content-Type": "application/json"})
    for _ in range(240):
        assert server.poll() is None, log.read_text()
        try:
            with urlopen(request, timeout=60) as response:
                return json.loads(response.read())
        except URLError as error:
            if hasattr(error, "code"):
                raise
            time.sleep(0.5)
    raise AssertionError(f"no answer: {log.read_text()}")


def test_the_documentation_opens_the_onnx_file_by_hand(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/MODELS.md").read_text(encoding="utf-8")
    code = page.partition("### In onnxruntime")[2].partition("```python")[2].partition("```")[0]
    texts = ["A film that knows what it wants.", "Too long."]
    exec(code.replace("work/artifacts/package/<key>", str(package)), {})
    labels = [CLASSES.label_names[number] for number in expected(package, [texts]).argmax(1)]
    assert capsys.readouterr().out.strip() == str(labels)
