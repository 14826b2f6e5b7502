"""How many ranks a training has on this machine, and how many threads each of them."""

from __future__ import annotations

import dataclasses
import logging

from joblib import cpu_count

from include.stages import BadInput
from tasks.training.job import Job

log = logging.getLogger(__name__)


def with_ranks(job: Job, gpus: int) -> Job:
    """Return the job with a number for training.ranks: `auto` is one rank per GPU of this machine, at least one.

    Where batches have a fixed size, `auto` is the largest such number that divides it. Where the model is divided, it
    is a number of whole copies of the model, at least one.

    Raises:
        BadInput: the model is divided among more ranks than there are GPUs.
    """
    ranks = _one_for_each(gpus, job) if job.training.ranks == "auto" else job.training.ranks
    compression = job.experiment.communication.compression
    if ranks == 1 and compression != "none":
        log.warning(
            "one rank exchanges nothing, so communication.compression %s has no effect: "
            "write training.ranks: 2 or more",
            compression,
        )
    settled = job.training.model_copy(update={"ranks": ranks})
    return dataclasses.replace(job, experiment=job.experiment.model_copy(update={"training": settled}))


def _one_for_each(gpus: int, job: Job) -> int:
    fixed, size = job.batching.kind in ("length", "static"), job.training.batch_size
    copy, parts = job.experiment.parallel.ranks, job.experiment.parallel.shard  # of the rows of each copy
    fitting = [n for n in range(copy, gpus + 1, copy) if not fixed or size % (n // copy * parts) == 0]
    ranks = max(fitting, default=copy)
    if 0 < gpus < copy:
        raise BadInput(
            f"parallel.tensor, pipeline and shard divide a model among {copy} ranks, which need a GPU each, but this "
            f"machine has {gpus}: write values whose product is at most {gpus}"
        )
    if ranks < gpus:
        why = f"training.batch_size {size} has no larger divisor"
        if copy > 1:
            why = f"more ranks are no multiple of {copy}, or too many for batches of equal size"
        log.warning("%d of %d GPUs are used: %s", ranks, gpus, why)
    return ranks


def threads(ranks: int) -> int:
    """Return the number of threads for each of so many ranks on this machine, at least one.

    The ranks share the CPUs that affinity and the container's quota (of cgroup v1 or v2) allow.
    """
    return max(1, int(cpu_count()) // ranks)
