"""Memory and speed of divided models: `.venv/tasks/bin/python -m benchmarks.hybrid --data /path/to/glue`.

Every mesh trains the same rows on as many ranks as it has, with one thread each. The memory is that of the rank that
needs most; on a CPU it contains the whole encoder, which every rank loads before it keeps its part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Measurement, Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare

WARMUP, STEPS = 3, 12
PLAIN = ("training.sparse_embeddings=false", "training.fused_layers=false", "parallel.micro_batches=4")
#: The sizes of the axes data, pipeline, shard and tensor.
MESHES = {
    "1 rank": (1, 1, 1, 1),
    "2 copies": (2, 1, 1, 1),
    "tensor 2": (1, 1, 1, 2),
    "pipeline 2": (1, 2, 1, 1),
    "shard 2": (1, 1, 2, 1),
    "tensor 4": (1, 1, 1, 4),
    "shard 4": (1, 1, 4, 1),
    "2 copies, pipeline 2, tensor 2": (2, 2, 1, 2),
}
QUICK = ("1 rank", "tensor 2", "pipeline 2", "shard 2")


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--meshes", nargs="+", choices=MESHES, default=list(MESHES))
    arguments = parser.parse_args()
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"  # for the copies of each part
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        steps, rounds = (2, 1) if arguments.quick else (STEPS, arguments.rounds)
        names = QUICK if arguments.quick else arguments.meshes
        workload = prepare(arguments, scratch).with_rows(steps * BATCH)
        measured: dict[str, list[Measurement]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                measured[name].append(_measure(workload, scratch / "output", MESHES[name]))
        print(_table(measured))


def _measure(workload: Workload, output: Path, mesh: tuple[int, int, int, int]) -> Measurement:
    """Of the rank that held the most memory."""
    data, pipeline, shard, tensor = mesh
    ranks, steps = data * pipeline * shard * tensor, workload.rows // BATCH
    sizes = (f"parallel.pipeline={pipeline}", f"parallel.shard={shard}", f"parallel.tensor={tensor}")
    job = workload.job(output, *PLAIN, *sizes, f"training.ranks={ranks}")
    found = measure(job, Timing(min(WARMUP, steps), steps, shared=False), 1, [LOCAL] * ranks)
    return max((one[0] for one in found), key=lambda measured: measured.memory)


def _table(measured: dict[str, list[Measurement]]) -> str:
    header = ("mesh", "peak memory of a rank, MB", "rows/s, median (lowest to highest)")
    return table(
        header,
        [
            (name, spread([one.memory / 1e6 for one in ones], 1), spread([one.rows_per_second for one in ones], 1))
            for name, ones in measured.items()
        ],
    )


if __name__ == "__main__":
    main()
