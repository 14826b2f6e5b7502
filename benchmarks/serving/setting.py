"""What the tables of the benchmark serve_load have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.serving.http_load import Generator, Reply, Target
from benchmarks.serving.servers import Kind, Server

#: How many clients send at once when they wait for their answers.
CLIENTS = 32


@dataclass(frozen=True)
class Setting:
    """What is served and asked.

    Attributes:
        generator: what sends requests.
        package: the folder of the package.
        form: the form that the service computes.
        texts: the texts.
        scratch: a folder for logs.
        seconds: duration of a measurement.
    """

    generator: Generator
    package: Path
    form: str
    texts: Sequence[str]
    scratch: Path
    seconds: float

    def started(self, kind: Kind) -> Server:
        """A server that answers with the package."""
        log = self.scratch / f"{kind.name}.log"
        server = Server(partial(kind.command, self.package, self.form), log, **kind.variables(self.form))
        server.wait_for(kind.path, kind.body(self.texts[0]))
        return server

    def closed(self, target: Target, clients: int = CLIENTS) -> list[Reply]:
        """What becomes of requests of clients that wait for their answers."""
        return self.generator.closed(target, clients, self.seconds)


def per_second(replies: Sequence[Reply]) -> float:
    """Requests answered per second, from the first request to the last answer."""
    first, last = min(reply.intended for reply in replies), max(reply.intended + reply.seconds for reply in replies)
    return len(answered(replies)) / (last - first)


def answered(replies: Sequence[Reply]) -> list[Reply]:
    """Those that have got what they asked for."""
    return [reply for reply in replies if reply.status == 200]


def milliseconds(replies: Sequence[Reply], percent: float) -> float | None:
    """A percentile of the latencies; None if there are no replies."""
    return float(np.percentile([1000 * reply.seconds for reply in replies], percent)) if replies else None


def cell(value: float | None, digits: int = 1) -> str:
    """A figure; "-" if there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"
