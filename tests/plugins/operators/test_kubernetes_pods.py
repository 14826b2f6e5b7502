"""The pod of every stage: it fits the published schemas, and is walled in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from airflow.sdk.exceptions import AirflowFailException

from include.runs import Run
from include.secrets import LOGIN, PROMOTER
from include.stages import STAGES, ExitCode
from spark_bert.deployment.limits import limits
from spark_bert.deployment.places import run_folder
from tests.plugins.operators.conftest import execute
from tests.plugins.operators.pods import RUN, container, context, manifest, mounts, operator

SCHEMAS = ("1.30", "1.37")
pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("version", SCHEMAS)
@pytest.mark.parametrize("stage", STAGES)
def test_every_pod_fits_the_published_schema(stage: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes_validate.validate(manifest(stage), version, strict=True)
    monkeypatch.setenv("SPARK_BERT_GPUS", "2")
    monkeypatch.setenv("SPARK_BERT_SECRETS", "spark-bert-secrets")
    kubernetes_validate.validate(manifest(stage, "runtime.download=true"), version, strict=True)


def test_a_pod_that_does_not_fit_is_found_out() -> None:
    pod = manifest("train")
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = {"Gi": 12}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, SCHEMAS[-1], strict=True)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_walled_in(stage: str) -> None:
    pod = manifest(stage)
    spec, security = pod["spec"], container(pod)["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "activeDeadlineSeconds"} & {key for key in spec if spec[key]}
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 60)
    assert pod["metadata"]["labels"]["spark-bert.network"] == "none"
    assert not any("hostPath" in volume for volume in spec["volumes"])


def test_a_stage_writes_into_the_store_and_its_own_run_only(home: Path) -> None:
    run = run_folder("finetune", RUN)
    scratch = {"/tmp": ("tmp", "", "rw"), "/dev/shm": ("shm", "", "rw")}
    writes = {str(home / name): ("spark-bert-home", name, "rw") for name in ("artifacts", "checkpoints")}
    writes[str(run)] = ("spark-bert-home", f"runs/{run.name}", "rw")
    assert mounts(manifest("gate")) == {**writes, **scratch}
    cache = {str(home.parent / "cache"): ("spark-bert-cache", "", "ro")}
    assert mounts(manifest("train")) == {**writes, **cache, **scratch}
    assert all((home / place).is_dir() for place in ("artifacts", "checkpoints", f"runs/{run.name}"))


@pytest.mark.parametrize(
    ("stage", "read"), [("export", {"runs/first"}), ("study", {"runs"}), ("track", {"runs"}), ("gate", set())]
)
def test_only_some_stages_read_other_runs(stage: str, read: set[str], home: Path) -> None:
    (home / "runs/first").mkdir(parents=True)
    found = mounts(manifest(stage, 'submission.runs=["first", "..", "/etc", "gone"]'))
    assert {place for claim, place, mode in found.values() if claim == "spark-bert-home" and mode == "ro"} == read


def test_data_lies_on_the_claim_that_holds_it(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data" / "glue" / "SST-2"
    data.mkdir(parents=True)
    claims = {str(home.parent): "everything", str(tmp_path / "data"): "corpora"}
    monkeypatch.setenv("SPARK_BERT_CLAIMS", json.dumps(claims))
    found = mounts(manifest("validate", f"data.path={data}"))
    assert found[str(data)] == ("corpora", "glue/SST-2", "ro")
    assert found[str(home / "artifacts")] == ("everything", "home/artifacts", "rw")


def test_the_drop_folder_can_be_changed(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data/drop").mkdir(parents=True)
    monkeypatch.setenv("SPARK_BERT_CLAIMS", json.dumps({str(home.parent): "home", str(tmp_path / "data"): "corpora"}))
    found = mounts(manifest("ingest", f"dataset.drop={tmp_path}/data/drop"))
    assert found[str(tmp_path / "data/drop")] == ("corpora", "drop", "rw")


def test_a_stream_reads_its_folder_and_writes_the_streams(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/incoming").mkdir(parents=True)
    monkeypatch.setenv("SPARK_BERT_CLAIMS", json.dumps({str(home): "home", str(tmp_path / "data"): "rows"}))
    found = mounts(manifest("stream", f"streaming.folder={tmp_path}/data/incoming"))
    assert found[str(tmp_path / "data/incoming")] == ("rows", "incoming", "ro")
    assert found[str(home / "streams")] == ("home", "streams", "rw")


def test_a_folder_on_no_volume_is_named_in_the_log_and_in_the_runs_record(tmp_path: Path) -> None:
    refused = rf"{tmp_path} lies on no volume: name the claim .*SPARK_BERT_CL"
    with pytest.raises(AirflowFailException, match=refused):
        execute(operator("validate", f"data.path={tmp_path}"), context("validate"))
    record = Run(run_folder("finetune", RUN)).record()
    entry = record["stages"]["validate"]
    assert (entry["exit_code"], entry["key"]) == (ExitCode.BAD_INPUT, "") and re.search(refused, entry["message"])
    assert record["experiment"]["data"]["path"] == str(tmp_path)


def test_claims_that_are_no_json_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("home", '["home"]'):
        monkeypatch.setenv("SPARK_BERT_CLAIMS", wrong)
        with pytest.raises(AirflowFailException, match="SPARK_BERT_CLAIMS is not a JSON object"):
            execute(operator(), context())


def test_resources_are_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_LIMITS", '{"train": {"memory": "1536m", "cpus": 0.5, "shm": "1g", "tmp": "3g"}}')
    pod = manifest("train")
    memory = {"memory": "1536Mi", "cpu": "0.5"}
    assert container(pod)["resources"] == {"limits": memory, "requests": memory}
    scratch = {volume["name"]: volume["emptyDir"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume}
    assert scratch == {"tmp": {"sizeLimit": "3Gi"}, "shm": {"sizeLimit": "1Gi", "medium": "Memory"}}
    assert container(manifest("gate"))["resources"]["limits"]["memory"] == f"{limits('gate').memory >> 30}Gi"


def test_a_stage_is_told_its_dag_run() -> None:
    told = {"AIRFLOW_CTX_DAG_ID": "finetune", "AIRFLOW_CTX_DAG_RUN_ID": RUN}
    variables = {variable["name"]: variable.get("value") for variable in container(manifest("gate"))["env"]}
    assert variables.items() >= told.items()


def test_only_trainings_get_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_GPUS", "2")
    train, gate = container(manifest("train")), container(manifest("gate"))
    assert train["resources"]["limits"]["nvidia.com/gpu"] == "2" and train["image"] == "spark-bert/train-gpu:latest"
    assert "nvidia.com/gpu" not in gate["resources"]["limits"] and gate["image"] == "spark-bert/data:latest"
    monkeypatch.setenv("SPARK_BERT_GPUS", "all")
    with pytest.raises(AirflowFailException, match="SPARK_BERT_GPUS=all is not possible on Kubernetes: write"):
        execute(operator("train"), context())


def test_a_secret_is_a_file_and_never_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_SECRETS", "spark-bert-secrets")
    assert not any("secret" in volume for volume in manifest("train")["spec"]["volumes"])
    pod = manifest("train", "runtime.download=true")
    assert mounts(pod)["/run/secrets"] == ("secrets", "", "ro")
    assert keys(pod) == ["hf_token"]
    assert {"name": "HF_TOKEN_PATH", "value": "/run/secrets/hf_token"} in container(pod)["env"]
    assert pod["metadata"]["labels"]["spark-bert.network"] == "open"


def test_mlflows_login_is_keys_of_the_secret_and_only_who_may_promote_gets_the_promoters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_BERT_SECRETS", "spark-bert-secrets")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    for version in SCHEMAS:
        kubernetes_validate.validate(manifest("promote"), version, strict=True)
    assert keys(manifest("register")) == list(LOGIN.values())
    assert keys(manifest("promote")) == [*PROMOTER.values(), *LOGIN.values()]


def keys(pod: dict[str, Any]) -> list[str]:
    """The keys of the Secret that the pod sees, each only if it is there."""
    (secret,) = (volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume)
    assert secret["secretName"] == "spark-bert-secrets" and secret["optional"] is True
    return [item["key"] for item in secret["items"] if item["key"] == item["path"]]


def test_a_label_holds_no_more_than_a_label_may() -> None:
    labels = manifest("train")["metadata"]["labels"]
    assert labels["spark-bert.generation"] == "2.0" and labels["spark-bert.stage"] == "train"
    assert labels["spark-bert.run"] != RUN
    valid = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
    assert [value for value in labels.values() if not valid.fullmatch(value)] == []
