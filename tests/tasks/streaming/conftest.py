"""What the tests of the sources share: brokers, and an environment without the secrets of whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from include.secrets import KAFKA_VARIABLE, VARIABLE
from tests.tasks.streaming.brokers import Brokers


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (VARIABLE, KAFKA_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    cluster = Brokers()
    yield cluster
    cluster.close()
