"""Values that a stage's container may have through the proxy: what the operator sends, and nothing beyond."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from include.stages import STAGES
from spark_bert.deployment.limits import Limits
from tests.e2e.docker.proxy import PREFIX, Proxy, deployment, refused
from tests.e2e.make_run import ROOT

Body = dict[str, Any]
GIB = 1 << 30
#: What limits the container, and more than any stage of the deployment gets, or none at all.
BEYOND: list[dict[str, Any]] = [
    {"Memory": 14 * GIB + 1, "MemorySwap": 14 * GIB + 1}, {"Memory": 1 << 50, "MemorySwap": 1 << 50},
    {"Memory": 0, "MemorySwap": 0}, {"Memory": -1, "MemorySwap": -1}, {"MemorySwap": -1}, {"MemorySwap": 0},
    {"Memory": GIB, "MemorySwap": 2 * GIB}, {"MemorySwap": None}, {"PidsLimit": 2049}, {"PidsLimit": -1},
    {"PidsLimit": 0}, {"PidsLimit": None}, {"NanoCpus": 16_000_000_001}, {"NanoCpus": 0}, {"ShmSize": 3 * GIB + 1},
    {"ShmSize": 0}, {"CpuShares": 1 << 18}, {"Init": False}, {"AutoRemove": True}, {"Tmpfs": {}},
    {"Tmpfs": {"/tmp": ""}},
    {"Tmpfs": {"/tmp": "rw,exec,suid,dev,mode=1777,size=1"}},
    {"Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={3 * GIB + 1}"}},
    {"Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=1", "/opt/venv": "rw"}},
    {"LogConfig": {"Type": "json-file", "Config": {"max-size": "20m"}}}, {"LogConfig": {"Type": "local"}},
    {"LogConfig": {"Type": "json-file", "Config": {"max-size": "20t", "max-file": "3"}}},
    {"Mounts": None, "Binds": ["/:/host"]}, {"IpcMode": ""}, {"IpcMode": "shareable"},
    *({"DeviceRequests": [{"Driver": "", "Count": count, "Capabilities": [["gpu"]]}]} for count in (3, -1, 0)),
    {"DeviceRequests": [{"Driver": "", "Count": 1, "Capabilities": [["gpu", "compute"]]}]},
    {"DeviceRequests": [{"Driver": "", "Count": 1, "Capabilities": [["gpu"]], "DeviceIDs": ["0"]}]},
]  # fmt: skip
OTHERWISE: list[dict[str, Any]] = [
    *({"WorkingDir": folder} for folder in ("/proc/self/fd/8", "/proc/self/fd/7/../..", "/", "/tmp", "")),
    *({"Hostname": name} for name in ("docker-proxy", "localhost.", "")), {"Domainname": "x"}, {"StopSignal": "KILL"},
    {"StopTimeout": 601}, {"StopTimeout": 0}, {"Tty": True}, {"OpenStdin": True}, {"AttachStdin": True},
    {"Entrypoint": []}, {"NetworkingConfig": {}}, {"Runtime": "runc"}, {"ArgsEscaped": True}, {"Nothing": None},
    {"Labels": {}}, {"Labels": {"spark-bert.deployment": "other"}},
    {"Labels": {"spark-bert.deployment": "proxy-test", "com.docker.compose.project": "other"}},
]  # fmt: skip
VARIABLES = (
    "LD_PRELOAD=/tmp/x.so", "LD_LIBRARY_PATH=/tmp", "PYTHONPATH=/tmp", "PYTHONSTARTUP=/tmp/x.py", "PATH=/tmp",
    "SPARK_BERT_HOME=/etc", "SPARK_BERT_CACHE=/tmp", "HF_HOME=/tmp", "HF_ENDPOINT=http://evil",
    "MLFLOW_TRACKING_URI=http://evil", "JAVA_TOOL_OPTIONS=-agentpath:/tmp/x", "LD_PRELOAD", "", "SPARK_BERT_HOME",
    "AIRFLOW_CTX_DAG_ID", "AIRFLOW_CTX_DAG_ID=", "AIRFLOW_CTX_DAG_ID=x\nLD_PRELOAD=/tmp/x.so", "AIRFLOW_CTX_DAG_ID=x\0",
    "AIRFLOW_CTX_TASK_ID=train", "AIRFLOW_CTX_DAG_ID_=x", " AIRFLOW_CTX_DAG_RUN_ID=x",
    "TRACEPARENT=/tmp", "TRACEPARENT=00-0a-0b-01\nLD_PRELOAD=/tmp/x.so", "AIRFLOW_CTX_TRY_NUMBER=x",
    "AIRFLOW_CTX_MAP_INDEX=-1",
)  # fmt: skip


@pytest.fixture
def good(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Body:
    """What the operator asks for, for the stage that the deployment gives the most memory."""
    for name, value in deployment(proxy.home).items():
        monkeypatch.setenv(name, value)
    return proxy.asked("gate")


@pytest.mark.parametrize("change", BEYOND, ids=str)
def test_a_weaker_limit_is_refused(change: Body, proxy: Proxy, good: Body) -> None:
    good["HostConfig"] |= change
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("key", ["MemorySwap", "NanoCpus", "ShmSize", "Tmpfs", "LogConfig", "IpcMode", "Init"])
def test_a_limit_left_out_is_refused(key: str, proxy: Proxy, good: Body) -> None:
    del good["HostConfig"][key]
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize("change", OTHERWISE, ids=str)
def test_another_value_is_refused(change: Body, proxy: Proxy, good: Body) -> None:
    refused(proxy, json.dumps(good | change))


@pytest.mark.parametrize("variable", VARIABLES)
def test_another_variable_is_refused(variable: str, proxy: Proxy, good: Body) -> None:
    good["Env"].append(variable)
    refused(proxy, json.dumps(good))


@pytest.mark.parametrize(
    ("place", "word"), [(0, "gate; sh"), (0, ""), (0, "-c"), (1, "--run"), (2, 7), (3, "--set"), (4, "/etc"), (4, None),
                        (4, "{home}/runs/../secrets")],
)  # fmt: skip
def test_another_command_is_refused(place: int, word: Any, proxy: Proxy, good: Body) -> None:
    good["Cmd"][place] = word.format(home=proxy.home) if isinstance(word, str) else word
    refused(proxy, json.dumps(good))
    refused(proxy, json.dumps(good | {"Cmd": None}))


@pytest.mark.parametrize(
    "name", ["spark-bert-stage-other.x", "spark-bert-stage-x", f"{PREFIX[:-1]}-2.x", "other", PREFIX]
)
def test_a_name_of_another_deployment_is_refused(name: str, proxy: Proxy, good: Body) -> None:
    status, answer = proxy.call("POST", f"/v1.41/containers/create?name={name}", json.dumps(good))
    assert status in (400, 403), answer
    assert subprocess.run(["docker", "inspect", name], capture_output=True, check=False).returncode != 0


def test_the_policys_limits_are_the_tables() -> None:
    """Where a deployment says nothing, the policy knows the largest of each limit from its own lines."""
    rows = [Limits.model_validate(stage.limits) for stage in STAGES.values()]
    largest = {name: max(getattr(row, name) for row in rows) for name in Limits.model_fields}
    policy = (ROOT / "compose/proxy/policy.lua").read_text()
    for name in ("memory", "tmp", "shm"):
        assert f'most("{name}", {largest[name] // GIB} << 30)' in policy
    for name in ("cpus", "pids"):
        assert f'most("{name}", {largest[name]:g})' in policy
