"""The files of the deployments: those in docs/kubernetes fit the published schemas, one another and the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docs" / "kubernetes"
PLUGINS = Path(__file__).parents[2] / "plugins" / "spark_bert"
INCLUDE = Path(__file__).parents[2] / "include"
Manifest = dict[str, Any]


def manifests() -> Iterator[Manifest]:
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name != "values.yaml":
            yield from yaml.safe_load_all(file.read_text())


def of_kind(kind: str) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests() if manifest["kind"] == kind}


def pods() -> Iterator[Manifest]:
    for manifest in manifests():
        if manifest["kind"] in ("Job", "StatefulSet"):
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
        if mount["name"] in held:
            root = mount["mountPath"].removesuffix("/" + mount.get("subPath", "/"))
            assert claims[root] == held[mount["name"]]


def test_policies_name_labels_that_pods_have() -> None:
    spark = {"app.kubernetes.io/name": "spark-bert-spark"}
    policies = {name: policy["spec"]["podSelector"]["matchLabels"] for name, policy in of_kind("NetworkPolicy").items()}
    assert policies == {
        "spark-bert-stages": {"spark-bert.network": "none"},
        "spark-bert-open-stages": {"spark-bert.network": "open"},
        "spark-bert-spark": spark,
    }
    statefuls = of_kind("StatefulSet").values()
    assert all(spark.items() <= found["spec"]["template"]["metadata"]["labels"].items() for found in statefuls)
    assert of_kind("NetworkPolicy")["spark-bert-stages"]["spec"].keys() == {"podSelector", "policyTypes"}  # allows none


def test_images_are_of_one_release(values: Manifest, variables: dict[str, str]) -> None:
    release = f"{variables['SPARK_BERT_IMAGES']}/{{}}:{variables['SPARK_BERT_TAG']}"
    airflow = values["images"]["airflow"]
    assert f"{airflow['repository']}:{airflow['tag']}" == release.format("airflow")
    used = {pod["spec"]["containers"][0]["image"] for pod in pods()}
    assert used == {release.format("data"), release.format("train")}


def test_the_platform_parses_dags_as_often_as_the_drop_folders_watcher_needs() -> None:
    """Airflow starts and ends an asset's watcher when it parses the Dag: how long after an unpausing, this says."""
    platform = yaml.safe_load((FOLDER.parents[1] / "docker-compose.yaml").read_text())
    variables = platform["services"]["dag-processor"]["environment"]
    assert int(variables["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"]) <= 30
