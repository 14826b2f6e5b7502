"""A mail server and a chat's webhook on this machine, which keep what they receive."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import TypeVar

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


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server, at work in a thread."""
    with server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
