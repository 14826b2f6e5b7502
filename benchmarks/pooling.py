"""The dev metric of each head after equally many steps: `.venv/tasks/bin/python -m benchmarks.pooling`.

For each task, a model is trained with the family's own head and with a linear head on the mean of the token embeddings
or on the first token's, on one rank, with the same seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.scores import dev_metric, paired_difference
from benchmarks.tables import spread, table
from benchmarks.workload import Workload, add_arguments, prepare
from include.fields.training import Model

POOLINGS: tuple[str, ...] = get_args(Model.model_fields["pooling"].annotation)
EXPERIMENTS = ("sst2", "cola", "stsb")


def main() -> None:
    """Print one table per task."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--experiments", nargs="+", default=EXPERIMENTS, help="named experiments, with --data")
    parser.add_argument("--steps", type=int, default=400, help="of each training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    names = arguments.experiments if arguments.data else ["movies"]
    steps = 2 if arguments.quick else arguments.steps
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            arguments.experiment = name
            workload = prepare(arguments, Path(scratch) / name)
            print(_table(workload, Path(scratch) / name, steps, arguments.seeds) + "\n", flush=True)


def _table(workload: Workload, scratch: Path, steps: int, seeds: Sequence[int]) -> str:
    metrics: dict[str, list[float]] = {pooling: [] for pooling in POOLINGS}
    for seed in seeds:
        for pooling in POOLINGS:
            folder = scratch / f"{pooling}-{seed}"
            told = (f"model.pooling={pooling}", "training.ranks=1")
            metrics[pooling].append(dev_metric(workload, folder, steps, seed, *told))
    task = workload.experiment.task
    header = (task.name, f"{task.metric} after {steps} steps, seeds {', '.join(map(str, seeds))}", "less native")
    native = metrics["native"]
    return table(
        header, [(name, spread(found, 4), paired_difference(found, native)) for name, found in metrics.items()]
    )


if __name__ == "__main__":
    main()
