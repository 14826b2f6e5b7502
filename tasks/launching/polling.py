"""How often Horovod's thread looks for tensors that all ranks have, and whether it remembers those of earlier steps.

Horovod's launcher in Python hands "(None,)" to every rank for both settings, whatever the environment says, because of
stray commas in `horovod.runner`. Horovod reads it as 0: the thread never sleeps, and it negotiates each tensor of each
step anew. On a CPU, it then takes a good part of the core on which its rank computes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

CYCLE, CACHE = "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"
#: Milliseconds. Each look costs all ranks about 0.2 ms of a CPU, and a tensor waits half a cycle for it, but most of
#: them leave while the backward pass goes on. docs/RESULTS.md has what trainings take with 1, 5, 10 and 20.
ON_CPU = "10"
ON_GPU = "1"  # Horovod's own, as is the cache's capacity
CAPACITY = "1024"  # tensors


def chosen() -> dict[str, str]:
    """Return the settings that the environment of the launcher has, which ranks would not see."""
    return {name: os.environ[name] for name in (CYCLE, CACHE) if name in os.environ}


def settle(given: Mapping[str, str], gpus: int) -> None:
    """Set this rank's environment to the given settings, and to those of its device where none are given."""
    os.environ.update({CYCLE: ON_GPU if gpus else ON_CPU, CACHE: CAPACITY, **given})
