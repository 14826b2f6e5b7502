"""Print again the tables of docs/RESULTS.md that take less than an hour in all: `make results DATA=/path/to/glue`."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from include.artifacts import revision
from tasks.launching.launch import ROOT
from tasks.launching.layouts import processor

log = logging.getLogger(__name__)

#: The benchmarks by the section of docs/RESULTS.md that their tables belong to, with their options.
TABLES = {
    "Training speed": ("train_throughput --rounds 3 --rows 1600", "hybrid --rounds 1"),
    "Predictions": ("predict_throughput --rows 4000 --rounds 2",),
    "Service": ("serve_load --parts throughput open --seconds 4 --rounds 3", "resume"),
    "Data": ("preprocess_scale --rows 67000 670000 --rounds 3 3",),
    "Communication and scaling": ("compression --steps 3",),
}
WITHOUT_DATA = ("resume",)


def main() -> None:
    """Run each benchmark, and print what it prints under its section. End with 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder in GLUE's layout; without it, the bundled corpus")
    parser.add_argument("--sections", choices=TABLES, nargs="+", default=list(TABLES), metavar="SECTION")
    parser.add_argument("--quick", action="store_true", help="the quick form of each benchmark: does it work?")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    print(f"# Results on {machine()}\n\nRevision {revision()[:7]}, {datetime.now(UTC):%Y-%m-%d}.", flush=True)
    failed = []
    for section in arguments.sections:
        print(f"\n## {section}", flush=True)
        for options in TABLES[section]:
            words = command(options, arguments.data, arguments.quick)
            log.info("%s", shlex.join(words))
            print(f"\n`benchmarks.{shlex.join(words)}`:\n", flush=True)
            if subprocess.run([sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]], cwd=ROOT).returncode:
                failed.append(words[0])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def command(options: str, data: Path | None, quick: bool) -> list[str]:
    """Return the name of a benchmark and its options: its own, or those of its quick form."""
    words = shlex.split(options)
    if quick:
        return [words[0], "--quick"]
    return [*words, *(["--data", str(data.resolve())] if data and words[0] not in WITHOUT_DATA else [])]


def machine() -> str:
    """Return the processor and what a process has of the machine, in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return f"{processor() or platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, {memory:.0f} GB"


if __name__ == "__main__":
    main()
