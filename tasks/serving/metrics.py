"""What the service counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from tasks.serving.waiting import Input, cost

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        histogram, counter = partial(Histogram, registry=registry), partial(Counter, registry=registry)
        times = partial(histogram, buckets=_SECONDS)
        self.seconds = times("spark_bert_request_seconds", "Time to answer a request", ["status"])
        self.waits = times("spark_bert_queue_seconds", "Time until an input goes to the model")
        self.models = times("spark_bert_model_seconds", "Time of a model for a request", ["version"])
        self.rows = histogram("spark_bert_batch_rows", "Inputs per batch", buckets=_ROWS)
        self.lengths = histogram("spark_bert_input_tokens", "Tokens per input", buckets=_TOKENS)
        self.tokens = counter("spark_bert_tokens", "Tokens that the model has computed")
        self.padding = counter("spark_bert_padding_tokens", "Padding among them")
        self.waiting = Gauge("spark_bert_waiting_tokens", "Tokens that wait", registry=registry)
        self.refusals = counter("spark_bert_refusals", "Requests without an answer", ["reason"])
        self.answers = counter("spark_bert_answers", "Answers, one for each text", ["version", "label"])
        self.abstained = counter("spark_bert_abstained", "Texts without a label, because of max_risk", ["version"])
        compared = "Answers of the challenger that are compared with the champion's"
        self.shadows = counter("spark_bert_shadow_answers", compared, ["version", "outcome"])
        self.model = Gauge(
            "spark_bert_model", "1 for the model that answers", ["name", "version", "form"], registry=registry
        )
        self.loads = counter("spark_bert_loads", "Versions that were loaded", ["outcome"])

    def taken(self, batch: Sequence[Input]) -> None:
        """Count a batch that goes to the model."""
        now, lengths = time.perf_counter(), [len(each.encoding) for each in batch]
        self.rows.observe(len(batch))
        self.waiting.dec(sum(cost(each.encoding) for each in batch))
        self.tokens.inc(len(batch) * max(lengths))
        self.padding.inc(len(batch) * max(lengths) - sum(lengths))
        for each, length in zip(batch, lengths, strict=True):
            self.lengths.observe(length)
            self.waits.observe(now - each.request.arrived)

    def answered(self, version: str, answers: Mapping[str, Sequence[Any]], seconds: float) -> None:
        """Count the time of a request, and the labels of its answers. Scores have no labels."""
        self.models.labels(version).observe(seconds)
        for label in chain(answers.get("label", ()), *answers.get("labels", ())):
            (self.abstained.labels(version) if label is None else self.answers.labels(version, label)).inc()

    def success(self, version: str) -> dict[str, int]:
        """Return how many requests a version has computed, and in how many nanoseconds, in Triton's format."""
        name = next(iter(self.models.describe())).name
        count, seconds = (
            self._registry.get_sample_value(f"{name}_{what}", {"version": version}) or 0.0 for what in ("count", "sum")
        )
        return {"count": int(count), "ns": int(1e9 * seconds)}

    def serves(self, name: str, version: str, form: str) -> None:
        """Say which model answers from now on."""
        self.model.clear()
        self.model.labels(name, version, form).set(1)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
