"""All-reduce: all ranks sum all gradients in buckets, sent during the backward pass, and update all weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence

import horovod.torch as hvd
import torch

from include.fields.ranks import Communication
from tasks.communication.compression import compressor
from tasks.communication.compression.base import Compressor, Uncompressed
from tasks.communication.exchange import Exchange, GradientBuffer, Owned, by_kind, group_by_size, total_norm
from tasks.communication.hosts import GlooInside, HostFirst, Hosts, SharedSum, SharedWeights, room
from tasks.communication.layout import flat
from tasks.communication.link import Link
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.rows import HostRowsFirst, SharedRows, SparseRows, rows_room
from tasks.communication.shared_memory import Host, aligned
from tasks.communication.state import State, prefixed
from tasks.encoder.models import EncoderWithHead

log = logging.getLogger(__name__)


class AllReduce(Exchange):
    """Sums gradients over the ranks: those of word embeddings by rows, those of matrices compressed, others in fp32."""

    def __init__(
        self,
        model: EncoderWithHead,
        settings: Communication | None,  # how matrices are compressed; None: not at all
        first_compressed: int,  # the first step with compression, counted from 1
        hosts: Hosts | None = None,  # which ranks sum among themselves first; None: all are treated alike
        host: Host | None = None,  # this one, whose ranks share memory (shared_bytes); None: they use Gloo
        copies: Collection[str] = (),  # weights, by name, of which copies in bf16 are kept
    ) -> None:
        super().__init__(model)
        self._layout = flat()
        if hosts and hosts.count == 1:
            if settings and settings.compression != "none" and self._layout.leads:
                log.warning("all ranks share one host, so nothing is compressed: write strategy: all-reduce")
            settings = None  # without a slow link compression only costs time
        self._first_compressed, self._hosts, self._host = first_compressed, hosts, host
        ranks, kinds = hosts.across if hosts else hvd.global_process_set, by_kind(model)
        self._links = {kind: Link(ranks) for kind in kinds}
        self._rows = {
            p: _sparse_rows(f"rows.{name}", p, self._links["embeddings"], hosts, host)
            for name, p in kinds["embeddings"].items()
        }
        # A request to stop is summed like a gradient, so that all ranks stop after the same step.
        self._stop_request = torch.zeros(1, device=model.device)
        rest = [*kinds["rest"].values(), self._stop_request]
        self._rest = Bucket("rest", rest, self._links["rest"], None, hosts, host)
        self._matrices = [
            Bucket(f"matrices.{number}", group, self._links["matrices"], settings, hosts, host)
            for number, group in enumerate(group_by_size(kinds["matrices"].values()))
        ]
        self._buckets = (*self._matrices, self._rest)
        if host:
            names = {parameter: name for name, parameter in self.parameters.items()}
            self.owned = {name: one for bucket in self._buckets for name, one in bucket.share(names, host).items()}
            self._updated, self._summed = host.new_event(), host.new_event()
        self._keep_copies(copies, host)
        self._updating = False
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.gradients.parameters}
        for parameter in self.parameters.values():
            parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]

    def begin_step(self, step: int, loss_scale: float, stop: bool) -> None:
        """Wait for the weights, and choose the compressor of the matrices for this step."""
        self.receive_parameters()
        super().begin_step(step, loss_scale, stop)
        self._stop_request.grad = torch.full_like(self._stop_request, float(stop))
        for bucket in self._matrices:
            bucket.choose(compressed=step >= self._first_compressed)

    def synchronize_gradients(self) -> bool:
        """Send the remaining gradients, and wait for all sums."""
        self._send(self._stop_request)
        for bucket in self._buckets:
            bucket.gradients.complete(1 / self.loss_scale)
        for bucket in self._buckets:
            bucket.compressor.proceed()
        for rows in self._rows.values():
            rows.proceed()
        for bucket in self._buckets:
            bucket.receive()
        for parameter, rows in self._rows.items():
            parameter.grad = rows.finish()
        if self._host:
            self._norm = self._norm_of_all(self._host)  # after it, all parts are summed
        assert self._stop_request.grad is not None
        return bool(self._stop_request.grad > 0)

    def send_parameters(self) -> None:
        """Tell the ranks of the host that this rank's part of the weights is updated."""
        if self._host:
            self._host.tell(self._updated)
            self._updating = True

    def receive_parameters(self) -> None:
        """Wait until the other ranks have updated their parts of the weights."""
        if self._host and self._updating:
            self._host.wait(self._updated)
            self._updating = False

    def discard_step(self) -> None:
        """Restore the compressors' state."""
        self.send_parameters()  # no weight has changed, but the ranks wait for it before they overwrite gradients
        for bucket in self._matrices:
            bucket.compressor.discard_step()

    def state_dict(self) -> State:
        """Return the state of the compressors, as <bucket>.<name>. The weights may also be read after this."""
        self.receive_parameters()
        state: State = {}
        for bucket in self._matrices:
            state |= prefixed(bucket.name, bucket.packed.state_dict())
        return state

    def load_state_dict(self, state: State) -> None:
        """Replace the state of the compressors. The weights must have been replaced before."""
        super().load_state_dict(state)
        for bucket in self._matrices:
            bucket.packed.load_state_dict({key: state[f"{bucket.name}.{key}"] for key in bucket.packed.state_dict()})

    def redistribute(self, states: Sequence[State]) -> State:
        """Give rank r of M new ranks the sum of the residuals of the old ranks r, r + M, ..., so that none is lost."""
        own, before = self.state_dict(), states[0]
        if self._layout.leads:
            self.warn_of_changes(own, before)
        number, count = self._layout.rank, self._layout.world
        if self._hosts:
            number, count = self._hosts.number, self._hosts.count
        mine = states[number::count] if self._hosts is None or self._hosts.is_leader else []
        total = {key: sum((state[key] for state in mine), torch.zeros_like(value)) for key, value in before.items()}
        kept = {key: total[key] if key.endswith(".residual") else before[key] for key in own.keys() & before.keys()}
        return own | kept

    def _norm_of_all(self, host: Host) -> float:
        """Return the norm over the pieces of this host's ranks, and over the rows, which all of them have."""
        square = float(total_norm({name: one.piece for name, one in self.owned.items()})) ** 2
        if host.number == 0 and self._rows:
            square += float(total_norm({name: p for name, p in self.parameters.items() if p in self._rows})) ** 2
        total = sum(host.gather(self._summed, square))
        if self._hosts and self._hosts.count > 1:  # hosts may round differently, and their weights must not drift apart
            total = sum_over_ranks([total], "norm")[0] / self._layout.world
        return math.sqrt(total)

    def _send(self, parameter: torch.Tensor) -> None:
        if not self._sending or parameter.grad is None:
            return
        if parameter in self._rows:
            self._rows[parameter].start(parameter.grad / self.loss_scale)
        else:
            self._bucket_of[parameter].gradients.add(parameter, 1 / self.loss_scale)


