"""What others on this machine can reach of a training of several ranks."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tasks.launching.rendezvous import ADDRESS, PORT, guarded, rendezvous, tell
from tests.tasks.launching.ranks import on_ranks


def test_a_rank_finds_the_others_and_nobody_else_is_answered() -> None:
    with rendezvous("localhost:2") as environments:
        assert [environment["HOROVOD_RANK"] for environment in environments] == ["0", "1"]
        host, path = environments[0][ADDRESS].split("/")
        own = f"/{path}:{environments[0][PORT]}"
        assert ask(host, "PUT", f"{own}/global/0", b"mine") == 200
        for method in ("GET", "PUT", "DELETE", "HEAD"):
            for start in ("", "/", "/x:0", f"/{path[:-1]}:0", own[:-1]):
                assert ask(host, method, f"{start}/global/0", b"theirs") == 403, (method, start)
        assert ask(host, "GET", f"{own}/global/0") == 200
        assert ask(host, "GET", f"{own}/global/1") == 404


def test_on_spark_horovods_own_launcher_starts_a_server_that_asks_for_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = guarded("secret")()
    port = server.start()
    try:
        server.init([])
        monkeypatch.setenv(ADDRESS, "127.0.0.1")  # as Horovod tells its ranks
        monkeypatch.setenv(PORT, str(port))
        assert ask(f"127.0.0.1:{port}", "PUT", "/global/0", b"theirs") == 403
        tell("secret")
        host, path = os.environ[ADDRESS].split("/")
        assert ask(host, "PUT", f"/{path}:{os.environ[PORT]}/global/0", b"mine") == 200
    finally:
        server.stop()


def ask(host: str, method: str, path: str, body: bytes = b"") -> int:
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request(method, path, body)
    with connection.getresponse() as response:
        return response.status


def test_no_port_of_a_job_is_open_beyond_the_loopback_and_none_takes_a_foreign_put(tmp_path: Path) -> None:
    """Horovod's launcher unpickles what anyone puts to /runfunc/func, on every interface of the machine."""
    on_ranks(_try_the_doors, 2, tmp_path)
    doors = json.loads((tmp_path / "doors.json").read_text())
    assert all(ip_address(address).is_loopback for address, _ in doors)
    assert ["127.0.0.1", 403] in doors and 200 not in [answer for _, answer in doors]


def _try_the_doors(folder: Path) -> None:
    import horovod.torch as hvd
    import torch

    if hvd.rank() == 0:
        launcher = psutil.Process(os.getppid())
        found = []
        for process in (launcher, *launcher.children(recursive=True)):
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.append((connection.laddr.ip, _put(connection.laddr.port)))
        (folder / "doors.json").write_text(json.dumps(found))
    hvd.allreduce(torch.ones(1))  # the other one stays until then


def _put(port: int) -> int | None:
    try:
        return ask(f"127.0.0.1:{port}", "PUT", "/runfunc/func", b"theirs")
    except (OSError, http.client.HTTPException):
        return None  # it does not speak HTTP


def test_who_sends_a_request_byte_by_byte_does_not_hold_up_the_end() -> None:
    with rendezvous("localhost:1") as (environment,):
        address, port = environment[ADDRESS].partition("/")[0].split(":")
        client = socket.create_connection((address, int(port)))
        client.sendall(b"GET /")
        before = time.monotonic()
    assert time.monotonic() - before < 2  # the server waits 3 s for each byte
    client.close()
