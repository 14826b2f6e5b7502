"""LoRA beside full fine-tuning, PowerSGD and frozen layers: `.venv/tasks/bin/python -m benchmarks.lora`.

Two ranks on this machine. Each round measures every case once, in processes of its own; then each case trains for some
steps with every seed, and is scored on the dev split.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.links import LOCAL
from benchmarks.ranks import measure
from benchmarks.scores import dev_metric, paired_difference
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Measurement, Timing
from benchmarks.workload import BATCH, Workload, add_arguments, prepare

RANKS = 2
POWERSGD = ("communication.compression=powersgd", "communication.compression_start=0")
LORA = ("training.lora_rank=8", "training.learning_rate=5e-4")
CASES = {
    "full": (),
    "full, PowerSGD": POWERSGD,
    "frozen: the lowest four layers": ("training.freeze_layers=4",),
    "LoRA, attention": LORA,
    "LoRA, all linear layers": (*LORA, "training.lora_targets=all"),
}
QUICK = ("full", "LoRA, attention")


def main() -> None:
    """Prepare the data once, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rows", type=int, default=32 * BATCH, help="that each measurement trains on")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="before the scoring")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else tuple(CASES)
    rounds, steps = (1, 2) if arguments.quick else (arguments.rounds, arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        whole = prepare(arguments, scratch)
        some = whole.with_rows(2 * BATCH if arguments.quick else arguments.rows)
        measured: dict[str, list[Measurement]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                measured[name].append(_measure(some, scratch / "output", CASES[name]))
        scores = {name: _scores(whole, scratch, name, steps, arguments.seeds) for name in names}
        metric = f"dev {whole.job(scratch).experiment.task.metric} after {steps} steps"
    print(_table(measured, scores, metric))


def _measure(workload: Workload, output: Path, overrides: tuple[str, ...]) -> Measurement:
    """Measure the rank that held the most memory."""
    steps = workload.rows // BATCH
    job = workload.job(output, *overrides, f"training.ranks={RANKS}")
    ranks = measure(job, Timing(min(3, steps), steps), 1, [LOCAL] * RANKS)
    return max((rank[0] for rank in ranks), key=lambda one: one.memory)


def _scores(workload: Workload, scratch: Path, name: str, steps: int, seeds: list[int]) -> list[float]:
    folder, ranks = scratch / name, f"training.ranks={RANKS}"
    return [dev_metric(workload, folder / str(seed), steps, seed, *CASES[name], ranks) for seed in seeds]


def _table(measured: dict[str, list[Measurement]], scores: dict[str, list[float]], metric: str) -> str:
    header = ("training", metric, "less full", "rows per second", "received, kB per step", "resident per rank, MB")
    lines = []
    for name, ones in measured.items():
        received = [sum(one.sent.values()) / len(one.seconds) / 1e3 for one in ones]
        lines.append(
            (
                name,
                spread(scores[name], 4),
                paired_difference(scores[name], scores["full"]),
                spread([one.rows_per_second for one in ones], 1),
                f"{received[0]:,.0f}",
                spread([one.memory / 1e6 for one in ones]),
            )
        )
    return table(header, lines)


if __name__ == "__main__":
    main()
