"""Where Horovod's ranks find each other, until stdin closes.

`python -m benchmarks.rendezvous HOST:RANKS,... ADDRESS INTERFACE` is a process of its own, because it has to run
on one of the ranks' hosts. Its only line on stdout is what the environment of each rank has to be.
"""

from __future__ import annotations

import json
import sys

from tasks.launching.rendezvous import rendezvous


def main(hosts: str, address: str, interface: str) -> None:
    """Serve until nobody needs it any more."""
    with rendezvous(hosts, address, interface) as environments:
        print(json.dumps(environments), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
