"""Counting a training: mean loss, rows a second, the share of padding, bytes on the wire, memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from tasks.communication.compression.base import State
from tasks.communication.exchange import Kind
from tasks.communication.link import sum_over_ranks
from tasks.encoder.batching import Batch
from tasks.training.sampler import Share


class Meter:
    """Sums since the last reading and since the start. A reading sums over the ranks, so all read at once.

    Attributes:
        bytes: that this rank has received, by kind, from the start up to the last reading.
    """

    def __init__(self, sent: Callable[[], dict[Kind, int]]) -> None:
        """sent: the bytes so far of the exchange, which a resume begins anew."""
        self._sent = sent
        self._sent_before: dict[str, int] = dict.fromkeys(sent(), 0)  # by processes that this one goes on from
        self.bytes = self._sent_before
        self._rows = 0
        self._seconds = self._tokens = self._places = 0.0
        self._clock = time.monotonic()
        self._recent: list[tuple[torch.Tensor, int, int]] = []
        self._recent_rows: list[int] = []
        self._last: dict[str, float] = {}

    def count(self, batch: Batch, loss: torch.Tensor) -> None:
        """Count what went through the model. The loss is this part of the whole batch's mean."""
        self._recent.append((loss.detach(), int(batch.attention_mask.sum()), batch.places))

    def end_step(self, share: Share, norm: float, rate: float) -> None:
        """Count the step whose parts these were."""
        self._recent_rows.append(share.rows)
        self._last = {"learning_rate": rate, "grad_norm": norm}

    def read(self) -> dict[str, float]:
        """Mean loss, speed, padding and bytes a step since the last reading; the last step's rate and norm."""
        losses, tokens, places = zip(*self._recent, strict=True)
        own = [float(torch.stack(losses).double().sum()), float(sum(tokens)), float(sum(places))]
        loss, all_tokens, all_places = sum_over_ranks(own, "meter")
        seconds = time.monotonic() - self._clock
        rows, steps = sum(self._recent_rows), len(self._recent_rows)
        self._rows += rows
        self._seconds += seconds
        self._tokens += all_tokens
        self._places += all_places
        self._recent, self._recent_rows, self._clock = [], [], time.monotonic()
        speed = {"rows_per_second": round(rows / seconds, 1), "padding_share": _padding(all_tokens, all_places)}
        return {"loss": loss / steps, **self._last, **speed, **self._read_bytes(steps)}

    def totals(self) -> dict[str, float]:
        """The sums since the start, up to the last reading, for a checkpoint; equal on all ranks, but for the time."""
        sums = {"rows": self._rows, "seconds": self._seconds, "tokens": self._tokens, "places": self._places}
        return {**sums, **{f"bytes_{kind}": count for kind, count in self.bytes.items()}}

    def load_totals(self, totals: dict[str, float]) -> None:
        """Take over what totals gave."""
        self._rows, self._seconds = int(totals["rows"]), totals["seconds"]
        self._tokens, self._places = totals["tokens"], totals["places"]
        self.bytes = self._sent_before = {kind: int(totals[f"bytes_{kind}"]) for kind in self.bytes}

    def state(self) -> State:
        """What this rank counted since the last reading, for a checkpoint."""
        losses = [loss for loss, _, _ in self._recent]
        return {
            "losses": torch.stack(losses) if losses else torch.zeros(0),
            "counts": torch.tensor([counts for _, *counts in self._recent]).view(-1, 2),
            "rows": torch.tensor(self._recent_rows, dtype=torch.int64),
            "bytes": torch.tensor(list(self._sent_so_far().values())),
        }

    def load(self, state: State) -> None:
        """Take over what state gave."""
        counts = zip(state["losses"], state["counts"].tolist(), strict=True)
        self._recent = [(loss, tokens, places) for loss, (tokens, places) in counts]
        self._recent_rows = state["rows"].tolist()
        self._sent_before = dict(zip(self.bytes, state["bytes"].tolist(), strict=True))

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

    def _read_bytes(self, steps: int) -> dict[str, float]:
        last, self.bytes = self.bytes, self._sent_so_far()
        return {f"bytes_{kind}": round((count - last[kind]) / steps) for kind, count in self.bytes.items()}

    def _sent_so_far(self) -> dict[str, int]:
        return {kind: self._sent_before[kind] + count for kind, count in self._sent().items()}


def _padding(tokens: float, places: float) -> float:
    return round(1 - tokens / places, 4)


def memory(device: torch.device) -> int:
    """The most memory that this rank has held, in bytes: resident on a CPU, allocated on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def memory_use(device: torch.device) -> dict[str, int]:
    """memory, and on a GPU memory_reserved: the most that torch has taken from it, in bytes."""
    reserved = {"memory_reserved": torch.cuda.max_memory_reserved(device)} if device.type == "cuda" else {}
    return {"memory": memory(device), **reserved}
