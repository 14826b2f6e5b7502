from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of the loopback interface that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
