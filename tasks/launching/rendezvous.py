"""Where Horovod's ranks find one another: Horovod's server, which answers only those who know a secret.

Horovod's own launcher lets it listen on every interface and take from anyone what ranks then believe: the addresses of
other ranks. The function that ranks run would even be unpickled from a second such server, so ours run a command.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from horovod.runner.common.util.hosts import SlotInfo, get_host_assignments, parse_hosts
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer

ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"


@contextmanager
def rendezvous(hosts: str, address: str = "127.0.0.1", interface: str = "lo") -> Iterator[list[dict[str, str]]]:
    """Yield the environment of each rank of hosts such as "localhost:2", while the server that it names runs."""
    parsed = parse_hosts(hosts)
    plan: list[SlotInfo] = get_host_assignments(parsed, sum(host.slots for host in parsed))
    secret = secrets.token_urlsafe()
    server = RendezvousHTTPServer((address, 0), _only_for(secret), 0)
    server.daemon_threads = True  # who sends a request byte by byte must not hold up the end of a training
    server.init(plan)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    common = create_run_env_vars(address, [interface], server.server_port) | _told(address, server.server_port, secret)
    try:
        yield [common | create_slot_env_vars(slot) for slot in plan]
    finally:
        server.shutdown()
        server.server_close()


def guarded(secret: str) -> type[RendezvousServer]:
    """Return the class of a server that Horovod's launcher on Spark can start in the place of its own."""

    class Guarded(RendezvousServer):  # type: ignore[misc]  # Horovod has no type hints
        def start(self) -> int:
            return int(super().start(_only_for(secret)))

    return Guarded


def tell(secret: str) -> None:
    """Let Horovod send the secret, in the process of a rank that Horovod's launcher on Spark has started."""
    os.environ.update(_told(os.environ[ADDRESS], int(os.environ[PORT]), secret))


def _told(address: str, port: int, secret: str) -> dict[str, str]:
    # Horovod asks for http://ADDRESS:PORT/scope/key, so there can be a secret only where ADDRESS has the port.
    return {ADDRESS: f"{address}:{port}/{secret}", PORT: "0"}


def _only_for(secret: str) -> type[RendezvousHandler]:
    prefix = f"/{secret}:0"

    class Handler(RendezvousHandler):  # type: ignore[misc]
        path: str

        def parse_request(self) -> bool:
            """Refuse a request of any method whose path does not begin with the secret."""
            if not super().parse_request():
                return False
            if not hmac.compare_digest(self.path[: len(prefix)].encode(), prefix.encode()):
                self.send_status_code(HTTPStatus.FORBIDDEN)
                return False
            self.path = self.path[len(prefix) :]
            return True

    return Handler
