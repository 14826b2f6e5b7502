"""A line in the log every few seconds in which Spark finished a partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

log = logging.getLogger(__name__)


@contextmanager
def progress(done: Callable[[], int], rows: int, seconds: float = 5) -> Iterator[None]:
    """Log how many rows are done whenever there are more, until the block ends.

    Executors report a partition when it is finished, so the number stays the same for a while.
    """
    ended = Event()

    def tell() -> None:
        told = 0
        while not ended.wait(seconds):
            if (now := done()) != told:
                log.info("predicted %d of %d rows", now, rows)
                told = now

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
