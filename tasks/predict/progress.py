"""A line in the log every few seconds while Spark works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

log = logging.getLogger(__name__)


@contextmanager
def progress(done: Callable[[], int], rows: int, seconds: float = 5) -> Iterator[None]:
    """Log how many rows are done, until the block ends. Executors report a partition when it is finished."""
    ended = Event()

    def tell() -> None:
        while not ended.wait(seconds):
            log.info("predicted %d of %d rows", done(), rows)

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
