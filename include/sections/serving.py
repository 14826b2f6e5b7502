"""The service that answers over HTTP."""

from __future__ import annotations

from pydantic import Field

from include.sections.base import Section, Share


class Serving(Section):
    """The service of `make serve`. The pipeline does not read this section."""

    model: str = Field(
        "",
        description="The folder of a package, such as work/artifacts/package/KEY. If it is empty, the service answers "
        "with the champion, and with each new one as soon as there is one.",
    )
    host: str = Field("127.0.0.1", description="The address that the service listens on.")
    port: int = Field(8000, ge=0, le=65535, description="The port that it listens on; 0 for any that is free.")
    threads: int = Field(0, ge=0, description="Number of CPU threads of the model; 0 for one per core.")
    batch_tokens: int = Field(
        512, ge=64, le=2**20, description="Maximum number of tokens that are computed together, including padding."
    )
    queue_tokens: int = Field(
        131072,
        ge=512,
        description="Maximum number of tokens that wait for the model. All clients that have something waiting have "
        "equal shares of it, and a request may take half of what is left of its client's share. Beyond it, requests "
        "are refused with 429.",
    )
    max_rows: int = Field(1000, ge=1, description="Maximum number of texts per request.")
    max_bytes: int = Field(1_000_000, ge=1000, description="Maximum size of a request's body in bytes.")
    deadline: float = Field(10, gt=0, description="Seconds for a request, its body included. Then it is given up.")
    shadow: Share = Field(
        0,
        description="The share of requests, chosen at random, that the challenger computes too. Its answers are "
        "compared, not given.",
    )
    canary: Share = Field(
        0, description="The share of requests that the challenger answers instead of the champion, chosen by their id."
    )
    poll: float = Field(2, gt=0, description="Seconds between two looks at the aliases champion and challenger.")
