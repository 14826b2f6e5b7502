"""How fast each form is where it is used: in the batches of predict and score, and in those of the service."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Encoding

from include.fields.labeling import Serving
from include.fields.results import Prediction
from tasks.encoder import tokens
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import read_head
from tasks.encoder.windows import split
from tasks.inference.packaged_model import padded
from tasks.inference.runner import Backend, batches
from tasks.inference.trained_model import TrainedModel
from tasks.launching.tuning import threads
from tasks.serving.waiting import Input, Request, Shares, Waiting
from tasks.stages.pipeline.package.forms import REFERENCE

log = logging.getLogger(__name__)

#: The clients of the service, of which each waits for the answer to its one text.
CLIENTS = 32
#: How many rows each form computes in a pass on one thread, with one client of the service, and with many.
ROWS, SINGLE, ARRIVALS = 32, 16, 96
REPEATS = 3
#: The ids, the attention mask and the segments of a batch, int64 [rows, tokens].
_Batch = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Speed:
    """The speed of a form for a use: the median and the bounds over the passes.

    Attributes:
        times_torch: The median of the ratios to the reference's rows per second in the same pass.
    """

    rows_per_second: float
    lowest: float
    highest: float
    times_torch: float


def measure_speeds(models: Mapping[str, TrainedModel], dev: TokenTable) -> dict[str, dict[str, Speed]]:
    """Measure all forms, by name, and return their speeds for each use (see USES of packaged_backends).

    The inputs are dev rows, or windows, that are evenly spread over their lengths.
    """
    cores = threads(ranks=1)
    inputs = _inputs(dev, Path(models[REFERENCE.name].folder))
    single = [padded([each]) for each in inputs[:SINGLE]]
    together = [padded(batch) for batch in in_service(inputs, CLIENTS, cores)]
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(cores) as every:
        alone = {name: model.open(threads=1) for name, model in models.items()}
        measured = {"one_thread": _speeds(alone, _in_stages(dev), one)}
        del alone  # the largest models take gigabytes in each form
        shared = {name: model.open(threads=1, streams=cores) for name, model in models.items()}
        measured["one_client"] = _speeds(shared, single, one)
        measured["many_clients"] = _speeds(shared, together, every)
    found: dict[str, dict[str, Speed]] = {name: {} for name in models}
    for use, speeds in measured.items():
        for name, speed in speeds.items():
            found[name][use] = speed
            log.info("%s, %s: %.0f rows/s, %.2f times PyTorch", name, use, speed.rows_per_second, speed.times_torch)
    return found


def _in_stages(dev: TokenTable) -> list[_Batch]:
    """Return the batches of predict and score, whose workers have one thread each."""
    chosen = np.argsort(dev.lengths, kind="stable")[_evenly(len(dev.lengths), ROWS)]
    made = [dev.batch(chosen[places]) for places in batches(dev.lengths[chosen], Prediction())]
    return [(each.input_ids.numpy(), each.attention_mask.numpy(), each.token_type_ids.numpy()) for each in made]


def in_service(inputs: Sequence[Encoding], clients: int, threads: int) -> list[list[Encoding]]:
    """Return the batches in which the service computes single texts of clients, of which each sends one at a time.

    When clients have their answers, the thread begins its next batch before their next texts arrive.
    """
    waiting, coming, made = Waiting(Serving().batch_tokens, Shares(1 << 60)), iter(inputs), []
    computing: deque[list[Input]] = deque()

    def send(names: Iterable[str]) -> None:
        for name, each in zip(names, coming, strict=False):
            waiting.add(Request([each], 1, name))

    def take(idle: int) -> None:
        if batch := waiting.take(idle):
            computing.append(batch)

    send(map(str, range(clients)))
    for idle in range(threads, 0, -1):
        take(idle)
    while computing:
        batch = computing.popleft()
        made.append([each.encoding for each in batch])
        take(1)
        send(each.request.client for each in batch)
        if not computing:
            take(threads)
    return made


def _inputs(dev: TokenTable, folder: Path) -> list[Encoding]:
    """Tokenize dev texts, in random order."""
    head = read_head(folder)
    tokenizer = tokens.open_tokenizer(folder / "tokenizer.json", head.max_length, head.stride)
    documents = dev.documents[np.argsort(dev.lengths[dev.documents], kind="stable")]
    chosen = documents[_evenly(len(documents), ARRIVALS)]
    texts = [list(column) for column in zip(*dev.sentences(chosen), strict=True)]
    inputs = split(tokens.encode(tokenizer, texts), head.stride)[0]
    return [inputs[at] for at in np.random.default_rng(0).permutation(len(inputs))]


def _evenly(rows: int, wanted: int) -> Array:
    return np.linspace(0, rows - 1, min(rows, wanted)).astype(int)


def _speeds(backends: Mapping[str, Backend], made: Sequence[_Batch], workers: Executor) -> dict[str, Speed]:
    """Measure all forms on the same batches.

    They take turns with every pass, so that other work on the machine slows all of them alike. Each has computed the
    batches before, because some prepare themselves for a new shape.
    """
    rows = sum(len(ids) for ids, _, _ in made)
    rates: dict[str, list[float]] = {name: [] for name in backends}
    for turn in range(1 + REPEATS):
        for name, backend in backends.items():
            rate = rows / _seconds(backend, made, workers)
            if turn:
                rates[name].append(rate)
    return {
        name: Speed(
            statistics.median(own),
            min(own),
            max(own),
            statistics.median(rate / other for rate, other in zip(own, rates[REFERENCE.name], strict=True)),
        )
        for name, own in rates.items()
    }


def _seconds(backend: Backend, made: Sequence[_Batch], workers: Executor) -> float:
    """Compute batches, and return how long they take."""
    started = time.perf_counter()
    list(workers.map(lambda batch: backend.logits(*batch), made))
    return time.perf_counter() - started
