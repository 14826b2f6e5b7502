"""A mail server, a chat's webhook and a collector of traces on this machine, which keep what they receive."""

from __future__ import annotations

import base64
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, TypeVar

Server = TypeVar("Server", bound=socketserver.BaseServer)


class MailServer(socketserver.ThreadingTCPServer):
    """As much of SMTP (RFC 5321) as a client needs that has neither TLS nor a password."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []


class _Smtp(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            if line.startswith(b"data"):
                self.wfile.write(b"354 go on\r\n")
                self._receive()
            if line.startswith(b"rcpt TO:"):
                self.server.recipients.append(line[8:].strip(b"<>\r\n").decode())
            self.wfile.write(b"250 done\r\n")

    def _receive(self) -> None:
        lines = []
        for line in self.rfile:
            if line == b".\r\n":
                break
            lines.append(line)
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.server.mails.append(mail)


class WebhookServer(http.server.ThreadingHTTPServer):
    """Answers every POST with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Webhook)
        self.status = 200
        self.posts: list[tuple[str, str]] = []  # path, text


class _Webhook(http.server.BaseHTTPRequestHandler):
    server: WebhookServer

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/json"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((self.path, body["text"]))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it found."""


class TraceServer(http.server.ThreadingHTTPServer):
    """As much of an OTLP collector as the exporter that speaks HTTP needs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Traces)
        self.spans: list[dict[str, Any]] = []  # in the JSON of a stage's own files

    @property
    def environment(self) -> dict[str, str]:
        """What turns the traces of an Airflow on, and leads them here."""
        return {
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_address[1]}",
        }


class _Traces(http.server.BaseHTTPRequestHandler):
    server: TraceServer

    def do_POST(self) -> None:
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for group in MessageToDict(ExportTraceServiceRequest.FromString(body))["resourceSpans"]:
            for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
                ids = {key: base64.b64decode(span.get(key, "")).hex() for key in ("traceId", "spanId", "parentSpanId")}
                self.server.spans.append({"attributes": [], "status": {}, **span, **ids, "resource": group["resource"]})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it found."""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server, at work in a thread."""
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
