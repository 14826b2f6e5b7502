"""Log the progress of a prediction every few seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

log = logging.getLogger(__name__)


@contextmanager
def progress(done: Callable[[], int], rows: int, seconds: float = 5) -> Iterator[None]:
    """Log the number of predicted rows whenever it has increased, until the block ends.

    Executors report a partition only when it is finished, so the number may stay the same for a while.

    Args:
        done: Returns the number of predicted rows.
        rows: The number of all rows.
        seconds: The interval between two checks.
    """
    ended = Event()

    def report() -> None:
        reported = 0
        while not ended.wait(seconds):
            if (now := done()) != reported:
                log.info("predicted %d of %d rows", now, rows)
                reported = now

    thread = Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
