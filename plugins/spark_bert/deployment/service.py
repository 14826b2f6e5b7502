"""The deployment's service, which answers with the champion."""

from __future__ import annotations

import os
import re

from include.stages import BadInput

#: The variable with the address of the service that answers with the champion. If the deployment does not set it,
#: nobody waits for a service. Experiments cannot name the service, because it belongs to the deployment.
SERVICE = "SPARK_BERT_SERVICE"
#: Seconds after which the service counts as not answering.
TIMEOUT = 10


def service() -> str:
    """Return the address of the service, without a slash at its end; "" if the deployment names none.

    Raises:
        BadInput: if the value is not an address.
    """
    address = os.environ.get(SERVICE, "").rstrip("/")
    if address and not re.fullmatch(r"https?://[!-~]+", address):
        raise BadInput(
            f"{SERVICE}={address!r} is not an address: write one such as http://serve:8000, or nothing if no service "
            "answers with the champion"
        )
    return address
