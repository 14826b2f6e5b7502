"""A stand-in for a cluster: the few answers of the Kubernetes API that the operator asks for, over real HTTP.

No kubelet starts anything. A pod's life is a script: the states that it shows, one for each time it is read, and its
log; it stays in its last state until it is deleted.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

State = dict[str, Any]
NOW = "2026-01-02T03:04:05Z"


def waiting(reason: str, message: str = "") -> State:
    return _status("Pending", {"waiting": {"reason": reason, "message": message}})


def running() -> State:
    return _status("Running", {"running": {"startedAt": NOW}})


def ended(code: int, reason: str = "") -> State:
    finished = datetime.now(UTC).isoformat()
    state = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": finished}
    return _status("Failed" if code else "Succeeded", {"terminated": state})


def evicted() -> State:
    return {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}


def _status(phase: str, state: State) -> State:
    conditions = [{"type": "PodScheduled", "status": "True"}]
    return {"phase": phase, "conditions": conditions, "containerStatuses": [
        {"name": "base", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    ]}  # fmt: skip


class Cluster:
    """Pods by name, those that were created and deleted, and the script of those that come."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.deleted: list[tuple[str, int | None]] = []
        self.states: list[State] = [running(), ended(0)]
        self.log = ""
        self.refusal: tuple[int, str] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"cluster": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def kubeconfig(self) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._server.server_port}"
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": address}}], "users": [],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "", "namespace": "default"}}],
        }  # fmt: skip

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def create(self, pod: dict[str, Any]) -> dict[str, Any]:
        """As the API server does, with a script of states that it plays when it is read."""
        self.created.append(pod)
        pod["metadata"] |= {"uid": str(len(self.created)), "resourceVersion": "1"}
        self.pods[pod["metadata"]["name"]] = {**pod, "status": {"phase": "Pending"}, "states": list(self.states)}
        return pod

    def read(self, name: str) -> dict[str, Any] | None:
        pod = self.pods.get(name)
        if pod and pod["states"]:
            pod["status"] = pod["states"].pop(0)
        return pod

    def select(self, selector: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods.values() if _matches(pod["metadata"]["labels"], selector)]

    def patch(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        """As the API server merges a change of the metadata's maps."""
        metadata = self.pods[name]["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        for key, values in change["metadata"].items():
            metadata[key] |= values
        return self.pods[name]

    def delete(self, name: str, grace: int | None) -> None:
        self.deleted.append((name, grace))
        del self.pods[name]


def _matches(labels: dict[str, str], selector: str) -> bool:
    for term in selector.split(","):
        name, equals, value = term.partition("=")
        if name.endswith("!"):
            holds = labels.get(name[:-1]) != value
        elif name.startswith("!"):
            holds = name[1:] not in labels
        else:
            holds = labels.get(name) == value if equals else name in labels
        if not holds:
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster

    def do_GET(self) -> None:
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        name = path.partition("/pods/")[2]
        if path.endswith("/events"):
            self._answer({"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []})
        elif name.endswith("/log"):
            stamp = f"{NOW} " if query.get("timestamps") == ["True"] else ""
            self._send(200, "".join(f"{stamp}{line}\n" for line in self.cluster.log.splitlines()), "text/plain")
        elif name:
            self._answer(self.cluster.read(name))
        else:
            pods = self.cluster.select(query["labelSelector"][0])
            self._answer({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})

    def do_POST(self) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.cluster.refusal:
            status, message = self.cluster.refusal
            self._send(status, json.dumps({"kind": "Status", "message": message}))
        else:
            self._answer(self.cluster.create(pod))

    def do_PATCH(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.rpartition("/")[2]
        self._answer(self.cluster.patch(name, change) if name in self.cluster.pods else None)

    def do_DELETE(self) -> None:
        options = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        url = urlsplit(self.path)
        name = url.path.rpartition("/")[2]
        grace = parse_qs(url.query).get("gracePeriodSeconds", [options.get("gracePeriodSeconds")])[0]
        found = self.cluster.pods.get(name)
        seen = (options.get("preconditions") or {}).get("resourceVersion")
        if found and seen not in (None, found["metadata"]["resourceVersion"]):
            return self._send(409, json.dumps({"kind": "Status", "message": "the pod has changed"}))
        if found:
            self.cluster.delete(name, None if grace is None else int(grace))
        self._answer(found)

    def _answer(self, body: dict[str, Any] | None) -> None:
        if body is None:
            self._send(404, json.dumps({"kind": "Status", "message": "not found"}))
        else:
            self._send(200, json.dumps({name: value for name, value in body.items() if name != "states"}))

    def _send(self, status: int, body: str, kind: str = "application/json") -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the tests' output is theirs."""
