"""Starting the ranks of a timed training on the hosts that a benchmark names.

Horovod's own launcher reaches other hosts by ssh, and network namespaces have none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.links import LOCAL, Host
from benchmarks.timed_rank import TIMING, Measurement, Timing
from include.artifacts import write_json
from tasks.__main__ import SPINS
from tasks.launching.launch import ROOT, UNFUSED
from tasks.launching.rank import JOB
from tasks.training.job import Job

#: A step of the slowest link may take longer than what the engine waits for a silent rank.
PATIENCE = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "600"}


def measure(job: Job, timing: Timing, threads: int, hosts: Sequence[Host] = (LOCAL,)) -> list[list[Measurement]]:
    """Train with a rank on each of the hosts; what was measured, [ranks, rates].

    Raises RuntimeError with the ranks' output when one fails.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_json(folder / TIMING, dataclasses.asdict(timing))
        job.write(folder / JOB)
        told = stack.enter_context(rendezvous(hosts)) if len(hosts) > 1 else [{}]
        ranks = [
            stack.enter_context(_rank(folder, host, {**environment, "OMP_NUM_THREADS": str(threads)}))
            for host, environment in zip(hosts, told, strict=True)
        ]
        exit_codes = [rank.wait() for rank in ranks]
        if any(exit_codes):
            logs = "\n".join(log.read_text(encoding="utf-8") for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"the ranks ended with exit codes {exit_codes}:\n{logs}")
        files = [folder / f"measured-{rank}.json" for rank in range(len(ranks))]
        return [[Measurement(**one) for one in json.loads(file.read_text())["rates"]] for file in files]


@contextmanager
def _rank(folder: Path, host: Host, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [*host.command, sys.executable, "-m", "benchmarks.timed_rank", str(folder)]
    with (folder / f"rank-{environment.get('HOROVOD_RANK', 0)}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={"GOMP_SPINCOUNT": SPINS, **os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def rendezvous(hosts: Sequence[Host]) -> Iterator[list[dict[str, str]]]:
    """What each rank's environment tells Horovod, while the server that it names runs on the first host."""
    names = ",".join(f"{name}:{ranks}" for name, ranks in Counter(host.name for host in hosts).items())
    where = (hosts[0].address, hosts[0].interface)
    command = [*hosts[0].command, sys.executable, "-m", "benchmarks.rendezvous", names, *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout
        yield [{**PATIENCE, **UNFUSED, **environment} for environment in json.loads(server.stdout.readline())]
