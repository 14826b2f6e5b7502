"""The stream: `.venv/tasks/bin/python -m benchmarks.stream`.

--parts chooses among two tables; benchmarks/streaming has a file for each, which says how it measures:

- kills: whether a row is lost or labeled twice when the process is killed again and again;
- latency: the time from a file to its predictions in a continuous stream.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from benchmarks.packages import package
from benchmarks.streaming.kills import kills
from benchmarks.streaming.latency import latency
from benchmarks.workload import add_arguments, prepare

PARTS = ("kills", "latency")
TEXTS = 2_000


def main() -> None:
    """Prepare texts and package once, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--package", type=Path, help="the folder of a package of a classifier of single texts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="the tables to print")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=10_000, help="of the table kills")
    parser.add_argument("--files", type=int, default=30, help="of the table latency")
    parser.add_argument("--pause", type=float, default=2, help="seconds from a batch to the next file, for latency")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    count, rows, files = (2, 100, 2) if arguments.quick else (arguments.kills, arguments.rows, arguments.files)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        workload = prepare(arguments, scratch).with_rows(TEXTS)
        model = (arguments.package or package(workload, scratch / "packaged")).absolute()
        texts = workload.texts
        if "kills" in arguments.parts:
            print(kills(model, texts, rows, 2 * count, count, scratch / "kills"), flush=True)
        if "latency" in arguments.parts:
            print(latency(model, texts, files, 20, arguments.pause, scratch / "latency"), flush=True)


if __name__ == "__main__":
    main()
