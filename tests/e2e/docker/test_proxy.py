"""Containers through the proxy: a stage's lives its whole life, and every way to a stronger one is refused."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from include.stages import STAGES
from spark_bert.operators.docker_containers import container_names
from tests.e2e.docker.proxy import PREFIX, Proxy, deployment, refused

Body = dict[str, Any]


@pytest.fixture
def good(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Body:
    """What the operator asks for, to validate data of the deployment's."""
    for name, value in deployment(proxy.home).items():
        monkeypatch.setenv(name, value)
    return proxy.asked("validate", **{"data.task": "SST-2", "data.source": "glue", "data.path": "data/glue"})


def test_a_stage_lives_its_whole_life_through_the_proxy(proxy: Proxy, good: Body) -> None:
    client, name = proxy.client, f"{PREFIX}whole-life"
    assert client.ping() and client.version()["ApiVersion"]
    client.create_container_from_config(good, name)
    try:
        client.start(name)
        assert client.wait(name)["StatusCode"] == 0
        uid, cannot_write, secret = client.logs(name, stdout=True, stderr=False).decode().splitlines()
        assert uid == good["User"].partition(":")[0] and cannot_write == "ü"
        assert secret == "nothing"  # whatever Airflow lets a link below runs/ point at
        assert b"".join(client.logs(name, stream=True, follow=True))
        assert client.inspect_container(name)["HostConfig"]["ReadonlyRootfs"] is True
        assert container_names(client) == [name]
        client.rename(name, f"{name}.ending")
        client.stop(f"{name}.ending")
        assert container_names(client) == [f"{name}.ending"]
    finally:
        client.remove_container(f"{name}.ending", force=True)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stages_container_is_let_through(
    stage: str, proxy: Proxy, good: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BERT_SPARK_MASTER", "spark://spark-master:7077")
    more = {"runtime.spark_master": "spark://spark-master:7077"} if STAGES[stage].spark else {}
    created(proxy, proxy.asked(stage, **more))


def test_of_the_data_only_the_drop_folder_may_be_written(proxy: Proxy, good: Body) -> None:
    (proxy.home / "data/drop").mkdir()
    body = proxy.asked("ingest", **{"dataset.drop": "data/drop"})
    assert f"{proxy.home}/data/drop" in [one["Source"] for one in body["HostConfig"]["Mounts"] if not one["ReadOnly"]]
    created(proxy, body)
    refused(proxy, json.dumps(proxy.asked("ingest", **{"dataset.drop": "data/glue"})))


def test_the_folder_of_a_stream_is_mounted_as_a_whole(proxy: Proxy, good: Body) -> None:
    (proxy.home / "data/incoming/part").mkdir(parents=True)
    created(proxy, proxy.asked("stream", **{"streaming.folder": "data/incoming"}))
    refused(proxy, json.dumps(proxy.asked("stream", **{"streaming.folder": "data/incoming/part"})))


def test_promote_is_told_what_a_person_has_answered(proxy: Proxy, good: Body) -> None:
    created(proxy, good | {"Env": [*good["Env"], 'SPARK_BERT_PROMOTION={"approve": {"by": "Ada"}}']})
    refused(proxy, json.dumps(good | {"Env": ["SPARK_BERT_PROMOTION=x"]}))


def created(proxy: Proxy, body: Body) -> None:
    """The proxy lets a container through."""
    status, answer, name = proxy.create(json.dumps(body))
    assert status == 201, answer
    subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=True)


