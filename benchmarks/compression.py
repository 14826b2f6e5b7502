"""Bytes and step time of each compression by link: `.venv/tasks/bin/python -m benchmarks.compression`.

Two ranks, in two network namespaces joined by a link of 100 Mbit/s, 1 Gbit/s, 10 Gbit/s and without a limit; that needs
root and iproute2, and without them, or with more ranks, it measures over the loopback alone. Every batch has one shape
(32 rows of 32 tokens), so that steps differ in nothing but the link. The methods take turns, because the machine's own
speed drifts; a cell has the median over the rounds of a round's median step, and the lowest and highest round. --score
also trains and compares the dev split's metric.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.links import LOCAL, Host, joined_hosts, missing
from benchmarks.ranks import measure
from benchmarks.scores import dev_metric, paired_difference
from benchmarks.tables import spread, table
from benchmarks.timed_rank import Measurement, Timing
from benchmarks.workload import Workload, add_arguments, prepare

SHAPE = ("batching.kind=static", "preprocessing.max_length=32")
DENSE = "training.sparse_embeddings=false"
SERVER = "communication.strategy=parameter-server"
METHODS = {
    "none, dense embeddings": (DENSE,),
    "none": (),
    "fp16": ("communication.compression=fp16",),
    "int8": ("communication.compression=int8",),
    "int4": ("communication.compression=int4",),
    "onebit": ("communication.compression=onebit",),
    "topk": ("communication.compression=topk",),
    "powersgd, rank 4": ("communication.compression=powersgd", "communication.powersgd_rank=4"),
    "powersgd, rank 1": ("communication.compression=powersgd", "communication.powersgd_rank=1"),
    "parameter server, fp32": (SERVER,),
    "parameter server, fp16": (SERVER, "communication.server_parameters=fp16"),
    "parameter server, one step stale": (SERVER, "communication.staleness=1"),
}
QUICK = ("none", "onebit")
MEGABIT = 10**6
LINKS: dict[str, int | None] = {
    "no limit": None,
    "10 Gbit/s": 10_000 * MEGABIT,
    "1 Gbit/s": 1_000 * MEGABIT,
    "100 Mbit/s": 100 * MEGABIT,
}
KINDS = ("embeddings", "matrices", "rest")


@dataclass(frozen=True)
class Plan:
    """What is measured: on which hosts, at which limits in bit/s, for how many steps at each in how many rounds."""

    hosts: Sequence[Host]
    links: dict[str, int | None]
    steps: int
    rounds: int

    @property
    def real(self) -> bool:
        """Whether there is a link, and not only the loopback, whose counter knows more than these ranks."""
        return self.hosts[0] is not LOCAL


def main() -> None:
    """Prepare the data once, then print the table, and the scores where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=5, help="measured at each link, after two that are not")
    parser.add_argument("--rounds", type=int, default=3, help="in which the methods take turns")
    parser.add_argument("--score", type=int, metavar="STEPS", help="also train so many steps and score dev")
    parser.add_argument("--links", choices=LINKS, nargs="*", default=list(LINKS), metavar="LINK", help="none: no costs")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of --score")
    arguments = parser.parse_args()
    reason = missing() if arguments.ranks == 2 else "more than two ranks share it"
    if reason:
        print(f"Over the loopback only: {reason}.\n")
    on_hosts = nullcontext([LOCAL] * arguments.ranks) if reason else joined_hosts()
    with tempfile.TemporaryDirectory() as name, on_hosts as hosts:
        scratch = Path(name)
        methods, steps = {name: METHODS[name] for name in arguments.methods}, arguments.steps
        links = {name: LINKS[name] for name in arguments.links}
        if reason and links:
            links = {"loopback": None}
        if arguments.quick:
            methods, links, steps = {name: METHODS[name] for name in QUICK}, dict(list(links.items())[:2]), 2
        if links:
            workload = prepare(arguments, scratch, *SHAPE)
            print(cost(workload, scratch, methods, Plan(hosts, links, steps, arguments.rounds)))
        if arguments.score:
            whole = prepare(arguments, scratch / "whole")
            print("\n" + score(whole, scratch, methods, arguments.score, arguments.seeds, arguments.ranks))


def cost(workload: Workload, scratch: Path, methods: dict[str, tuple[str, ...]], plan: Plan) -> str:
    """The table of bytes and step times, those of rank 0 over all rounds."""
    timing = Timing(2, plan.steps, plan.hosts[0].interface, tuple(plan.links.values()))
    rounds: dict[str, list[list[Measurement]]] = {name: [] for name in methods}
    for number in range(plan.rounds):
        for position, (name, overrides) in enumerate(methods.items()):
            told = (*overrides, f"training.ranks={len(plan.hosts)}", "communication.compression_start=0")
            job = workload.job(scratch / f"cost-{number}-{position}", *told)
            rates, *_ = measure(job, timing, 1, plan.hosts)
            rounds[name].append(rates)
    header = ["method", *(f"{kind}, kB/step" for kind in KINDS), "all, kB/step", "on the interface", "fp32 dense / all"]
    lines = [[name, *_bytes(measured[0][0], plan), *_times(measured)] for name, measured in rounds.items()]
    return table([*header, *(f"ms/step, {link}" for link in plan.links)], lines)


def _times(rounds: list[list[Measurement]]) -> list[str]:
    """A round's median step at each link, in milliseconds, spread over the rounds."""
    by_link = zip(*rounds, strict=True)
    return [spread([1e3 * statistics.median(one.seconds) for one in measured]) for measured in by_link]


def _bytes(measured: Measurement, plan: Plan) -> list[str]:
    """A step's, by kind, in all and on the interface; how many times as many a sum of all gradients in fp32 brings."""
    steps = len(measured.seconds)
    total = sum(measured.sent.values())
    counts = [*(measured.sent[kind] for kind in KINDS), total, measured.on_interface]
    texts = [f"{count / steps / 1e3:,.1f}" for count in counts]
    if not plan.real:
        texts[-1] = "not known"
    ranks = len(plan.hosts)
    dense = 2 * (ranks - 1) / ranks * 4 * measured.parameters
    return [*texts, f"{dense * steps / total:.1f}"]


def score(
    workload: Workload, scratch: Path, methods: dict[str, tuple[str, ...]], steps: int, seeds: Sequence[int], ranks: int
) -> str:
    """The dev split's metric after equal steps on so many ranks over the loopback, beside that of no compression.

    Differences are paired by seed; their interval is Student's at 95 %.
    """
    metrics: dict[str, list[float]] = {name: [] for name in methods}
    for seed in seeds:
        for position, (name, overrides) in enumerate(methods.items()):
            folder = scratch / f"score-{seed}-{position}"
            metrics[name].append(dev_metric(workload, folder, steps, seed, *overrides, f"training.ranks={ranks}"))
    header = ("method", f"dev metric after {steps} steps, seeds {', '.join(map(str, seeds))}", "less that of none")
    return table(
        header,
        [(name, spread(values, 4), paired_difference(values, metrics["none"])) for name, values in metrics.items()],
    )


if __name__ == "__main__":
    main()
