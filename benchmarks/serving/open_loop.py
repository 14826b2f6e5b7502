"""Latencies and answers when requests come at random times, whether or not those before are answered.

The capacity is the throughput with clients that wait for their answers. Latency counts from the time at which a request
was to be sent, so it contains what the client is late (last column): otherwise a server that stands still would keep
the client from sending the requests that suffer most. Answers count if they come before the last request is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.serving.http_load import Reply
from benchmarks.serving.servers import OURS, Server
from benchmarks.serving.setting import CLIENTS, Setting, answered, cell, milliseconds, per_second
from benchmarks.tables import table

#: Shares of the capacity, in turn: the second half shows whether the service is the same as before.
LOADS = (0.5, 4.0, 0.5, 4.0)
HEADER = (
    "load", "sent/s", "answered/s", "of capacity", "p50, ms", "p95, ms", "p99, ms", "p99 / p50", "429s",
    "their p50, ms", "their p99, ms", "failed", "memory after, MB", "sent late, p99, ms",
)  # fmt: skip


def open_loop(setting: Setting) -> str:
    """Measure the service, and return the table."""
    with setting.started(OURS) as server:
        target = OURS.target(server.port, setting.texts)
        setting.closed(target)  # the first requests take longer
        replies = setting.closed(target)
        capacity = per_second(replies)
        rows = [_row(f"{CLIENTS} clients that wait", replies, capacity, server)]
        for share in LOADS:
            replies = setting.generator.open(target, share * capacity, setting.seconds)
            rows.append(_row(f"{share:g} x capacity", replies, capacity, server))
        return table(HEADER, rows)


def _row(name: str, replies: Sequence[Reply], capacity: float, server: Server) -> list[str]:
    first, last = min(reply.intended for reply in replies), max(reply.intended for reply in replies)
    good, refused = answered(replies), [reply for reply in replies if reply.status == 429]
    failed = Counter(f"{reply.status} {reply.body!r}" for reply in set(replies).difference(good, refused))
    in_time = sum(reply.intended + reply.seconds <= last for reply in good) / (last - first)
    p50, p99 = milliseconds(good, 50), milliseconds(good, 99)
    return [
        name,
        cell(len(replies) / (last - first), 0),
        cell(in_time, 0),
        f"{in_time / capacity:.2f}",
        *(cell(milliseconds(good, percent)) for percent in (50, 95, 99)),
        cell(p99 / p50 if p50 and p99 else None, 2),
        str(len(refused)),
        *(cell(milliseconds(refused, percent)) for percent in (50, 99)),
        ", ".join(f"{count} x {why}" for why, count in failed.items()) or "0",
        cell(server.megabytes(), 0),
        cell(1000 * sorted(reply.late for reply in replies)[int(0.99 * len(replies))]),
    ]
