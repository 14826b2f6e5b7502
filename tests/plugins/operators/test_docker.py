"""The docker operator without an engine: what it asks for, and what it makes of the answers."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import HostConfig
from requests import ConnectionError

from include.named_experiments import load
from include.runs import Run
from include.secrets import DATABASE, KAFKA, LOGIN, PROMOTER
from include.stages import STAGES, BadInput, ExitCode
from spark_bert.deployment.containers import environment, network, user
from spark_bert.deployment.inputs import named_runs
from spark_bert.deployment.places import run_folder
from spark_bert.operators.base import Outcome
from spark_bert.operators.docker import _Chunks, _has_registry, container_outcome
from spark_bert.operators.docker_containers import host_config
from tests.plugins.operators.conftest import execute
from tests.plugins.operators.daemon import RUN, Daemon, answer, context, operator

pytestmark = pytest.mark.usefixtures("home")


def sandbox(stage: str = "train", *overrides: str) -> HostConfig:
    """What the daemon would be sent."""
    keywords = host_config(stage, load("movies", list(overrides)), run_folder("finetune", RUN))
    return HostConfig(version="1.41", **keywords)


def mounts(stage: str, *overrides: str) -> dict[str, str]:
    """Path inside to "rw" or "ro", each mounted from the same path outside."""
    found = sandbox(stage, *overrides)["Mounts"]
    assert all(mount["Type"] == "bind" and mount["Source"] == mount["Target"] for mount in found)
    return {mount["Target"]: "ro" if mount["ReadOnly"] else "rw" for mount in found}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_sandboxed(stage: str) -> None:
    config = sandbox(stage)
    assert config["ReadonlyRootfs"] is True and config["Init"] is True
    assert config["CapDrop"] == ["ALL"] and "CapAdd" not in config and "Privileged" not in config
    assert config["SecurityOpt"] == ["no-new-privileges:true"]
    assert config["NetworkMode"] == "none" and config["IpcMode"] == "private"
    assert config["Memory"] == config["MemorySwap"] > 0
    assert 0 < config["NanoCpus"] <= (os.cpu_count() or 1) * 1e9
    assert config["PidsLimit"] > 0 and config["ShmSize"] > 0
    (tmp,) = config["Tmpfs"].items()
    assert tmp[0] == "/tmp" and {"nosuid", "nodev"} <= set(tmp[1].split(",")) and "size=" in tmp[1]
    assert config["LogConfig"]["Config"] == {"max-size": "20m", "max-file": "3"}
    assert not config.get("DeviceRequests") and "Binds" not in config and "PortBindings" not in config


def test_a_stage_writes_into_the_store_and_the_runs_only(home: Path) -> None:
    writes = {str(home / name): "rw" for name in ("artifacts", "checkpoints", "runs")}
    assert mounts("gate") == writes
    assert mounts("train") == {**writes, str(home.parent / "cache"): "ro"}
    owner = (home / "artifacts").stat()
    assert (owner.st_uid, owner.st_gid) == user() and 0 not in user()


def test_a_stage_reads_what_its_part_of_the_experiment_names(tmp_path: Path) -> None:
    data, text, encoder = tmp_path / "glue", tmp_path / "reviews.txt", tmp_path / "encoder"
    for path in (data, text, encoder):
        path.mkdir()
    named = [f"data.path={data}", "data.task=SST-2", "data.source=glue", f"pretraining.text={text}"]
    named.append(f"model.name={encoder}")
    read = {stage: {path for path, mode in mounts(stage, *named).items() if mode == "ro"} for stage in STAGES}
    cache = str(tmp_path / "cache")
    assert read["validate"] == {str(data), cache}
    assert read["pretrain"] == {str(text), str(encoder), cache}
    assert read["preprocess"] == read["train"] == {str(encoder), cache}
    assert not read["evaluate"] | read["gate"] | read["predict"] | read["export"]


def test_ingest_sets_files_of_the_drop_folder_aside_and_moves_datasets_on(home: Path, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    found = mounts("ingest", f"dataset.drop={drop}")
    assert {path for path, mode in found.items() if mode == "ro"} == {str(tmp_path / "cache")}
    assert set(found.items()) - set(mounts("validate").items()) == {(str(drop), "rw"), (str(home / "datasets"), "rw")}
    assert str(drop) not in mounts("validate", f"dataset.drop={drop}")


def test_a_datasets_version_needs_no_mount_beside_the_stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_DATA", str(home.parent / "data"))
    version = home / "artifacts/ingest/0123456789abcdef"
    version.mkdir(parents=True)
    assert mounts("validate", "data.source=files", f"data.path={version}") == mounts("validate")


def test_of_a_pattern_the_folder_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in/day=1").mkdir(parents=True)
    assert str(tmp_path / "in") in mounts("score", f"scoring.input={tmp_path}/in/*/part-*.csv")
    assert str(tmp_path / "in") in mounts("validate", "data.source=files", f"data.path={tmp_path}/in/*.csv")
    monkeypatch.setenv("SPARK_BERT_DATA", str(tmp_path))
    (mount,) = [
        mount for mount in sandbox("score", "scoring.input=data/in/*.csv")["Mounts"] if "/opt" in mount["Target"]
    ]
    assert (mount["Source"], mount["Target"]) == (str(tmp_path / "in"), "/opt/spark-bert/data/in")
    for pattern in ("*.csv", "/*.csv"):
        with pytest.raises(BadInput, match=r"\.csv is a pattern in no folder, and a container sees folders"):
            mounts("score", f"scoring.input={pattern}")


def test_of_a_table_its_folder_or_that_of_its_catalog_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "lake/reviews").mkdir(parents=True)
    assert str(tmp_path / "lake/reviews") in mounts("score", f"scoring.input={tmp_path}/lake/reviews")
    named = ["data.source=iceberg", "data.table=prod.shop.reviews", f"data.path=sqlite:///{tmp_path}/lake/catalog.db"]
    assert str(tmp_path / "lake") in mounts("validate", *named)
    assert mounts("validate", "data.source=delta", "data.path=s3://bucket/reviews") == mounts("validate")


def test_a_relative_path_starts_from_the_code() -> None:
    (mount,) = [mount for mount in sandbox("train", "model.name=./tests")["Mounts"] if "/opt" in mount["Target"]]
    assert mount["Target"] == "/opt/spark-bert/tests" and mount["Source"].endswith("/tests") and mount["ReadOnly"]


def test_a_relative_path_below_data_may_lie_in_the_deployments_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "glue"
    (data / "imdb").mkdir(parents=True)
    (data / "imdb/text.txt").touch()
    monkeypatch.setenv("SPARK_BERT_DATA", str(data))
    (mount,) = [
        mount
        for mount in sandbox("pretrain", "pretraining.text=data/imdb/text.txt")["Mounts"]
        if mount["Source"].startswith(str(data))
    ]
    assert mount["Source"] == str(data / "imdb/text.txt")
    assert mount["Target"] == "/opt/spark-bert/data/imdb/text.txt" and mount["ReadOnly"]


@pytest.mark.parametrize("stage", ["export", "study"])
def test_other_runs_need_no_mount_beside_that_of_all(stage: str, home: Path) -> None:
    """One run's folder is never mounted by itself: it could be a link, which the engine would follow."""
    (home / "runs/first").mkdir(parents=True)
    (home / "runs/out").symlink_to("/etc")
    named = 'submission.runs=["first", "out", "..", "/etc", "gone"]'
    assert mounts(stage, named) == mounts("gate")


