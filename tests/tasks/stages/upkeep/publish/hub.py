"""A stand-in for the Hugging Face hub: it speaks the part of its protocol by which a model is uploaded."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_" + "a" * 34


class Hub(ThreadingHTTPServer):
    """A hub with the repositories that were created in it.

    Attributes:
        private: Whether each repository is private, by its name.
        files: The content of each file, by its path below the name of its repository.
        messages: The message of each commit.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.private: dict[str, bool] = {}
        self.files: dict[str, bytes] = {}
        self.messages: list[str] = []

    @property
    def url(self) -> str:
        """Its address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running() -> Iterator[Hub]:
    """Run a hub until the block ends."""
    with Hub() as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid username or password."}, 401)
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        repository, _, action = self.path.removeprefix("/api/models/").rpartition("/main")[0].rpartition("/")
        if action == "preupload":
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return self._answer({"files": files})
        return self._commit(repository, [json.loads(line) for line in body.splitlines()])

    def _create(self, wanted: dict[str, Any]) -> None:
        if wanted["organization"] == "nobody":
            return self._answer({"error": "there is no such organization"}, 404)
        name = f"{wanted['organization']}/{wanted['name']}"
        known = name in self.server.private
        self.server.private.setdefault(name, wanted.get("visibility") == "private")
        self._answer({"url": f"{self.server.url}/{name}"}, 409 if known else 200)

    def _commit(self, repository: str, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.server.messages.append(value["summary"])
            else:
                self.server.files[f"{repository}/{value['path']}"] = base64.b64decode(value["content"])
        commit = f"{len(self.server.messages):040}"
        self._answer({"commitUrl": f"{self.server.url}/{repository}/commit/{commit}", "commitOid": commit})

    def _answer(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""
