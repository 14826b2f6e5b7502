"""Calls of the engine that the proxy refuses: of other things, of other containers, in other guises."""

from __future__ import annotations

import json
import socket

import pytest

from tests.e2e.docker.proxy import VERSION, Proxy

_LISTING = "/containers/json?limit=-1&all=1&size=0&trunc_cmd=0&filters=%7B%22label%22%3A+%5B%22spark-bert.deployment%3D"
#: Calls that have nothing to do with a container of ours.
CALLS = f"""
    GET /info
    GET /events
    GET /system/df
    POST /auth
    POST /build
    POST /session
    POST /commit?container=spark-bert-stage-proxy-test.x
    GET /images/json
    GET /images/debian:bookworm-slim/json
    DELETE /images/debian:bookworm-slim
    POST /images/create?fromImage=x
    POST /images/load
    GET /distribution/x/json
    GET /volumes
    POST /volumes/create
    GET /networks
    POST /networks/create
    POST /networks/bridge/connect
    GET /secrets
    POST /swarm/init
    POST /plugins/pull
    POST /exec/0123456789ab/start
    GET /containers/json?all=1
    GET /containers/json?filters={{"label":["spark-bert.stage"]}}
    GET {_LISTING}other%22%5D%7D
    GET {_LISTING}proxy-test%22%5D%7D&filters=%7B%7D
    POST /containers/prune
    POST /containers/create
    POST /containers/create?name=other
    POST /containers/create?name=spark-bert-postgres-1
    POST /containers/create?name=spark-bert-stage-proxy-test.x&name=other
    POST /containers/create?name=spark-bert-stage-proxy-test.x&platform=linux
    POST /containers/create?name=spark-bert-stage-proxy-test.%2e
"""
#: Calls about one of ours that no stage needs.
CALLS_OF_OURS = """
    POST /exec
    POST /attach?stream=1
    GET /attach/ws
    GET /archive
    PUT /archive?path=/
    HEAD /archive?path=/
    POST /rename
    POST /rename?name=other
    POST /rename?name=spark-bert-stage-proxy-test.x&name=other
    POST /update
    POST /kill
    POST /pause
    POST /copy
    POST /resize
    GET /export
    GET /top
    GET /stats
    GET /changes
    PUT /start
    GET /start
    POST /json
    POST /start/
    PATCH /json
"""
#: Calls that are allowed for ours, and names that are not.
CALLS_OF_OTHERS = """
    GET /json
    GET /logs?stdout=1
    POST /start
    POST /stop
    POST /wait
    POST /rename?name=spark-bert-stage-proxy-test.x
    DELETE ?force=1
"""
OTHERS = (
    "other", "spark-bert-stage-x", "spark-bert-stage-other.x", "spark-bert-stage-proxy-test2.x",
    "spark-bert-stage-proxy-test.", "SPARK-BERT-STAGE-PROXY-TEST.X", "spark-bert-postgres-1",
    "0123456789ab" * 5 + "0123", "spark-bert-stage-proxy-test.x/../other", "spark-bert-stage-proxy-test.x%2f..%2fother",
    "%73park-bert-stage-proxy-test.x", "/spark-bert-stage-proxy-test.x",
)  # fmt: skip


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("call", lines(CALLS))
def test_another_call_is_refused(call: str, proxy: Proxy) -> None:
    method, path = call.split()
    assert proxy.call(method, VERSION + path)[0] in (400, 403)


@pytest.mark.parametrize("call", lines(CALLS_OF_OURS))
def test_another_call_of_a_stage_is_refused(call: str, proxy: Proxy) -> None:
    method, path = call.split()
    assert proxy.call(method, f"{VERSION}/containers/spark-bert-stage-proxy-test.x{path}")[0] in (400, 403)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("call", lines(CALLS_OF_OTHERS))
def test_a_call_of_another_container_is_refused(call: str, name: str, proxy: Proxy) -> None:
    method, path = call.split()
    assert proxy.call(method, f"{VERSION}/containers/{name}{path}")[0] in (400, 403)


@pytest.mark.parametrize(
    "version", ["", "/v1.23", "/v1.24", "/v1.400", "/V1.41", "/v2.41", "/v1.41/v1.41", "/x/../v1.41"]
)
def test_another_version_of_the_api_is_refused(version: str, proxy: Proxy) -> None:
    """Up to 1.23, a start could bring a host configuration of its own."""
    assert proxy.call("POST", f"{version}/containers/spark-bert-stage-x/start")[0] in (400, 403)


@pytest.mark.parametrize("header", ["X_HTTP_Method_Override", "X_Method_Override", "X_Original_URL", "X_Rewrite_URL"])
def test_another_method_in_a_header_changes_nothing(header: str, proxy: Proxy) -> None:
    value = "DELETE" if "Method" in header else f"{VERSION}/containers/json"
    status, answer = proxy.call("GET", f"{VERSION}/containers/spark-bert-stage-proxy-test.none/json", **{header: value})
    assert status == 404 and "No such container" in answer


@pytest.mark.parametrize("protocol", ["tcp", "h2c", "websocket"])
def test_another_protocol_is_refused(protocol: str, proxy: Proxy) -> None:
    path = f"{VERSION}/containers/spark-bert-stage-proxy-test.x/wait"
    assert proxy.call("POST", path, Upgrade=protocol, Connection="Upgrade")[0] in (400, 403)


def test_a_start_with_a_body_is_refused(proxy: Proxy) -> None:
    body = json.dumps({"Privileged": True})
    assert proxy.call("POST", f"{VERSION}/containers/spark-bert-stage-proxy-test.x/start", body)[0] == 403


@pytest.mark.parametrize(
    "request_text",
    [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        f"POST {VERSION}/containers/spark-bert-stage-proxy-test.x/start HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"POST {VERSION}/containers/spark-bert-stage-proxy-test.x/start HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
        "Content-Length: 9\r\n\r\n",
        f"POST {VERSION}/containers/spark-bert-stage-proxy-test.x/start HTTP/1.1\r\nHost: x\r\n"
        "Transfer-Encoding : chunked\r\n\r\n",
        f"GET http://docker{VERSION}/info HTTP/1.1\r\nHost: x\r\n\r\n",
        f"CONNECT {VERSION}/info HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET {VERSION}/_ping/../info HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET {VERSION}/info#/_ping HTTP/1.1\r\nHost: x\r\n\r\n",
        f"GET {VERSION}/info?/_ping HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)  # fmt: skip
def test_a_malformed_request_is_refused(request_text: str, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection:
        connection.sendall(request_text.encode())
        answer = connection.recv(4096).decode()
    assert not answer or answer.split()[1] in ("400", "403", "405", "501"), answer
