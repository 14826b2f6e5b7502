"""What HTTP and batching cost the processor for each request, beside the model.

Each request is the same short text. The model is tiny and has one thread, so that what is subtracted is small: the
processor time of PackagedModel in this process, for each request to encode a text, and for each batch to compute one of
as many rows as the server's batches have on average. Everything else that the server does is overhead: to parse and
answer HTTP and JSON, to hand texts from thread to thread, to wait in line, and to count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.serving.servers import OURS, Server, service
from benchmarks.serving.setting import CLIENTS, Setting, answered, cell, per_second
from benchmarks.tables import table
from tasks.inference.packaged_model import PackagedModel
from tasks.serving.served_model import open_model

TEXT = "A moving and funny film."
REPEATS = 500
#: The metrics of the rows and batches that the service has computed.
ROWS, BATCHES = "spark_bert_batch_rows_sum", "spark_bert_batch_rows_count"
HEADER = (
    "clients", "requests/s", "rows per batch", "server's CPU, ms/request", "of it PackagedModel, ms",
    "overhead, ms/request",
)  # fmt: skip


def overhead(setting: Setting, package: Path) -> str:
    """Measure the service with a package of a tiny model, and return the table."""
    command = partial(service, overrides=(f"serving.model={package}", "serving.threads=1"))
    with Server(command, setting.scratch / "overhead.log") as server:
        server.wait_for(OURS.path, OURS.body(TEXT))
        model = open_model(package, "", "", threads=1).package
        setting.closed(OURS.target(server.port, [TEXT]))  # the first requests take longer
        return table(HEADER, [_row(setting, server, model, clients) for clients in (1, CLIENTS)])


def _row(setting: Setting, server: Server, model: PackagedModel, clients: int) -> list[str]:
    cpu, rows, batches = server.cpu_seconds(), server.metric(ROWS), server.metric(BATCHES)
    replies = setting.closed(OURS.target(server.port, [TEXT]), clients)
    cpu, rows, batches = server.cpu_seconds() - cpu, server.metric(ROWS) - rows, server.metric(BATCHES) - batches
    count, per_batch = len(answered(replies)), rows / batches
    own = 1000 * cpu / count
    models = _cpu_ms(lambda: model.encode([[TEXT]])) + _compute_ms(model, per_batch) / per_batch
    return [
        str(clients),
        cell(per_second(replies), 0),
        *(cell(value, 2) for value in (per_batch, own, models, own - models)),
    ]


def _compute_ms(model: PackagedModel, rows: float) -> float:
    """Processor time to compute a batch, in milliseconds; between two numbers of rows, that of both in proportion."""
    encodings, _ = model.encode([[TEXT] * (int(rows) + 1)])
    share = rows - int(rows)
    return (1 - share) * _cpu_ms(lambda: model.compute(encodings[:-1])) + share * _cpu_ms(
        lambda: model.compute(encodings)
    )


def _cpu_ms(step: Callable[[], object]) -> float:
    """Processor time of a step, in milliseconds."""
    for _ in range(REPEATS // 10):
        step()
    before = time.process_time()
    for _ in range(REPEATS):
        step()
    return 1000 * (time.process_time() - before) / REPEATS
