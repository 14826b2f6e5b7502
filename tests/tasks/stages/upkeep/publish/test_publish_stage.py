"""The stage publish: a real run of a tiny encoder up to the gate, and a stand-in for the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from pyspark.sql import SparkSession
from transformers import pipeline

from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.runner import run_stage
from tests.tasks.encoder.families import family
from tests.tasks.encoder.samples import reviews
from tests.tasks.stages.upkeep.publish import hub as hubs

REPOSITORY = "my-team/reviews"
BEFORE = ("validate", "preprocess", "pretrain", "train", "evaluate", "gate")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Any]:
    """The experiment of a run that has passed its gate; the run is `passed` in the folder `home` beside its data."""
    root = tmp_path_factory.mktemp("publish")
    for split, seed in (("train", 1), ("dev", 2), ("test", 3)):
        sentences, labels = reviews(48, seed)
        rows = [f"{text},{('bad', 'good|fine')[label]}\n" for (text,), label in zip(sentences, labels, strict=True)]
        (root / f"{split}.csv").write_text("".join(["sentence,label\n", *rows]))
    values: dict[str, Any] = {
        "data": {"task": "classification", "source": "files", "path": str(root), "labels": ["bad", "good|fine"]},
        "model": {"name": str(family(root / "encoder", "bert")), "pooling": "native"},
        "preprocessing": {"max_length": 12},
        "training": {"epochs": 1, "batch_size": 8, "ranks": 1, "precision": "fp32"},
        "gate": {"accuracy": 0, "beat_baseline": False},
    }
    values["data"] |= {split: f"{split}.csv" for split in ("train", "dev", "test")}
    for stage in BEFORE:
        run_stage(stage, build(values, "test"), home(values, "passed"))
    return values


def home(values: dict[str, Any], name: str) -> Run:
    return Run(Path(values["data"]["path"]) / "home" / "runs" / name)


def to_repository(values: dict[str, Any], name: str = REPOSITORY, **more: Any) -> Experiment:
    return build({**values, "publication": {"repository": name}, **more}, "test")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[hubs.Hub]:
    with hubs.running() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", hubs.TOKEN)
        yield server


def test_a_model_is_published_with_its_card(trained: dict[str, Any], hub: hubs.Hub, tmp_path: Path) -> None:
    run = home(trained, "passed")
    found = run_stage("publish", to_repository(trained), run)
    assert hub.private == {REPOSITORY: True} and hub.messages == ["The model of the run passed"]
    assert found.manifest.result["url"] == f"{hub.url}/{REPOSITORY}/commit/{1:040}"
    model = run.artifact("train").path / "model"
    expected = {f"{REPOSITORY}/{file.name}": file.read_bytes() for file in model.iterdir()}
    card = (found.path / "README.md").read_bytes()
    assert hub.files == {**expected, f"{REPOSITORY}/README.md": card}
    for name, content in hub.files.items():  # as who has downloaded it
        (tmp_path / Path(name).name).write_bytes(content)
    assert pipeline("text-classification", model=str(tmp_path))("word1 good")[0]["label"] in ("bad", "good|fine")


def test_the_hub_can_read_the_card(trained: dict[str, Any]) -> None:
    run = home(trained, "passed")
    found = run_stage("publish", build(trained, "test"), run)
    card = ModelCard.load(found.path / "README.md")
    metrics = run.artifact("evaluate").manifest.result["metrics"]
    assert {result.metric_type: result.metric_value for result in card.data.eval_results} == metrics
    assert (card.data.pipeline_tag, card.data.library_name) == ("text-classification", "transformers")
    assert card.data.base_model is None  # a folder of one's own is no repository
    assert "| 1 | good\\|fine |" in card.text and "fine-tuned on 48 rows" in card.text
    assert f"| accuracy | {metrics['accuracy']:.4f} |" in card.text
    assert run.artifact("validate").manifest.key in card.text
    assert "license is unknown" in card.text and str(run.folder.parent) not in card.content


def test_without_a_repository_nothing_is_uploaded(trained: dict[str, Any], hub: hubs.Hub) -> None:
    found = run_stage("publish", build(trained, "test"), home(trained, "passed"))
    assert (found.path / "README.md").is_file() and not hub.files and "url" not in found.manifest.result


def test_a_model_that_did_not_pass_is_not_published(trained: dict[str, Any], hub: hubs.Hub) -> None:
    wanted, run = to_repository(trained, gate={"accuracy": 1.0, "beat_baseline": False}), home(trained, "failed")
    for stage in BEFORE:
        run_stage(stage, wanted, run)
    with pytest.raises(BadInput, match="gate"):
        run_stage("publish", wanted, run)
    assert not hub.files and not hub.private


def test_what_is_published_again_is_a_new_commit(trained: dict[str, Any], hub: hubs.Hub) -> None:
    run = home(trained, "passed")
    urls = [run_stage("publish", to_repository(trained), run).manifest.result["url"] for _ in range(2)]
    assert len(hub.messages) == 2 and len(set(urls)) == 2


def test_a_token_that_may_not_write_is_named(
    trained: dict[str, Any], hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(BadInput, match=r"refuses to write to my-team/reviews: .*set HF_TOKEN"):
        run_stage("publish", to_repository(trained), home(trained, "passed"))
    assert not hub.files


def test_an_organization_that_does_not_exist_is_named(trained: dict[str, Any], hub: hubs.Hub) -> None:
    with pytest.raises(BadInput, match=r"does not accept nobody/reviews: .*create the organization on the hub"):
        run_stage("publish", to_repository(trained, "nobody/reviews"), home(trained, "passed"))


def test_a_hub_that_does_not_answer_is_tried_again(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", hubs.TOKEN)
    with pytest.raises(Transient, match="cannot be reached"):
        run_stage("publish", to_repository(trained), home(trained, "passed"))


def test_a_distilled_model_is_compared_with_its_teacher(trained: dict[str, Any]) -> None:
    text = Path(trained["data"]["path"]) / "text.txt"
    text.write_text("\n".join(text for (text,) in reviews(20, 4)[0]))
    values = trained | {
        "model": trained["model"] | {"teacher": "passed"},
        "distillation": {"text": str(text), "temperature": 3},
        "gate": trained["gate"] | {"teacher_margin": 1, "teacher_speed": 0.01},
    }
    run = home(values, "distilled")
    for stage in (*BEFORE[:3], "teach", *BEFORE[3:], "publish"):
        made = run_stage(stage, build(values, "test"), run)
    teacher = run.artifact("evaluate").manifest.result["teacher"]
    assert (teacher["name"], teacher["rows"], teacher["metric"]) == ("passed", 48, "accuracy")
    assert teacher["teacher"] == home(values, "passed").artifact("evaluate").manifest.result["metrics"]["accuracy"]
    assert teacher["rows_per_second"]["times"] == pytest.approx(1, rel=0.9)
    checks = run.artifact("gate").manifest.result["checks"]
    assert [check["key"] for check in checks] == ["gate.accuracy", "gate.teacher_margin", "gate.teacher_speed"]
    report = (run.artifact("evaluate").path / "report.html").read_text()
    assert "<h2>Teacher</h2>" in report and "its teacher, passed" in report
    card = " ".join((made.path / "README.md").read_text().split())
    assert "a teacher, passed, with unlabeled texts from text.txt, at temperature 3 and with weight" in card
    assert f"| its teacher | {teacher['teacher']:.4f} |" in card
