"""What a stage may read of the deployment's machine: the same in every runtime, whatever a run's form names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from include.stages import BadInput
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import data_path
from spark_bert.operators.base import StageOperator
from spark_bert.operators.docker import DockerStageOperator
from spark_bert.operators.kubernetes import KubernetesStageOperator
from spark_bert.operators.process import ProcessStageOperator

pytestmark = pytest.mark.usefixtures("home")
RUNTIMES = (ProcessStageOperator, DockerStageOperator, KubernetesStageOperator)
GLUE = {"data.task": "SST-2", "data.source": "glue"}
FILES = {"data.task": "SST-2", "data.source": "files"}
ICEBERG = {"data.task": "SST-2", "data.source": "iceberg", "data.table": "prod.shop.reviews"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The deployment's folder of data, with links in it, beside a folder that is none of the runs' business."""
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path / "data"))
    for folder in ("data/glue/SST-2", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/out").symlink_to(tmp_path / "secret")
    (tmp_path / "data/circle").symlink_to(tmp_path / "data/circle")
    (tmp_path / "data/linked").mkdir()
    for link in ("data/linked/train.parquet", "data/all.csv"):
        (tmp_path / link).symlink_to(tmp_path / "secret/rows")
    for name in ("secret/rows", "secret/table.tsv"):
        (tmp_path / name).touch()
    (tmp_path / "data/patterns/rows").mkdir(parents=True)
    for link in ("data/patterns/train-1.tsv", "data/patterns/rows/2.tsv"):
        (tmp_path / link).symlink_to(tmp_path / "secret/table.tsv")
    return tmp_path / "data"


def begin(stage: str, conf: Mapping[str, Any], runtime: type[StageOperator] = ProcessStageOperator) -> StageOperator:
    """Let a task come as far as its command, or raise what it refuses."""
    operator = runtime(task_id=stage, stage=stage, experiment_of=from_form)
    run: Any = {
        "params": {"experiment": "movies", **conf},
        "dag_run": SimpleNamespace(dag_id="finetune", run_id="manual__1"),
    }
    operator.render_template_fields(run)
    if operator.refusal:
        raise operator.refusal
    return operator


#: Stage and form; in what a form names, {root} is the deployment's folder of data.
OUTSIDE: list[tuple[str, dict[str, str]]] = [
    ("validate", {**GLUE, "data.path": "{root}/../secret"}),
    ("validate", {**GLUE, "data.path": "{root}/out"}),
    ("validate", {**GLUE, "data.path": "data/../../secret"}),
    ("validate", {**GLUE, "data.path": "tests"}),
    ("validate", {**GLUE, "data.path": "/etc"}),
    ("validate", {**FILES, "data.path": "{root}", "data.train": "/etc/train.tsv"}),
    ("validate", {**FILES, "data.path": "{root}", "data.dev": "../secret/dev.tsv"}),
    ("validate", {**FILES, "data.path": "{root}", "data.test": "/etc/passwd"}),
    ("validate", {**FILES, "data.path": "{root}", "data.test": "out/test.tsv"}),
    ("validate", {**FILES, "data.path": "{root}/linked"}),
    ("validate", {**FILES, "data.path": "{root}/all.csv"}),
    ("validate", {**FILES, "data.path": "{root}/patterns", "data.train": "*.tsv"}),
    ("validate", {**FILES, "data.path": "{root}/patterns/*/*.tsv"}),
    ("validate", {**FILES, "data.path": "{root}/patterns/rows"}),
    ("validate", {**FILES, "data.path": "{root}/../secret/*"}),
    ("validate", {**FILES, "data.path": "{root}/*/rows"}),
    ("validate", {**FILES, "data.path": "{root}", "data.train": "../secret/*"}),
    ("score", {"scoring.input": "{root}/patterns/*.tsv"}),
    ("score", {"scoring.input": "{root}/patterns/rows"}),
    ("score", {"scoring.input": "/etc/*.csv"}),
    ("validate", {**FILES, "data.source": "delta", "data.path": "{root}/out/table"}),
    ("validate", {**ICEBERG, "data.path": "sqlite:///{root}/../secret/catalog.db"}),
    ("score", {"scoring.input": "sqlite:////etc/catalog.db", "scoring.table": "a.b.c"}),
    ("ingest", {"dataset.drop": "{root}/../secret"}),
    ("pretrain", {"pretraining.text": "/etc/passwd"}),
    ("score", {"scoring.input": "/etc/passwd"}),
    ("score", {"scoring.input": "{root}/out/table.csv"}),
    ("score", {"scoring.input": "{root}/table.csv", "scoring.model": "/srv/model"}),
    ("score", {"scoring.input": "{root}/table.csv", "scoring.model": "model"}),
    ("stream", {"streaming.folder": "{root}/../secret"}),
    ("stream", {"streaming.folder": "{root}/out"}),
    ("stream", {"streaming.folder": "incoming", "streaming.model": "{root}/model"}),
    ("stream", {"streaming.folder": "{root}/incoming", "streaming.model": "/srv/model"}),
    *(
        (stage, {"model.name": name})
        for stage in ("preprocess", "train")
        for name in ("/etc", "../x", "./tests", "~/x")
    ),
    ("preprocess", {"model.lexicon": "/etc/terms"}),
    ("teach", {"model.lexicon": "/etc/terms"}),
]


@pytest.mark.parametrize(("stage", "conf"), OUTSIDE, ids=str)
def test_a_path_outside_the_deployments_data_is_refused(
    stage: str, conf: dict[str, str], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BERT_DATABASES", "jdbc:x://y/z")
    with pytest.raises(BadInput, match=f"is not below {root}: move it there"):
        begin(stage, {key: value.format(root=root) for key, value in conf.items()})


@pytest.mark.parametrize("field", ["model.name", "model.lexicon", "pretraining.text"])
def test_a_search_tries_no_path_outside_the_deployments_data(field: str, root: Path) -> None:
    space = {field: ["", f"{root}/x"][field == "model.name" :]}
    assert begin("search", {"search.space": space}).command
    for stage in ("search", "recommend"):
        with pytest.raises(BadInput, match=f"/etc/x is not below {root}: move it there"):
            begin(stage, {"search.space": {field: [*space[field], "/etc/x"]}})


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_in_every_runtime(runtime: type[StageOperator], root: Path) -> None:
    with pytest.raises(BadInput, match=r"/etc/passwd is not below"):
        begin("validate", {**FILES, "data.path": str(root), "data.test": "/etc/passwd"}, runtime)
    assert begin("validate", {**GLUE, "data.path": f"{root}/glue"}, runtime).command


def test_what_lies_below_the_data_is_read(root: Path, home: Path) -> None:
    version, champion = home / "artifacts/ingest/0123456789abcdef", home / "artifacts/train/0123456789abcdef"
    readable: list[tuple[str, dict[str, str]]] = [
        ("validate", {**GLUE, "data.path": str(root / "glue")}),
        ("validate", {**GLUE, "data.path": "data/glue"}),
        ("validate", {**FILES, "data.path": str(root), "data.test": "glue/../test.tsv"}),
        ("validate", {**FILES, "data.path": str(version)}),
        ("validate", {**FILES, "data.path": str(root / "one.csv")}),
        ("validate", {**FILES, "data.path": str(root / "glue"), "data.train": "*/*.tsv"}),
        ("validate", {**FILES, "data.path": "data/glue/**/*.tsv"}),
        ("score", {"scoring.input": str(root / "glue")}),
        ("validate", {**FILES, "data.source": "delta", "data.path": "data/table", "data.version": "3"}),
        ("validate", {**ICEBERG, "data.path": f"sqlite:///{root}/catalog.db"}),
        ("train", {"model.name": str(champion)}),
        ("train", {"model.name": "all-mpnet-base-v2"}),
        ("train", {"model.name": "google/bert_uncased_L-2_H-128_A-2"}),
        ("preprocess", {"data.path": "/etc", **GLUE}),  # validate has read it
        ("score", {"scoring.input": str(root / "table.csv"), "scoring.model": str(champion)}),
        ("stream", {"streaming.folder": str(root / "incoming"), "streaming.model": str(champion)}),
        ("stream", {"streaming.folder": "data/incoming"}),
    ]
    for stage, conf in readable:
        assert begin(stage, conf).command


def test_only_the_deployments_tables_at_addresses_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_DATABASES", "s3://bucket/reviews postgresql://db/catalog")
    for conf in (
        {**FILES, "data.source": "delta", "data.path": "s3://bucket/{}"},
        {**ICEBERG, "data.path": "postgresql://db/{}"},
    ):
        known = {"s3": "reviews", "po": "catalog"}[conf["data.path"][:2]]
        assert begin("validate", {**conf, "data.path": conf["data.path"].format(known)}).command
        with pytest.raises(BadInput, match="other is none of this deployment's databases"):
            begin("validate", {**conf, "data.path": conf["data.path"].format("other")})
    assert begin("score", {"scoring.input": "s3://bucket/reviews", "scoring.model": f"{root}/model"}).command
    with pytest.raises(BadInput, match="other is none of this deployment's databases"):
        begin("score", {"scoring.input": "s3://bucket/other", "scoring.model": f"{root}/model"})


def test_only_the_deployments_databases_get_its_login(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = root.parent / "jdbc/driver.jar"  # not below the data, where others may write
    table = {"scoring.table": "reviews", "scoring.driver": str(jar)}
    shop, other = "jdbc:postgresql://db/shop", "jdbc:postgresql://db/shop2"
    monkeypatch.setenv("SPARK_BERT_DATABASES", f"jdbc:mysql://db/x {shop}")
    with pytest.raises(BadInput, match=r"scoring.driver = '.*driver.jar' is none of this deployment's driv"):
        begin("score", {**table, "scoring.input": shop})  # whoever may write below the data could have put it there
    monkeypatch.setenv("SPARK_BERT_DRIVERS", f"/other.jar {jar}")
    assert begin("score", {**table, "scoring.input": shop}).command
    with pytest.raises(BadInput, match=f"{other} is none of this deployment's databases: add it to .* or export"):
        begin("score", {**table, "scoring.input": other})


def test_only_the_deployments_brokers_get_its_login(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"streaming.source": "kafka", "streaming.topic": "reviews", "streaming.folder": "/not/read"}
    shop, other = "kafka-1:9092,kafka-2:9092", "kafka-1:9092"
    monkeypatch.setenv("SPARK_BERT_BROKERS", f"test:9092 {shop}")
    assert begin("stream", {**kafka, "streaming.brokers": shop}).command
    with pytest.raises(BadInput, match=f"streaming.brokers = '{other}' is none of this deployment's"):
        begin("stream", {**kafka, "streaming.brokers": other})
    monkeypatch.delenv("SPARK_BERT_BROKERS")
    with pytest.raises(BadInput, match="brokers: add it to SPARK_BERT_BROKERS"):
        begin("stream", {**kafka, "streaming.brokers": shop})
    assert begin("score", {**kafka, "scoring.input": "data/table.csv"}).command


@pytest.mark.parametrize("stage", ["validate", "predict", "train"])
def test_only_the_deployments_spark_masters_get_its_data(
    stage: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = {"runtime.ranks_on": "spark", "training.ranks": 2}
    mine, own, other = "spark://a:7077", "spark://b:7077,c:7077", "spark://x:7077"
    monkeypatch.setenv("SPARK_BERT_SPARK_MASTER", f"{mine} {own}")
    by_default = begin(stage, ranks)
    assert by_default.experiment.runtime.spark_master == mine
    for master in (own, "local[2]"):
        assert begin(stage, {**ranks, "runtime.spark_master": master}).command
    for master in (other, "yarn", "k8s://https://x", f"{mine},x:1"):
        with pytest.raises(BadInput, match="none of this deployment's Spark masters: add it to SPARK_BERT_S"):
            begin(stage, {**ranks, "runtime.spark_master": master})
    assert begin("gate", {"runtime.spark_master": other}).command  # it works on none
    monkeypatch.delenv("SPARK_BERT_DATA")
    assert begin(stage, {**ranks, "runtime.spark_master": other}).command


def test_without_such_a_folder_any_path_is_read(home: Path) -> None:
    assert begin("validate", {**FILES, "data.path": "/etc", "data.test": "/etc/passwd"}).command


@pytest.mark.parametrize(
    ("path", "message"),
    [("~nobody-of-this-name/x", "there is no user of that name here"), ("data/circle", "is not a valid path")],
)
def test_what_is_no_path_is_named(path: str, message: str, root: Path) -> None:
    with pytest.raises(BadInput, match=f"{path}.*{message}"):
        begin("validate", {**GLUE, "data.path": path})


@pytest.mark.parametrize("name", ["..", "/srv/other/runs/first", "../runs/first", "a/b"])
def test_a_submission_holds_runs_of_this_home_only(name: str, root: Path) -> None:
    with pytest.raises(BadInput, match=f"submission.runs names {name}: write the name of a folder"):
        begin("export", {"submission.runs": [name]})
    assert begin("export", {"submission.runs": ["first"]}).command


def test_the_home_of_a_user_who_is_not_there_is_refused_and_no_traceback() -> None:
    with pytest.raises(BadInput, match="~nosuchuser/glue: there is no user of that name here"):
        data_path("~nosuchuser/glue")
