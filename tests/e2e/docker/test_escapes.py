"""Attempts to escape from the sandbox of a real stage's container, all of which must fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from docker.api import APIClient

from include.experiment import Experiment
from spark_bert.deployment.containers import environment, image, user
from spark_bert.deployment.places import run_folder
from spark_bert.operators.docker_containers import host_config

#: Prints what came of every attempt: "done", or the error's name.
ATTEMPTS = """
import ctypes, errno, json, os, pathlib, socket, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)

def call(function, *arguments):
    if getattr(libc, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), function)

def connect(family, address):
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)

def fork_without_end():
    children = []
    try:
        for _ in range(5000):
            children.append(subprocess.Popen(["sleep", "60"]))
    finally:
        [child.kill() for child in children]

home, run, cache = sys.argv[1:]
write = lambda path: pathlib.Path(path).write_text("x")
attempts = {
    "write /opt/spark-bert": lambda: write("/opt/spark-bert/tasks/x"),
    "write /opt/venv": lambda: write("/opt/venv/x"),
    "write /etc": lambda: write("/etc/x"),
    "write /dev": lambda: write("/dev/x"),
    "write home": lambda: write(home + "/x"),
    "a link below runs": lambda: os.listdir(home + "/runs/out"),
    "write cache": lambda: write(cache + "/x"),
    "write kernel settings": lambda: write("/proc/sys/kernel/core_pattern"),
    "write sysfs": lambda: write("/sys/kernel/uevent_helper"),
    "remount /": lambda: call("mount", b"none", b"/", None, 0x20, None),
    "mount a tmpfs": lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "make a device": lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(8, 0)),
    "leave the root": lambda: os.chroot("/tmp"),
    "become root": lambda: os.setuid(0),
    "give a file away": lambda: (write("/tmp/mine"), os.chown("/tmp/mine", 0, 0)),
    "a user namespace": lambda: call("unshare", 0x10000000),
    "listen to the network card": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "the network": lambda: connect(socket.AF_INET, ("1.1.1.1", 53)),
    "the Docker socket": lambda: connect(socket.AF_UNIX, "/var/run/docker.sock"),
    "the Docker socket in /run": lambda: connect(socket.AF_UNIX, "/run/docker.sock"),
    "fork without end": fork_without_end,
    "fill /tmp": lambda: pathlib.Path("/tmp/full").write_bytes(b"0" * (200 << 20)),
    "write artifacts": lambda: write(home + "/artifacts/x"),
    "write the run": lambda: write(run + "/x"),
    "write /tmp": lambda: (pathlib.Path("/tmp/full").unlink(), write("/tmp/x")),
}
came = {}
for name, attempt in attempts.items():
    try:
        attempt()
        came[name] = "done"
    except OSError as error:
        came[name] = errno.errorcode.get(error.errno, str(error))
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
came["status"] = {key: status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Uid")}
came["interfaces"] = os.listdir("/sys/class/net")
came["roots"] = sorted(set(os.listdir("/")) & {"host", "work", "root"})
print(json.dumps(came))
"""


@pytest.fixture(scope="module")
def came(images: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The results of the attempts, made in validate's sandbox as its user."""
    root = tmp_path_factory.mktemp("sandbox")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_BERT_HOME", str(root / "home"))
        patch.setenv("SPARK_BERT_CACHE", str(root / "cache"))
        patch.setenv("SPARK_BERT_LIMITS", '{"validate": {"pids": 40, "tmp": "64m"}}')
        run = run_folder("finetune", "this")
        for folder in (root / "cache", root / "secrets", root / "home/runs"):
            folder.mkdir(parents=True)
        (root / "cache").chmod(0o777)  # it is the mount that must refuse, not the owner
        (root / "home/runs/out").symlink_to(root / "secrets")
        client = APIClient(version="auto")
        container = client.create_container(
            image("validate"),
            [str(root / "home"), str(run), str(root / "cache")],
            entrypoint=["python", "-c", ATTEMPTS],
            environment=environment("validate", Experiment()),
            user=":".join(map(str, user())),
            host_config=client.create_host_config(**host_config("validate", Experiment(), run)),
        )
    try:
        client.start(container)
        client.wait(container, timeout=120)
        output = client.logs(container, stderr=False).decode()
        assert output, client.logs(container).decode()
        yield json.loads(output.splitlines()[-1])
    finally:
        client.remove_container(container, force=True)


#: What is allowed, so that the refusals are not those of a broken container.
ALLOWED = ("write artifacts", "write the run", "write /tmp")
NOT_THERE = ("the Docker socket", "the Docker socket in /run", "a link below runs")


def test_what_a_stage_needs_is_allowed(came: dict[str, Any]) -> None:
    assert {name: came[name] for name in ALLOWED} == dict.fromkeys(ALLOWED, "done")


def test_nothing_else_is(came: dict[str, Any]) -> None:
    tried = {name: result for name, result in came.items() if isinstance(result, str) and name not in ALLOWED}
    assert [name for name, result in tried.items() if result == "done"] == []
    assert {tried[name] for name in NOT_THERE} == {"ENOENT"}
    assert {result for name, result in tried.items() if name not in NOT_THERE} <= {
        "EROFS", "EPERM", "EACCES", "ENETUNREACH", "EAGAIN", "ENOSPC",
    }  # fmt: skip
    assert (tried["fork without end"], tried["fill /tmp"], tried["the network"]) == ("EAGAIN", "ENOSPC", "ENETUNREACH")


def test_it_has_no_capability_and_can_get_none(came: dict[str, Any]) -> None:
    capabilities = {key: int(value, 16) for key, value in came["status"].items() if key.startswith("Cap")}
    assert set(capabilities.values()) == {0}
    assert came["status"]["NoNewPrivs"].strip() == "1"
    assert "0" not in came["status"]["Uid"].split()


def test_it_sees_no_network_card(came: dict[str, Any]) -> None:
    assert came["interfaces"] == ["lo"]
