"""The files of the deployments: those in docs/kubernetes fit the published schemas, one another and the operator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from include.fields.labeling import Serving
from include.named_experiments import load
from include.secrets import KAFKA, LOGIN, SERVING, VARIABLE
from include.stages import STAGES
from spark_bert.deployment.containers import CODE
from spark_bert.operators.base import GRACE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "kubernetes"
PLUGINS = Path(__file__).parents[2] / "plugins" / "spark_bert"
INCLUDE = Path(__file__).parents[2] / "include"
APP = Path(__file__).parents[2] / "tasks" / "serving" / "app.py"
Manifest = dict[str, Any]


def manifests() -> Iterator[Manifest]:
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name != "values.yaml":
            yield from yaml.safe_load_all(file.read_text())


def of_kind(kind: str) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests() if manifest["kind"] == kind}


def pods() -> Iterator[Manifest]:
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "Job", "StatefulSet"):
            yield manifest["spec"]["template"]


@pytest.fixture(scope="module")
def values() -> Manifest:
    found: Manifest = yaml.safe_load((FOLDER / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def variables(values: Manifest) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in values["env"]}


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("manifest", manifests(), ids=lambda found: f"{found['kind']}-{found['metadata']['name']}")
def test_every_manifest_fits_the_published_schema(manifest: Manifest, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_airflow_mounts_the_claims_where_the_operator_looks_for_them(
    values: Manifest, variables: dict[str, str]
) -> None:
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in values["volumes"]}
    mounted = {mount["mountPath"]: claims[mount["name"]] for mount in values["volumeMounts"]}
    assert json.loads(variables["SPARK_BERT_CLAIMS"]) == mounted
    assert set(mounted.values()) == set(of_kind("PersistentVolumeClaim"))
    assert {variables[f"SPARK_BERT_{name}"] for name in ("HOME", "CACHE", "DATA")} == set(mounted)


def test_every_variable_is_one_that_the_code_reads(variables: dict[str, str]) -> None:
    code = "".join(file.read_text() for folder in (PLUGINS, INCLUDE) for file in folder.rglob("*.py"))
    assert [name for name in variables if f'"{name}"' not in code and f"'{name}'" not in code] == []


def test_airflow_and_stages_are_the_same_user(values: Manifest) -> None:
    identities = [values["securityContexts"]["pod"], *(pod["spec"]["securityContext"] for pod in pods())]
    assert {(identity["runAsUser"], identity["runAsGroup"], identity["fsGroup"]) for identity in identities} == {
        (values["uid"], values["gid"], values["gid"])
    }


def test_executors_have_the_stages_paths(variables: dict[str, str]) -> None:
    claims = json.loads(variables["SPARK_BERT_CLAIMS"])
    worker = of_kind("StatefulSet")["spark-bert-spark-worker"]["spec"]["template"]
    held = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in worker["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    for mount in worker["spec"]["containers"][0]["volumeMounts"]:
        if mount["mountPath"] == f"{CODE}/data":
            assert held[mount["name"]] == claims[variables["SPARK_BERT_DATA"]]
        elif mount["name"] in held:
            root = mount["mountPath"].removesuffix("/" + mount.get("subPath", "/"))
            assert claims[root] == held[mount["name"]]


def test_policies_name_labels_that_pods_have() -> None:
    names = ("spark", "serve", "stream")
    spark, serve, stream = ({"app.kubernetes.io/name": f"spark-bert-{name}"} for name in names)
    policies = {name: policy["spec"]["podSelector"]["matchLabels"] for name, policy in of_kind("NetworkPolicy").items()}
    assert policies == {
        "spark-bert-stages": {"spark-bert.network": "none"},
        "spark-bert-open-stages": {"spark-bert.network": "open"},
        "spark-bert-spark": spark,
        "spark-bert-serve": serve,
        "spark-bert-stream": stream,
    }
    statefuls = of_kind("StatefulSet").values()
    assert all(spark.items() <= found["spec"]["template"]["metadata"]["labels"].items() for found in statefuls)
    assert of_kind("NetworkPolicy")["spark-bert-stages"]["spec"].keys() == {"podSelector", "policyTypes"}  # allows none


@pytest.fixture(scope="module")
def serve() -> Manifest:
    """The pod of the service."""
    found: Manifest = of_kind("Deployment")["spark-bert-serve"]["spec"]["template"]
    return found


def test_what_belongs_to_the_service_finds_it(serve: Manifest) -> None:
    labels, kinds = serve["metadata"]["labels"], ("Deployment", "PodDisruptionBudget")
    selectors = [of_kind(kind)["spark-bert-serve"]["spec"]["selector"]["matchLabels"] for kind in kinds]
    service, scaler = (of_kind(kind)["spark-bert-serve"]["spec"] for kind in ("Service", "HorizontalPodAutoscaler"))
    assert [*selectors, service["selector"]] == [labels] * 3
    assert scaler["scaleTargetRef"]["name"] == "spark-bert-serve"
    (offered,), (port,) = service["ports"], serve["spec"]["containers"][0]["ports"]
    assert offered["targetPort"] == port["name"] and offered["port"] == port["containerPort"] == Serving().port


def test_the_service_is_given_what_its_command_line_takes(serve: Manifest, variables: dict[str, str]) -> None:
    (container,) = serve["spec"]["containers"]
    given = [argument.partition("=")[::2] for argument in container["args"]]
    experiment = load(dict(given)["--experiment"], [value for name, value in given if name == "--set"])
    assert experiment.serving.host == "0.0.0.0"  # else no probe reaches it
    assert str(experiment.serving.threads) == container["resources"]["limits"]["cpu"]
    assert dict(given)["--home"] == variables["SPARK_BERT_HOME"]
    for name in ("livenessProbe", "readinessProbe"):
        assert f'"{container[name]["httpGet"]["path"]}"' in APP.read_text()


def test_the_service_reads_the_artifacts_and_its_own_secrets_alone(serve: Manifest, variables: dict[str, str]) -> None:
    mounts = {mount["name"]: mount for mount in serve["spec"]["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in serve["spec"]["volumes"]}
    assert mounts.keys() == volumes.keys() == {"home", "secrets", "tmp"}
    assert mounts["home"]["readOnly"] and mounts["secrets"]["readOnly"]
    assert mounts["home"]["mountPath"] == f"{variables['SPARK_BERT_HOME']}/{mounts['home']['subPath']}"
    claims = json.loads(variables["SPARK_BERT_CLAIMS"])
    assert volumes["home"]["persistentVolumeClaim"]["claimName"] == claims[variables["SPARK_BERT_HOME"]]
    secret = volumes["secrets"]["secret"]
    assert secret["secretName"] == variables["SPARK_BERT_SECRETS"] and secret["optional"]
    assert {item["key"] for item in secret["items"]} == {SERVING, *LOGIN.values()}
    environment = {variable["name"]: variable["value"] for variable in serve["spec"]["containers"][0]["env"]}
    assert environment[VARIABLE] == mounts["secrets"]["mountPath"]


def test_the_service_has_time_to_answer_what_has_begun(serve: Manifest) -> None:
    sleep = serve["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert serve["spec"]["terminationGracePeriodSeconds"] > sleep + Serving().deadline + 1


@pytest.fixture(scope="module")
def stream() -> Manifest:
    """The pod of the stream."""
    found: Manifest = of_kind("Deployment")["spark-bert-stream"]["spec"]["template"]
    return found


def test_one_pod_works_on_a_stream(stream: Manifest) -> None:
    spec = of_kind("Deployment")["spark-bert-stream"]["spec"]
    assert spec["replicas"] == 1 and spec["strategy"] == {"type": "Recreate"}
    assert spec["selector"]["matchLabels"] == stream["metadata"]["labels"]
    assert stream["spec"]["terminationGracePeriodSeconds"] >= GRACE


def test_the_stream_is_given_what_its_command_line_takes(stream: Manifest, variables: dict[str, str]) -> None:
    (container,) = stream["spec"]["containers"]
    name, *arguments = container["args"]
    given = [argument.partition("=")[::2] for argument in arguments]
    experiment = load(dict(given)["--experiment"], [value for name, value in given if name == "--set"])
    assert name in STAGES and experiment.streaming.continuous
    assert experiment.runtime.spark_master == f"local[{container['resources']['limits']['cpu']}]"
    home = variables["SPARK_BERT_HOME"]
    assert Path(dict(given)["--run"]).parent == Path(home, "runs")
    assert container["livenessProbe"]["exec"]["command"][-1] == dict(given)["--experiment"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["SPARK_BERT_HOME"] == home and environment[VARIABLE] == "/run/secrets"


def test_the_stream_writes_its_own_folders_alone(stream: Manifest, variables: dict[str, str]) -> None:
    mounts = stream["spec"]["containers"][0]["volumeMounts"]
    home, data = variables["SPARK_BERT_HOME"], variables["SPARK_BERT_DATA"]
    written = {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
    assert written == {"/tmp", *(f"{home}/{name}" for name in ("artifacts/stream", "runs", "streams"))}
    assert all(mount["mountPath"] == f"{home}/{mount['subPath']}" for mount in mounts if mount["name"] == "home")
    assert {mount["mountPath"] for mount in mounts if mount["name"] == "data"} == {data, f"{CODE}/data"}
    volumes = {volume["name"]: volume for volume in stream["spec"]["volumes"]}
    claims = json.loads(variables["SPARK_BERT_CLAIMS"])
    held = {name: volumes[name]["persistentVolumeClaim"]["claimName"] for name in ("home", "data")}
    assert held == {"home": claims[home], "data": claims[data]}
    secret = volumes["secrets"]["secret"]
    assert secret["secretName"] == variables["SPARK_BERT_SECRETS"] and secret["optional"]
    assert {item["key"] for item in secret["items"]} == {KAFKA, *LOGIN.values()}


def probes(stream: Manifest, platform: Manifest) -> dict[str, list[str]]:
    """The commands that look whether the stream lives: that of the pod, and that of the platform's container."""
    pod = stream["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
    _, *container = platform["services"]["stream"]["healthcheck"]["test"]
    return {"pod": pod, "container": [*container[:-1], "retrain"]}


@pytest.mark.parametrize("kind", ["pod", "container"])
def test_the_streams_probe_reads_its_heartbeat(kind: str, stream: Manifest, platform: Manifest, tmp_path: Path) -> None:
    def alive() -> bool:
        command = [sys.executable, *probes(stream, platform)[kind][1:]]
        environment = os.environ | {"SPARK_BERT_HOME": str(tmp_path)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == 0

    beat = tmp_path / "streams/stream/heartbeat.json"
    assert not alive()
    beat.parent.mkdir(parents=True)
    beat.touch()
    assert alive()
    os.utime(beat, times=(time.time() - 40,) * 2)
    assert not alive()


def test_pods_of_manifests_are_as_confined_as_those_of_stages() -> None:
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert pod["spec"]["securityContext"]["runAsNonRoot"] and not pod["spec"]["automountServiceAccountToken"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["resources"].keys() == {"requests", "limits"}


def test_the_address_that_the_values_suggest_is_the_services(serve: Manifest) -> None:
    (port,) = of_kind("Service")["spark-bert-serve"]["spec"]["ports"]
    assert f'"http://spark-bert-serve:{port["port"]}"' in (FOLDER / "values.yaml").read_text()


def test_images_are_of_one_release(values: Manifest, variables: dict[str, str]) -> None:
    release = f"{variables['SPARK_BERT_IMAGES']}/{{}}:{variables['SPARK_BERT_TAG']}"
    airflow = values["images"]["airflow"]
    assert f"{airflow['repository']}:{airflow['tag']}" == release.format("airflow")
    used = {pod["spec"]["containers"][0]["image"] for pod in pods()}
    assert used == {release.format("data"), release.format("train"), release.format("serve")}


@pytest.fixture(scope="module")
def platform() -> Manifest:
    found: Manifest = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return found


def test_the_platforms_stream_starts_when_it_is_asked_for_and_is_walled_in(platform: Manifest) -> None:
    stream, serve = platform["services"]["stream"], platform["services"]["serve"]
    assert stream["profiles"] == ["stream"] and "ports" not in stream and stream["networks"] == ["stages"]
    walls = ("restart", "init", "user", "read_only", "cap_drop", "security_opt", "pids_limit", "logging")
    assert {name: stream[name] for name in walls} == {name: serve[name] for name in walls}
    assert stream["mem_limit"] == STAGES["stream"].limits["memory"]
    assert stream["stop_grace_period"] == f"{GRACE}s"
    modes = {volume.split(":")[1]: volume.endswith(":ro") for volume in stream["volumes"]}
    written = {folder.removeprefix("${SPARK_BERT_HOME}/") for folder, read_only in modes.items() if not read_only}
    assert written == {"artifacts/stream", "runs", "streams"}
    assert modes["/opt/spark-bert/data"] and modes["${SPARK_BERT_DATA}"] and modes["/run/secrets"]


def test_the_platforms_stream_is_given_what_its_command_line_takes(platform: Manifest) -> None:
    stage, *arguments = platform["services"]["stream"]["command"]
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert stage == "stream" and load("retrain", [given["--set"]]).streaming.continuous
    assert given["--experiment"] == platform["services"]["stream"]["healthcheck"]["test"][-1]
    for written in ("datasets", "searches", "streams"):  # by stages: otherwise the scheduler could not look for them
        mounted = f"${{SPARK_BERT_HOME}}/{written}:${{SPARK_BERT_HOME}}/{written}:ro"
        assert mounted in platform["services"]["scheduler"]["volumes"]
    made = (ROOT / "scripts/platform.sh").read_text()
    assert "{artifacts/stream,checkpoints,datasets,runs,searches,streams}" in made and "{service,stream}" in made


def test_the_platform_parses_dags_as_often_as_the_drop_folders_watcher_needs() -> None:
    """Airflow starts and ends an asset's watcher when it parses the Dag: how long after an unpausing, this says."""
    platform = yaml.safe_load((FOLDER.parents[1] / "docker-compose.yaml").read_text())
    variables = platform["services"]["dag-processor"]["environment"]
    assert int(variables["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"]) <= 30


def test_the_platforms_triggerer_reaches_the_service_that_it_asks() -> None:
    platform = yaml.safe_load((FOLDER.parents[1] / "docker-compose.yaml").read_text())
    services = platform["services"]
    assert services["triggerer"]["environment"]["SPARK_BERT_SERVICE"] == "${SPARK_BERT_SERVICE-http://serve:8000}"
    (shared,) = {*services["triggerer"]["networks"]} & {*services["serve"]["networks"]}
    assert platform["networks"][shared] == {"internal": True}
