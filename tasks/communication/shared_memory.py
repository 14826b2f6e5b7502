"""Memory that the ranks of one host share, and the sockets over which they tell each other what they did with it.

Sender and receiver of a message hold the same lock of the kernel, so that what was written into the memory before it is
visible after it, also on processors that reorder writes (aarch64). Nothing outlives the ranks, however they end: the
file in /dev/shm never has a name, and those of sockets are abstract.
"""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import secrets
import select
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing

import torch
from horovod.common.exceptions import HorovodInternalError

from tasks.communication import ranks

log = logging.getLogger(__name__)
FOLDER = "/dev/shm"
#: A rank that writes the best model may be silent as long as Horovod tolerates it; 0 means without a limit.
PATIENCE, SECONDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 120.0
ALIGNMENT = 64  # bytes of a cache line
_REMEDY = (
    ": give the machine or the container a larger one, as docker run does with --shm-size, and "
    'SPARK_BERT_LIMITS=\'{"train": {"shm": "4g"}}\' for the containers that Airflow starts'
)
_TO_MEET = 30.0  # seconds until all ranks of the host have connected
_EVENT, _RANK, _CREDENTIALS = struct.Struct("<Id"), struct.Struct("<I"), struct.Struct("3i")


class Host:
    """The ranks of this host, and the memory that they share. All of them call its methods in the same order."""

    def __init__(self, number: int, mates: Sequence[Mate], memory: mmap.mmap) -> None:
        self.number, self.count = number, len(mates) + 1
        self._mates, self._memory = mates, memory
        self._taken = self._events = 0

    def take(self, elements: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the next part of the memory: zeros, [elements], the same ones on all ranks."""
        start = self._taken
        self._taken += aligned(dtype.itemsize * elements)
        return torch.frombuffer(self._memory, dtype=dtype, count=elements, offset=start)

    def new_event(self) -> int:
        """Return the number of a new event, equal on all ranks."""
        self._events += 1
        return self._events

    def tell(self, event: int, value: float = 0.0) -> None:
        """Tell the other ranks that an event has taken place here, and a number with it."""
        deadline = _deadline()
        for mate in self._mates:  # no rank that tells much waits for another, if all read before they write
            mate.read()
        for mate in self._mates:
            mate.send(_EVENT.pack(event, value), deadline)

    def wait(self, event: int) -> list[float]:
        """Wait for an event of all other ranks; return their values. Raises HorovodInternalError if one is lost."""
        deadline = _deadline()
        return [mate.receive(event, deadline) for mate in self._mates]

    def gather(self, event: int, value: float) -> list[float]:
        """Exchange a number with all ranks of the host; return all of them, in the order of the ranks."""
        self.tell(event, value)
        values = self.wait(event)
        return [*values[: self.number], value, *values[self.number :]]


class Mate:
    """Another rank of this host, and its number among all ranks."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.rank, self._connection = rank, connection
        self._told: defaultdict[int, deque[float]] = defaultdict(deque)
        self._rest, self._ended = b"", False

    def send(self, message: bytes, deadline: float) -> None:
        """Send a short message. If the rank has ended, `receive` reports it."""
        while True:
            try:
                self._connection.send(message)
            except BlockingIOError:
                self._await(select.POLLOUT, deadline)
            except ConnectionError:
                return
            else:
                return

    def receive(self, event: int, deadline: float) -> float:
        """Wait for an event, and return the number that came with it."""
        self.read()
        while not self._told[event]:
            if self._ended:
                raise HorovodInternalError(f"rank {self.rank} has ended")
            self._await(select.POLLIN, deadline)
            self.read()
        return self._told[event].popleft()

    def read(self) -> None:
        """Take in what it has told so far."""
        try:
            while received := self._connection.recv(4096):
                whole = self._rest + received
                end = len(whole) - len(whole) % _EVENT.size
                self._rest = whole[end:]
                for event, value in _EVENT.iter_unpack(whole[:end]):
                    self._told[event].append(value)
            self._ended = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self._ended = True

    def _await(self, readiness: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._connection, readiness)
        left = None if deadline == math.inf else 1000 * max(0.0, deadline - time.monotonic())
        if not poll.poll(left):
            raise HorovodInternalError(f"rank {self.rank} did not answer in time")


def share_memory(size: int, by_host: Sequence[int]) -> Host | None:
    """Let the ranks of each host share `size` bytes; all ranks call it, and get None if any of them cannot."""
    name = secrets.token_bytes(16)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(_address(name))
        listener.listen(max(by_host))
        listener.settimeout(_TO_MEET)
        names = ranks.gather_bytes(name, "shared_memory.names")
        own = next(host for host in ranks.split_by_host(by_host) if ranks.rank() in host)
        host = _meet(size, own, names, listener)
    lacking = ranks.sum_over_ranks([host is None], "shared_memory.lacking") != [0]
    return None if lacking else host


def aligned(size: int) -> int:
    """Return the bytes that `size` bytes take in shared memory."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _meet(size: int, host: range, names: Sequence[bytes], listener: socket.socket) -> Host | None:
    """Connect to all ranks of the host. The first one hands the memory to the others; None if anything fails."""
    with ExitStack() as stack:
        try:
            connections = dict(_connections(host, names, listener, stack))
            memory = _memory(size, list(connections.values()), leads=ranks.rank() == host.start)
        except (OSError, ValueError) as error:
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            log.warning(
                "the %d ranks of this host cannot share %d MB of %s: %s. They exchange gradients through Gloo, which "
                "is slower%s",
                len(host), -(-size // 10**6), FOLDER, error, _REMEDY if full else "",
            )  # fmt: skip
            return None
        if memory is None:
            return None
        stack.pop_all()
        mates = [Mate(rank, connections[rank]) for rank in sorted(connections)]
        return Host(ranks.rank() - host.start, mates, memory)


def _connections(
    host: range, names: Sequence[bytes], listener: socket.socket, stack: ExitStack
) -> Iterator[tuple[int, socket.socket]]:
    own = ranks.rank()
    for rank in range(host.start, own):
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(_TO_MEET)
        connection.connect(_address(names[rank]))
        connection.sendall(_RANK.pack(own))
        yield rank, connection
    expected = set(range(own + 1, host.stop))
    while expected:
        connection = stack.enter_context(listener.accept()[0])
        connection.settimeout(_TO_MEET)
        _, user, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.getuid():  # the names of sockets can be seen by every user of the machine
            continue
        message = connection.recv(_RANK.size, socket.MSG_WAITALL)
        if len(message) == _RANK.size and (rank := _RANK.unpack(message)[0]) in expected:
            expected.remove(rank)
            yield rank, connection


def _memory(size: int, connections: Sequence[socket.socket], leads: bool) -> mmap.mmap | None:
    """Return the memory that the host's first rank has made; None if it could not, and has said so."""
    if leads:
        file = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(file, 0, size)  # an access to what does not fit would be a SIGBUS
            for connection in connections:
                socket.send_fds(connection, [b"m"], [file])
            return mmap.mmap(file, size)
        finally:
            os.close(file)
    _, files, _, _ = socket.recv_fds(connections[0], 1, 1)
    if not files:
        return None
    try:
        return mmap.mmap(files[0], size)
    finally:
        os.close(files[0])


def _address(name: bytes) -> bytes:
    return b"\0spark-bert-" + name.hex().encode()


def _deadline() -> float:
    return time.monotonic() + (float(os.environ.get(PATIENCE, SECONDS)) or math.inf)
