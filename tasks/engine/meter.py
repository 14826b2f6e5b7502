"""Counting a training: mean loss, rows a second, the share of padding, memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.encoder.batching import Batch
from tasks.engine.communicate import sum_over_ranks
from tasks.engine.data import Share


class Meter:
    """Sums since the last reading and since the start. A reading sums over the ranks, so all read at once."""

    def __init__(self) -> None:
        self._rows = 0
        self._seconds = self._tokens = self._places = 0.0
        self._clock = time.monotonic()
        self._recent: list[tuple[torch.Tensor, int, int, int]] = []
        self._last: dict[str, float] = {}

    def count(self, share: Share, batch: Batch, loss: torch.Tensor, norm: float, rate: float) -> None:
        """Count a step. The loss is the rank's part of the batch's mean."""
        mask = batch.attention_mask
        self._recent.append((loss.detach(), share.rows, int(mask.sum()), mask.numel()))
        self._last = {"learning_rate": rate, "grad_norm": norm}

    def read(self) -> dict[str, float]:
        """Mean loss, speed and padding since the last reading; learning rate and gradient norm of the last step."""
        losses, rows, tokens, places = zip(*self._recent, strict=True)
        own = [float(torch.stack(losses).double().sum()), float(sum(tokens)), float(sum(places))]
        loss, all_tokens, all_places = sum_over_ranks(own, "meter")
        seconds = time.monotonic() - self._clock
        self._rows += sum(rows)
        self._seconds += seconds
        self._tokens += all_tokens
        self._places += all_places
        self._recent, self._clock = [], time.monotonic()
        speed = {"rows_per_second": round(sum(rows) / seconds, 1), "padding_share": _padding(all_tokens, all_places)}
        return {"loss": loss / len(losses), **self._last, **speed}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens in here takes no training time."""
        started = time.monotonic()
        yield
        self._clock += time.monotonic() - started

    def summary(self) -> dict[str, float]:
        """Speed and padding of the whole training, up to the last reading."""
        return {
            "rows_per_second": round(self._rows / self._seconds, 1),
            "padding_share": _padding(self._tokens, self._places),
            "seconds": round(self._seconds, 1),
        }


def _padding(tokens: float, places: float) -> float:
    return round(1 - tokens / places, 4)


def memory(device: torch.device) -> int:
    """The most memory that this rank has held, in bytes: resident on a CPU, allocated on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