HOST: dict[str, Any] = {
    "Privileged": True, "CapAdd": ["SYS_ADMIN"], "CapDrop": [], "ReadonlyRootfs": False, "PidMode": "host",
    "UTSMode": "host", "UsernsMode": "host", "IpcMode": "host", "CgroupnsMode": "host", "CgroupParent": "/x",
    "Devices": [{"PathOnHost": "/dev/sda", "PathInContainer": "/dev/sda", "CgroupPermissions": "rwm"}],
    "DeviceCgroupRules": ["a *:* rwm"], "VolumesFrom": ["other"], "Binds": ["/:/host"], "Runtime": "other",
    "VolumeDriver": "local", "PortBindings": {"80/tcp": [{"HostPort": "80"}]}, "PublishAllPorts": True,
    "Links": ["other"], "GroupAdd": ["0"], "OomKillDisable": True, "OomScoreAdj": -1000, "Sysctls": {"a": "b"},
    "MaskedPaths": [], "ReadonlyPaths": [], "RestartPolicy": {"Name": "always"}, "ExtraHosts": ["a:127.0.0.1"],
    "Ulimits": [{"Name": "nofile", "Soft": 1, "Hard": 1}], "LogConfig": {"Type": "syslog"}, "PidsLimit": 0,
    "Memory": 0, "Tmpfs": {"/etc": ""}, "SecurityOpt": [], "Isolation": "x", "Annotations": {"a": "b"},
    "DeviceRequests": [{"Driver": "other", "Capabilities": [["gpu"]]}], "ContainerIDFile": "/x",
}  # fmt: skip
TOP: dict[str, Any] = {
    "Image": "debian:bookworm-slim", "User": "0:0", "HostConfig": None, "Entrypoint": ["sh"],
    "NetworkingConfig": {"EndpointsConfig": {"bridge": {}}}, "Volumes": {"/x": {}}, "Healthcheck": {"Test": ["CMD"]},
    "ExposedPorts": {"80/tcp": {}}, "OnBuild": ["RUN x"], "Shell": ["sh"], "MacAddress": "02:42:ac:11:00:02",
}  # fmt: skip
WORSE: dict[str, tuple[str, Any]] = {
    "NetworkMode host": ("NetworkMode", "host"), "NetworkMode bridge": ("NetworkMode", "bridge"),
    "NetworkMode of another": ("NetworkMode", "container:other"), "IpcMode of another": ("IpcMode", "container:other"),
    "seccomp": ("SecurityOpt", ["no-new-privileges:true", "seccomp=unconfined"]),
    "apparmor": ("SecurityOpt", ["apparmor=unconfined"]), "label": ("SecurityOpt", ["label=disable"]),
    "new privileges": ("SecurityOpt", ["no-new-privileges:false"]), "CapDrop one": ("CapDrop", ["CHOWN"]),
    "all devices": ("DeviceRequests", [{"Capabilities": [["gpu"]], "Options": {"a": 1}}]),
}  # fmt: skip


@pytest.mark.parametrize("key", HOST)
def test_a_host_setting_is_refused(key: str, proxy: Proxy, good: Body) -> None:
    good["HostConfig"][key] = HOST[key]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("key", TOP)
def test_a_setting_of_the_container_is_refused(key: str, proxy: Proxy, good: Body) -> None:
    good[key] = TOP[key]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("name", WORSE)
def test_a_weaker_setting_is_refused(name: str, proxy: Proxy, good: Body) -> None:
    key, value = WORSE[name]
    good["HostConfig"][key] = value
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("key", ["CapDrop", "ReadonlyRootfs", "SecurityOpt", "NetworkMode", "Memory", "PidsLimit"])
def test_a_hardening_left_out_is_refused(key: str, proxy: Proxy, good: Body) -> None:
    del good["HostConfig"][key]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("user", ["root", "0", "1000", "1000:0", "1000:111", "+1000:1000", "1000:1000\n", ""])
def test_another_user_is_refused(user: str, proxy: Proxy, good: Body) -> None:
    good["User"] = user
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize(
    "name",
    [
        "debian", "debian:bookworm-slim", "spark-bert-proxy-test/data", "spark-bert-proxy-test/data:other",
        "spark-bert-proxy-test/airflow:latest", "spark-bert-proxy-test/data:latest@sha256:" + "0" * 64,
        "other/spark-bert-proxy-test/data:latest", "sha256:" + "0" * 64, "Spark-bert-proxy-test/data:latest",
    ],
)  # fmt: skip
def test_another_image_is_refused(name: str, proxy: Proxy, good: Body) -> None:
    good["Image"] = name
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize(
    "source",
    [
        "/", "/etc", "/var/run/docker.sock", "/run/docker.sock", "{home}", "{home}/airflow",
        "{home}/artifacts/..", "{home}/artifacts/train", "{home}/data/../../x", "{home}/runs/../airflow",
        "{home}/runs/.", "{home}/runs/a/b", "{home}/database", "{home}/data\u0000/x", "{home}/data\\..\\x", "data", "",
        "{home}/data/drop/link", "{home}/data/drop/refused/a", "{home}/data/incoming/link",
    ],
)  # fmt: skip
def test_another_folder_of_the_host_is_refused(source: str, proxy: Proxy, good: Body) -> None:
    for read_only in (True, False):
        good["HostConfig"]["Mounts"] = [
            {"Type": "bind", "Source": folder, "Target": folder, "ReadOnly": read_only}
            for folder in [source.format(home=proxy.home)]
        ]
        refused(proxy, json.dumps(good))


