"""What clients share: the tokens that wait, and the bytes of bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Shares:
    """An amount of which every client that uses it has an equal share, once half of it is taken.

    A request may take no more than half of what is left of its client's share, so that a client's large requests always
    leave room for its small ones. What a client has taken before others came stays its own, so together they may have
    a little more than the total.

    Args:
        total: the amount.

    Attributes:
        taken: how much of it is taken.
    """

    def __init__(self, total: int) -> None:
        self.largest, self.taken = total // 2, 0
        self._total = total
        self._of: dict[str, int] = {}

    def of(self, client: str) -> int:
        """Return how much a client has."""
        return self._of.get(client, 0)

    def others(self, client: str) -> int:
        """Return how many other clients have something."""
        return len(self._of) - (client in self._of)

    def has_room(self, client: str, amount: int) -> bool:
        """Whether a client may take so much more."""
        if 2 * (self.taken + amount) <= self._total:
            return True
        share = self._total // (self.others(client) + 1)
        return 2 * amount <= share - self.of(client)

    def take(self, client: str, amount: int) -> None:
        """Let a client have so much more; a negative amount is given back."""
        self.taken += amount
        self._of[client] = self.of(client) + amount
        if not self._of[client]:
            del self._of[client]

    @contextmanager
    def held(self, client: str, amount: int) -> Iterator[None]:
        """Let a client have so much more within the block."""
        self.take(client, amount)
        try:
            yield
        finally:
            self.take(client, -amount)
