"""Requests per second of several servers, with clients that wait for their answers.

Each client sends a text as soon as the one before it is answered. The servers take turns; each is warmed by as many
requests before. Ours, MLflow's and LitServe compute the same form of the same package; ours is also measured in fp32.
The others are transformers in fp32: its pipeline behind FastAPI, and the lab's way, one text at a time behind a server
of the standard library. On a machine that others use too, processor time counts: that of all processes of a server.
Ratios are medians over the rounds of the ratio within a round.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.serving.http_load import Reply, Target
from benchmarks.serving.servers import KINDS, OURS, Kind, Server
from benchmarks.serving.setting import CLIENTS, Setting, answered, milliseconds, per_second
from benchmarks.tables import spread, table
from tasks.inference.packaged_model import PackagedModel

HEADER = (
    "server", "clients", "requests/s, median (lowest to highest)", "requests/CPU-s", "p50, ms", "p99, ms",
    "ours x requests/s", "ours x requests/CPU-s", "failed", "same label",
)  # fmt: skip


#: Numbers of clients.
COUNTS = (CLIENTS, 1)


@dataclass(frozen=True)
class Measurement:
    """Requests answered per second and per second of processor time, latencies, and how many were not answered."""

    per_second: float
    per_cpu_second: float
    p50: float
    p99: float
    failed: int


def throughput(setting: Setting, rounds: int) -> str:
    """Measure all servers, and return the table."""
    model = PackagedModel(setting.package, setting.form)
    labels: list[str] = model.answers(model.logits([list(setting.texts)]))["label"]
    found: dict[tuple[int, str], list[Measurement]] = defaultdict(list)
    same: dict[str, float] = {}
    with ExitStack() as stack:
        running: list[tuple[Kind, Server, Target]] = []
        for kind in KINDS:
            server = stack.enter_context(setting.started(kind))
            running.append((kind, server, kind.target(server.port, setting.texts)))
        for kind, _, target in running:
            same[kind.name] = _same(kind, setting.closed(target), labels)
        for _ in range(rounds):
            for clients in COUNTS:
                for kind, server, target in running:
                    found[clients, kind.name].append(_measure(setting, server, target, clients))
    rows = [
        [kind.name, str(clients), *_row(kind, found[clients, kind.name], found[clients, OURS.name], same)]
        for clients in COUNTS
        for kind in KINDS
    ]
    return table(HEADER, rows)


def _measure(setting: Setting, server: Server, target: Target, clients: int) -> Measurement:
    before = server.cpu_seconds()
    replies = setting.closed(target, clients)
    good = answered(replies)
    per_cpu_second = len(good) / (server.cpu_seconds() - before)
    p50, p99 = (milliseconds(good, percent) or 0.0 for percent in (50, 99))
    return Measurement(per_second(replies), per_cpu_second, p50, p99, len(replies) - len(good))


def _same(kind: Kind, replies: Sequence[Reply], labels: Sequence[str]) -> float:
    """The share of answers whose label is that of the package."""
    same = [kind.label(json.loads(reply.body)) == labels[reply.row] for reply in answered(replies)]
    return statistics.mean(same)


def _row(kind: Kind, measured: list[Measurement], ours: list[Measurement], same: dict[str, float]) -> list[str]:
    pairs = list(zip(ours, measured, strict=True))
    return [
        spread([one.per_second for one in measured]),
        spread([one.per_cpu_second for one in measured]),
        f"{statistics.median(one.p50 for one in measured):.1f}",
        f"{statistics.median(one.p99 for one in measured):.1f}",
        f"{statistics.median(own.per_second / one.per_second for own, one in pairs):.2f}",
        f"{statistics.median(own.per_cpu_second / one.per_cpu_second for own, one in pairs):.2f}",
        str(sum(one.failed for one in measured)),
        f"{same[kind.name]:.4f}",
    ]