def test_pruning_removes_old_runs_and_reads_what_datasets_refer_to(home: Path) -> None:
    (home / "datasets").mkdir(parents=True)
    folders = {str(home / name): "rw" for name in ("artifacts", "checkpoints", "runs", "mlflow")}
    assert mounts("prune") == {**folders, str(home / "datasets"): "ro"}


def test_tracking_reads_all_runs_and_has_a_network_for_a_server_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    local = {str(home / "runs"): "rw", str(home / "mlflow"): "rw"}
    assert mounts("track").items() >= local.items() and sandbox("track")["NetworkMode"] == "none"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert str(home / "mlflow") not in mounts("track") and sandbox("track")["NetworkMode"] == "bridge"
    assert environment("track", load("movies"))["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert sandbox("gate")["NetworkMode"] == "none" and "MLFLOW_TRACKING_URI" not in environment("gate", load("movies"))


@pytest.mark.parametrize("stage", ["champion", "register", "promote", "rollback"])
def test_the_registrys_stages_reach_mlflow_and_nothing_more(
    stage: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "glue").mkdir()
    named = ("runtime.download=true", f"data.path={tmp_path}/glue", "data.task=SST-2", "data.source=glue")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert mounts(stage, *named) == {**mounts("gate"), str(home / "mlflow"): "rw"}
    assert sandbox(stage, *named)["NetworkMode"] == "none"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert mounts(stage, *named) == mounts("gate") and sandbox(stage)["NetworkMode"] == "bridge"
    assert environment(stage, load("movies"))["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"


def test_only_stages_on_a_cluster_and_downloads_get_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def networks(*overrides: str) -> dict[str, str]:
        return {stage: sandbox(stage, *overrides)["NetworkMode"] for stage in STAGES}

    cluster = "runtime.spark_master=spark://spark:7077"
    quiet = dict.fromkeys(STAGES, "none")
    downloading = dict.fromkeys(
        ("validate", "preprocess", "train", "publish", "ingest", "search", "recommend"), "bridge"
    )
    assert networks("runtime.download=true") == {**quiet, **downloading}
    monkeypatch.setenv("SPARK_BERT_NETWORK", "spark-bert")
    spark = dict.fromkeys(("validate", "preprocess", "predict", "score", "stream", "search", "recommend"), "spark-bert")
    assert networks(cluster) == {**quiet, **spark}
    ranks = ("runtime.ranks_on=spark", "training.ranks=2")
    assert networks(cluster, *ranks) == {**quiet, **spark, "train": "spark-bert"}
    assert networks(cluster, "model.kind=tfidf") == {**quiet, **spark, "train": "spark-bert"}

    text = f"pretraining.text={tmp_path / 'text.txt'}"  # without one, pretrain does nothing
    assert networks("runtime.download=true", text)["pretrain"] == "spark-bert"
    assert networks(cluster, *ranks, text)["pretrain"] == "spark-bert"
    assert networks(cluster, "model.kind=frozen", text)["pretrain"] == "none"
    assert networks(cluster, "model.teacher=large")["teach"] == "spark-bert"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all secrets that a deployment may have."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in ("hf_token", *LOGIN.values(), *PROMOTER.values(), "of_something_else"):
        (folder / name).write_text("s3cr3t")
    monkeypatch.setenv("SPARK_BERT_SECRETS", str(folder))
    return folder


def secret_mounts(stage: str, *overrides: str) -> dict[str, str]:
    """Target to source of the stage's secret files, all read-only."""
    found = [mount for mount in sandbox(stage, *overrides)["Mounts"] if mount["Target"].startswith("/run/secrets")]
    assert all(mount["ReadOnly"] for mount in found)
    return {mount["Target"]: mount["Source"] for mount in found}


def test_the_hubs_token_is_a_file_for_stages_that_download(secrets: Path) -> None:
    assert secret_mounts("train") == {}
    assert secret_mounts("train", "runtime.download=true") == {"/run/secrets/hf_token": str(secrets / "hf_token")}
    variables = environment("train", load("movies", ["runtime.download=true"]))
    assert variables["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    (secrets / "hf_token").unlink()  # the engine starts no container on a file that is not there
    assert secret_mounts("train", "runtime.download=true") == {}


@pytest.mark.parametrize("stage", STAGES)
def test_mlflows_login_is_files_and_only_who_may_promote_gets_the_promoters(
    stage: str, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert secret_mounts(stage) == {}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "s3cr3t")  # of processes, beside the files of containers
    speaking = "track champion register promote rollback score stream prune search recommend"
    speaks = stage in speaking.split()
    names = [*(LOGIN.values() if speaks else ()), *(PROMOTER.values() if stage in ("promote", "rollback") else ())]
    assert secret_mounts(stage) == {f"/run/secrets/{name}": str(secrets / name) for name in names}
    variables = environment(stage, load("movies"))
    assert variables.get("SPARK_BERT_SECRETS") == ("/run/secrets" if speaks else None)
    assert "HF_TOKEN_PATH" not in variables and "s3cr3t" not in str(variables)


def test_the_databases_login_is_files_for_who_reads_it(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in DATABASE.values():
        (secrets / name).write_text("s3cr3t")
    read = ("scoring.input=jdbc:postgresql://db/shop", "scoring.table=reviews", "scoring.driver=driver.jar")
    assert sandbox("score", *read)["NetworkMode"] == "bridge"
    assert secret_mounts("score", *read) == {f"/run/secrets/{name}": str(secrets / name) for name in DATABASE.values()}
    assert environment("score", load("movies", read))["SPARK_BERT_SECRETS"] == "/run/secrets"
    assert secret_mounts("predict", *read) == secret_mounts("score") == {}


def test_the_stores_login_is_a_file_for_stages_that_use_it(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "aws_credentials").write_text("s3cr3t")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    monkeypatch.setenv("SPARK_BERT_STAGING", "s3://bucket/staging?region=eu-central-1")
    cluster = "runtime.spark_master=spark://spark:7077"
    assert secret_mounts("predict") == secret_mounts("gate", cluster) == {}
    assert "SPARK_BERT_STAGING" not in environment("predict", load("movies"))
    assert secret_mounts("predict", cluster) == {"/run/secrets/aws_credentials": str(secrets / "aws_credentials")}
    variables = environment("predict", load("movies", [cluster]))
    assert variables["SPARK_BERT_STAGING"] == "s3://bucket/staging?region=eu-central-1"
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == "/run/secrets/aws_credentials" and "s3cr3t" not in str(variables)
    table = ("data.source=delta", "data.path=s3://bucket/reviews")
    assert secret_mounts("validate", *table).keys() == {"/run/secrets/aws_credentials"}
    assert "AWS_SHARED_CREDENTIALS_FILE" in environment("validate", load("movies", table))
    assert (network("validate", load("movies", table)), network("predict", load("movies", table))) == ("bridge", "none")
    monkeypatch.setenv("SPARK_BERT_STAGING", "abfs://container@account.dfs.core.windows.net/staging")
    assert secret_mounts("predict", cluster) == {}
    assert environment("predict", load("movies", [cluster]))["SPARK_BERT_STAGING"].startswith("abfs://container@")
    monkeypatch.setenv("SPARK_BERT_STAGING", "s3://user:s3cr3t@bucket/staging")
    with pytest.raises(BadInput, match=r"^SPARK_BERT_STAGING contains a login, .* file aws_credentials \(s3://\)"):
        environment("predict", load("movies", [cluster]))


def test_scoring_reads_its_table_and_its_model(home: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "in.csv").touch()
    found = mounts("score", f"scoring.input={tmp_path}/in.csv", f"scoring.model={tmp_path}/model")
    assert (found[str(tmp_path / "in.csv")], found[str(tmp_path / "model")]) == ("ro", "ro")


def test_a_stream_reads_its_folder_and_its_model_and_writes_the_streams(home: Path, tmp_path: Path) -> None:
    for name in ("incoming", "model"):
        (tmp_path / name).mkdir()
    read = {str(tmp_path / "incoming"): "ro", str(tmp_path / "model"): "ro"}
    found = mounts("stream", f"streaming.folder={tmp_path}/incoming", f"streaming.model={tmp_path}/model")
    assert found == {**mounts("score"), **read, str(home / "streams"): "rw"}
    owner = (home / "streams").stat()
    assert (owner.st_uid, owner.st_gid) == user()


def test_kafka_is_reached_by_who_reads_it_with_the_settings_of_a_file(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (secrets / KAFKA).write_text("sasl.jaas.config=s3cr3t")
    (tmp_path / "incoming").mkdir()
    kafka = ("streaming.source=kafka", "streaming.brokers=kafka:9092", "streaming.topic=reviews")
    assert sandbox("stream", *kafka)["NetworkMode"] == "bridge" and sandbox("score", *kafka)["NetworkMode"] == "none"
    assert secret_mounts("stream", *kafka) == {f"/run/secrets/{KAFKA}": str(secrets / KAFKA)}
    assert secret_mounts("stream") == secret_mounts("score", *kafka) == {}
    assert environment("stream", load("movies", kafka))["SPARK_BERT_SECRETS"] == "/run/secrets"
    found = sandbox("stream", *kafka, f"streaming.folder={tmp_path}/incoming")["Mounts"]
    assert str(tmp_path / "incoming") not in {mount["Source"] for mount in found}


def test_a_login_that_would_be_seen_or_would_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ada:s3cr3t@mlflow.example.org/prefix")
    remedy = "mlflow_token, or into mlflow_username and mlflow_password, in the folder that SPARK_BERT_SECRETS names"
    with pytest.raises(BadInput, match=f"MLFLOW_TRACKING_URI contains a login, .* {remedy}") as error:
        environment("track", load("movies"))
    assert "s3cr3t" not in str(error.value) and environment("gate", load("movies"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "s3cr3t")
    with pytest.raises(BadInput, match=f"MLFLOW_TRACKING_PASSWORD is not passed on .* {remedy}") as error:
        environment("track", load("movies"))
    assert "s3cr3t" not in str(error.value)


def test_a_training_gets_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_GPUS", "2")
    assert sandbox("train")["DeviceRequests"][0]["Count"] == 2
    assert not sandbox("evaluate").get("DeviceRequests")
    assert operator().image == "spark-bert/train-gpu:latest"
    assert operator("evaluate").image == "spark-bert/data:latest"
    monkeypatch.setenv("SPARK_BERT_GPUS", "all")
    assert sandbox("pretrain")["DeviceRequests"][0]["Count"] == -1
    monkeypatch.setenv("SPARK_BERT_GPUS", "some")
    with pytest.raises(Exception, match="SPARK_BERT_GPUS='some' is not valid: write the number of GPUs"):
        operator()


def state(code: int, killed: bool = False, error: str = "") -> dict[str, Any]:
    return {"Status": "exited", "Running": False, "OOMKilled": killed, "ExitCode": code, "Error": error}


def test_outcomes() -> None:
    assert container_outcome("train", state(0), '{"rows": 3}', "") == Outcome(0, '{"rows": 3}', "")
    assert container_outcome("train", state(75), "", "rank 1 is lost") == Outcome(75, "", "rank 1 is lost")
    assert container_outcome("train", state(127, error="no such file: python"), "", "").reason == "no such file: python"
    assert container_outcome("train", state(0, killed=True), "{}", "").code == 0  # it got over the loss of a process


@pytest.mark.parametrize("code", [137, 75, 1])
def test_a_full_memory_is_named_with_its_limit(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_LIMITS", '{"train": {"memory": "3g"}}')
    with pytest.raises(AirflowFailException) as error:
        container_outcome("train", state(code, killed=True), "", "rank 1 is lost")
    assert "train ran out of memory: its container's limit is 3072 MiB" in str(error.value)
    assert """SPARK_BERT_LIMITS='{"train": {"memory": "6144m"}}'""" in str(error.value)


@pytest.mark.parametrize(
    ("error", "final", "message"),
    [
        (ImageNotFound(**answer(404, "No such image")), True, "no image spark-bert/train:latest: build it with `make"),
        (NotFound(**answer(404, "No such container")), False, "stopped, removed or taken over while train ran"),
        (APIError(**answer(400, "bind source path does not exist: /data")), True, "path does not exist: /data"),
        (APIError(**answer(403, "no stage needs it")), True, "the daemon refuses the container: no stage needs it"),
        (APIError(**answer(409, "name is in use")), False, "another try may succeed: name is in use"),
        (APIError(**answer(500, "no space left on device")), False, "may succeed: no space left on device"),
        (ConnectionError("refused"), False, "no Docker daemon answers at .*another try may succeed. Check that it"),
        (DockerException("Error while fetching server API version"), False, "no Docker daemon answers at"),
    ],
)
def test_what_the_daemon_says_becomes_a_retry_or_a_failure(error: Exception, final: bool, message: str) -> None:
    train = operator()
    train._identify(context())
    with pytest.raises(AirflowException, match=message) as caught, train._translated_errors():
        raise error
    assert isinstance(caught.value, AirflowFailException) is final


def test_a_container_that_cannot_be_made_is_refused_in_the_runs_record(home: Path) -> None:
    home.mkdir()
    (home / "checkpoints").touch()
    with pytest.raises(AirflowFailException, match=f"{home}/checkpoints is a symbolic link or a file"):
        execute(Daemon().attempt(context()), context())
    record = Run(run_folder("finetune", RUN)).record()
    assert (record["dag_id"], record["stages"]["train"]["exit_code"]) == ("finetune", ExitCode.BAD_INPUT)
    assert "replace it with one" in record["stages"]["train"]["message"]


def test_an_unreachable_daemon_is_tried_again() -> None:
    with pytest.raises(AirflowException, match=r"no Docker daemon answers at unix:///nowhere\.sock") as error:
        operator(docker_url="unix:///nowhere.sock").run_stage(context())
    assert not isinstance(error.value, AirflowFailException)


def test_images_with_a_registry_can_be_pulled() -> None:
    assert [name for name in ("spark-bert/train:latest", "train", "a/b/train:1") if _has_registry(name)] == []
    assert _has_registry("ghcr.io/me/spark-bert/train:1") and _has_registry("localhost:5000/train")
    assert _has_registry("localhost/train")


def test_a_stream_of_bytes_reads_as_lines() -> None:
    chunks = iter([b"one\ntw", b"", b"o\r", b"three\ncaf\xe9"])
    stream = io.TextIOWrapper(io.BufferedReader(_Chunks(chunks)), encoding="utf-8", errors="backslashreplace")
    assert stream.read().splitlines() == ["one", "two", "three", "caf\\xe9"]


@pytest.mark.parametrize("uid", [500, 65534])
def test_a_user_whom_the_images_do_not_name_is_refused(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    with pytest.raises(BadInput, match=rf"as user {uid}, .* the images name only the users 1000 to 65533"):
        user()


def test_the_stages_that_use_a_teacher_see_it(tmp_path: Path) -> None:
    for name in ("large/model", "home/runs/first"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    folder = f"model.teacher={tmp_path}/large/model"
    for stage in ("teach", "train", "evaluate"):
        assert mounts(stage, folder)[str(tmp_path / "large/model")] == "ro"
    assert (
        mounts("teach", folder, f"model.name={tmp_path}/large")[str(tmp_path / "large")] == "ro"
    )  # it tokenizes texts
    assert named_runs("teach", load("movies", ["model.teacher=first"])) == {"model.teacher": ("first",)}
    assert named_runs("teach", load("movies", [folder])) == {"model.teacher": ()}
    assert named_runs("train", load("movies", ["model.teacher=first"])) == {}


def test_a_search_sees_what_its_trials_read(tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "terms").touch()
    space = {"model.name": ["all-MiniLM-L6-v2", f"{tmp_path}/encoder"], "model.lexicon": ["", f"{tmp_path}/terms"]}
    for stage in ("search", "recommend"):
        found = mounts(stage, f"search.space={json.dumps(space)}")
        assert found[str(tmp_path / "encoder")] == found[str(tmp_path / "terms")] == "ro"
    assert str(tmp_path / "encoder") not in mounts("train", f"search.space={json.dumps(space)}")
