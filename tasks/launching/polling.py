"""How often Horovod's thread looks for tensors that all ranks have.

On a CPU, the thread takes time from the core on which its rank computes.
"""

from __future__ import annotations

import os

CYCLE, CACHE = "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"
#: Milliseconds. Each look costs all ranks about 0.2 ms of a CPU, and a tensor waits half a cycle for it, but most of
#: them leave while the backward pass goes on. docs/RESULTS.md compares 0, 1, 10, and 20.
ON_CPU = "10"
ON_GPU = "1"  # Horovod's own


def settle(gpus: int) -> None:
    """Set this rank's cycle to that of its device, unless the user has set one."""
    os.environ.setdefault(CYCLE, ON_GPU if gpus else ON_CPU)
