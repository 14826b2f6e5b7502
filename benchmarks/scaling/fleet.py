"""Ranks as forks of this process, each on the network namespace that it is told: sixteen imports take too long.

This process must not have initialized Horovod or computed with torch before, because threads do not survive a fork.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from typing import TypeVar

import horovod.torch as hvd
import torch

from benchmarks.links import Host, enter
from benchmarks.ranks import rendezvous

Result = TypeVar("Result")
Work = Callable[[Host], Result]
CYCLE = 1.0  # ms; Horovod looks for tensors that all ranks have so often, unless it is told otherwise
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_FORKS = multiprocessing.get_context("fork")


def on_hosts(hosts: Sequence[Host], work: Work[Result], dilation: float = 1) -> list[Result]:
    """Run the work on one rank for each of the hosts, which may repeat, in Horovod's order.

    Args:
        hosts: where the ranks run. Ranks of one host stand beside each other.
        work: is called on every rank after Horovod was initialized, with the rank's host.
        dilation: the factor by which Horovod's own clock is slowed down.

    Returns:
        What the work returned on each rank.

    Raises:
        RuntimeError: if a rank failed or was killed; the others are then killed too.
    """
    with ExitStack() as stack:
        told = stack.enter_context(rendezvous(hosts))
        results, processes = [], []
        for host, environment in zip(hosts, told, strict=True):
            reader, writer = _FORKS.Pipe(duplex=False)
            environment = {**environment, "HOROVOD_CYCLE_TIME": str(CYCLE * dilation)}
            process = _FORKS.Process(target=_rank, args=(host, environment, work, writer))
            process.start()
            writer.close()  # so that a rank's end is an end of its pipe
            stack.callback(_end, process)
            results.append(reader)
            processes.append(process)
        return _collect(results, processes)


def alone(work: Callable[[], Result]) -> Result:
    """Run the work in one fork without Horovod, so that this process stays able to fork."""
    reader, writer = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_child, args=(work, writer))
    process.start()
    writer.close()
    try:
        return _collect([reader], [process])[0]
    finally:
        _end(process)


def _collect(results: Sequence[Connection], processes: Sequence[multiprocessing.process.BaseProcess]) -> list[Result]:
    """Return what each process sends, in their order, as soon as all have; raise when one ends without."""
    found: dict[int, Result] = {}
    places = {reader: number for number, reader in enumerate(results)}
    while len(found) < len(results):
        for reader in wait([reader for reader, number in places.items() if number not in found]):
            number = places[reader]  # type: ignore[index]  # wait returns what it was given
            try:
                found[number] = results[number].recv()
            except EOFError:
                processes[number].join()
                code = processes[number].exitcode
                raise RuntimeError(f"rank {number} ended with exit code {code}; its last lines are above") from None
    return [found[number] for number in range(len(results))]


def _rank(host: Host, environment: dict[str, str], work: Work[Result], writer: Connection) -> None:
    enter(host)
    os.environ.update(environment)

    def connected() -> Result:
        hvd.init(process_sets="dynamic")  # see Hosts
        result = work(host)
        hvd.barrier()  # nobody leaves while another one still sums
        hvd.shutdown()
        return result

    _child(connected, writer)


def _child(work: Callable[[], Result], writer: Connection) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # to remove the namespaces is the parent's part
    torch.set_num_threads(1)
    writer.send(work())


def _end(process: multiprocessing.process.BaseProcess) -> None:
    process.join(timeout=0.1)
    process.kill()
    process.join()
