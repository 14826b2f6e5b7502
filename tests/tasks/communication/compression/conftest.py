from __future__ import annotations

from collections.abc import Iterator

import horovod.torch as hvd
import pytest


@pytest.fixture(autouse=True, scope="module")
def horovod() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()
