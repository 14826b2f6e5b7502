"""Where Horovod's ranks find each other: `python -m tests.benchmarks.rendezvous HOST:RANKS,...`, until stdin closes.

A process of its own, because it has to run on one of the ranks' hosts. Its only line on stdout is its port.
"""

from __future__ import annotations

import sys

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer


def main(hosts: str) -> None:
    """Serve until nobody needs it any more."""
    parsed = parse_hosts(hosts)
    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parsed, sum(host.slots for host in parsed)))
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
