"""The service under load: `.venv/tasks/bin/python -m benchmarks.serve_load`.

The texts are the training texts of SST-2 (--data) or of the bundled corpus. The model is that of a package (--package),
or a pretrained encoder with a random head, which the stage package packages. The load comes from a process of its own
on the same machine. --parts chooses among four tables; benchmarks/serving has a file for each, which says how it
measures:

- throughput, beside other servers;
- overhead: what HTTP and batching cost the processor;
- open: latencies at half of the capacity, and what happens at four times the capacity;
- swaps: a champion that changes under load.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.packages import package
from benchmarks.serving.http_load import Generator
from benchmarks.serving.open_loop import open_loop
from benchmarks.serving.overhead import overhead
from benchmarks.serving.setting import Setting
from benchmarks.serving.swaps import swaps
from benchmarks.serving.throughput import throughput
from benchmarks.workload import add_arguments, prepare
from tasks.serving.served_model import open_model

PARTS = ("throughput", "overhead", "open", "swaps")
TEXTS = 2_000


def main() -> None:
    """Prepare texts and package once, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--package", type=Path, help="the folder of a package of a classifier of single texts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="the tables to print")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of the table throughput")
    parser.add_argument("--swaps", type=int, default=20)
    arguments = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # the registry is one of our own
    with tempfile.TemporaryDirectory() as name, Generator() as generator:
        scratch = Path(name)
        workload = prepare(arguments, scratch).with_rows(TEXTS)
        folder = (arguments.package or package(workload, scratch / "packaged")).absolute()
        seconds, rounds, count = arguments.seconds, arguments.rounds, arguments.swaps
        if arguments.quick:
            seconds, rounds, count = 0.5, 1, 2
        form = open_model(folder, "", "", 0).form  # in which the service computes it here
        setting = Setting(generator, folder, form, workload.texts, scratch, seconds)
        print(f"{setting.form}, {os.cpu_count()} processors", flush=True)
        tables: dict[str, Callable[[], str]] = {
            "throughput": lambda: throughput(setting, rounds),
            "overhead": lambda: overhead(setting, _tiny(scratch / "overhead")),
            "open": lambda: open_loop(setting),
            "swaps": lambda: swaps(setting, package(workload, scratch / "other", seed=1), count),
        }
        for part in arguments.parts:
            print(f"\n{tables[part]()}", flush=True)


def _tiny(scratch: Path) -> Path:
    """The package of a tiny model."""
    return package(prepare(argparse.Namespace(quick=True), scratch), scratch / "packaged")


if __name__ == "__main__":
    main()