def shared_bytes(model: EncoderWithHead, count: int, copies: Collection[str] = ()) -> int:
    """Return the memory that `count` ranks of a host share, in bytes, with bf16 copies of these weights."""
    kinds = by_kind(model)
    copied = sum(p.numel() for kind in kinds.values() for name, p in kind.items() if name in copies)
    groups = [list(kinds["rest"].values()), *group_by_size(kinds["matrices"].values())]
    buckets = sum(room(sum(p.numel() for p in group) + 1, count) for group in groups)  # one for the request to stop
    return buckets + aligned(2 * copied) + sum(rows_room(p.shape[1], count) for p in kinds["embeddings"].values())


class Bucket:
    """Parameters whose gradients are sent together; `packed` is the settings' compressor, `compressor` the step's."""

    def __init__(
        self,
        name: str,
        parameters: list[torch.Tensor],
        link: Link,
        settings: Communication | None = None,
        hosts: Hosts | None = None,
        host: Host | None = None,
    ) -> None:
        self.name = name
        shapes, device = [parameter.shape for parameter in parameters], parameters[0].device
        shared = SharedSum(f"{name}.shared", shapes, link if hosts is None else Link(), device, host) if host else None
        plain: Compressor = Uncompressed(f"{name}.plain", shapes, link, device)
        packed = compressor(settings, name, shapes, link, device) if settings else plain
        if shared and (hosts is None or hosts.count == 1):
            plain = packed = shared
        elif hosts:
            inside = shared or GlooInside(name, shapes, hosts, device)
            plain, packed = HostFirst(plain, inside, hosts), HostFirst(packed, inside, hosts)
        self._plain, self.packed, self.compressor, self._shared = plain, packed, plain, shared
        flat = shared.own if shared else None
        self.gradients = GradientBuffer(parameters, lambda gradient: self.compressor.start(gradient), flat=flat)
        self._weights: SharedWeights | None = None
        self._in_pieces: frozenset[torch.Tensor] = frozenset()

    def share(self, names: Mapping[torch.Tensor, str], host: Host) -> Mapping[str, Owned]:
        """Keep the parameters that have names in shared memory; return them by name."""
        assert self._shared
        named = {names[parameter]: parameter for parameter in self.gradients.parameters if parameter in names}
        self._weights = SharedWeights(named, self._shared, host)
        self._in_pieces = frozenset(named.values())
        return self._weights.owned

    def choose(self, compressed: bool) -> None:
        """Choose the compressor of this step."""
        self.compressor = self.packed if compressed else self._plain

    def receive(self) -> None:
        """Replace the parameters' gradients by their sums, even where this rank had none: another one may have."""
        total = self.compressor.finish()
        if self._weights:
            self._weights.receive()
        for parameter, gradient in self.gradients.views(total).items():
            if parameter not in self._in_pieces:
                parameter.grad = gradient


def _sparse_rows(name: str, parameter: torch.Tensor, link: Link, hosts: Hosts | None, host: Host | None) -> SparseRows:
    shape, device = parameter.shape, parameter.device
    if host and (hosts is None or hosts.count == 1):
        return SharedRows(name, shape, Link() if hosts else link, device, host)
    return HostRowsFirst(name, shape, hosts, link, device, host) if hosts else SparseRows(name, shape, link, device)