@pytest.mark.parametrize("run", ["out", "finetune-1"])
@pytest.mark.parametrize("read_only", [True, False])
def test_one_runs_folder_is_refused_for_it_may_be_a_link(run: str, read_only: bool, proxy: Proxy, good: Body) -> None:
    """Airflow writes below runs/, also between a look at what lies there and the start of a container."""
    folder = f"{proxy.home}/runs/{run}"
    good["HostConfig"]["Mounts"] = [{"Type": "bind", "Source": folder, "Target": folder, "ReadOnly": read_only}]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize(
    "change",
    [
        {"ReadOnly": False}, {"ReadOnly": None}, {"Type": "volume"}, {"Type": "tmpfs"}, {"Type": "npipe"},
        {"BindOptions": {"Propagation": "rshared"}}, {"VolumeOptions": {"DriverConfig": {"Name": "local"}}},
        {"readonly": False}, {"source": "/"}, {"source": None}, {"Target": "/mnt"}, {"Target": "/opt/spark-bert/tasks"},
        {"Target": "/opt/spark-bert/data/../tasks"}, {"Target": "/opt/venv/bin/python"}, {"Target": "/run/secrets"},
    ],
    ids=str,
)  # fmt: skip
def test_another_way_to_mount_the_data_is_refused(change: Body, proxy: Proxy, good: Body) -> None:
    mount = {"Type": "bind", "Source": f"{proxy.home}/data", "Target": f"{proxy.home}/data", "ReadOnly": True}
    good["HostConfig"]["Mounts"] = [mount | change]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize(
    "extra",
    [
        '"privileged": true, ', '"PRIVILEGED": true, ', '"Privileged": true, "Privileged": false, ',
        '"Pri\\u0076ileged": true, ', '"Pr\\u0069vileged": true, ', '"privi\\u006ceged": true, ',
        '"Bind\\u017f": ["/:/host"], ', '"bind\u017f": ["/:/host"], ', '"CapAdd": ["ALL"], "CapAdd": null, ',
        '"ReadonlyRootf\\u017f": false, ', '"readonlyrootfs": false, ', '"memory": -1, ', '"a": 1e9, ', '"a": [[[[[[[[',
        '"Init": tru, ', "// x\n", "\x00",
    ],
    ids=ascii,
)  # fmt: skip
def test_another_spelling_of_a_key_is_refused(extra: str, proxy: Proxy, good: Body) -> None:
    refused(proxy, json.dumps(good).replace('"HostConfig": {', '"HostConfig": {' + extra).encode())


def test_other_bodies_are_refused(proxy: Proxy, good: Body) -> None:
    text = json.dumps(good)
    evil = json.dumps(good | {"HostConfig": good["HostConfig"] | {"Privileged": True}})
    for body in ("", "{}", "[]", "null", "7", '"x"', text + text, text + " x", "\ufeff" + text, text[:-1], f"[{text}]"):
        refused(proxy, body.encode())
    for host in ('{"Privileged": true}', "null"):  # by null, the engine would forget the HostConfig before it
        refused(proxy, f'{text[:-1]}, "hostconfig": {host}}}')
    for coding in ("utf-16", "utf-7"):
        refused(proxy, evil.encode(coding))
    refused(proxy, json.dumps(good | {"Env": ["A=" + "x" * 70_000]}))
    refused(proxy, evil[:-1] + " " * 70_000 + "}")


def test_a_body_of_which_the_proxy_saw_a_part_is_refused(proxy: Proxy, good: Body) -> None:
    """It is small enough by its length, but its headers take the room in the proxy's buffer."""
    text = json.dumps(good)
    refused(proxy, text + " " * (59_000 - len(text)), X_Filler="x" * 7_000)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "application/x-www-form-urlencoded"}, {"Content_Type": "text/plain"}, {"Content_Type": ""},
        {"Content_Encoding": "gzip"}, {"Transfer_Encoding": "chunked"},
    ],
    ids=str,
)  # fmt: skip
def test_a_disguised_body_is_refused(headers: dict[str, str], proxy: Proxy, good: Body) -> None:
    body: Any = json.dumps(good)
    if "Transfer_Encoding" in headers:
        body = f"{len(body):x}\r\n{body}\r\n0\r\n\r\n"
    refused(proxy, body, **headers)
