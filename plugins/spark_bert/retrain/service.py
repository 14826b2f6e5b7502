"""The deployment's service, which answers with the champion, and the waiting for its answers."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from include.stages import BadInput

if TYPE_CHECKING:
    from httpx import AsyncClient

#: The variable with the address of the service that answers with the champion. Experiments cannot name the service,
#: because it belongs to the deployment.
SERVICE = "SPARK_BERT_SERVICE"
_TIMEOUT = 10  # seconds after which the service counts as not answering


def service() -> str:
    """Return the address of the service, without a slash at its end; "" if the deployment names none."""
    address = os.environ.get(SERVICE, "").rstrip("/")
    if address and not re.fullmatch(r"https?://[!-~]+", address):
        raise BadInput(
            f"{SERVICE}={address!r} is not an address: write one such as http://serve:8000, or nothing if no service "
            "answers with the champion"
        )
    return address


class ServiceTrigger(BaseTrigger):
    """Asks the service until there is an event, or the time is over.

    The time starts again after a restart of the triggerer, because the service may have been restarted with it.
    """

    def __init__(self, service: str, minutes: float, interval: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.service, self.minutes, self.interval = service, minutes, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer creates the trigger."""
        cls = type(self)
        names = inspect.signature(cls).parameters
        return f"{cls.__module__}.{cls.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask at least once, and yield the event."""
        from httpx import AsyncClient  # only the triggerer needs it, and it would slow down the parsing of Dags

        end = time.monotonic() + 60 * self.minutes
        async with AsyncClient(timeout=_TIMEOUT) as client:
            while (event := await self.ask(client, time.monotonic() >= end)) is None:
                await asyncio.sleep(self.interval)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def ask(self, client: AsyncClient, is_over: bool) -> dict[str, Any] | None:
        """Return the event, or None to ask again. If the time is over, this is the last question."""
        raise NotImplementedError
