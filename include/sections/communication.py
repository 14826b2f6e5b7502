"""The exchange of gradients and parameters between ranks."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from include.sections.base import Section, Share


class Communication(Section):
    """How ranks exchange gradients and parameters."""

    strategy: Literal["all-reduce", "hierarchical", "parameter-server"] = Field(
        "all-reduce",
        description="How gradients are synchronized. all-reduce: every rank receives the sum of all gradients and "
        "updates all parameters; hierarchical: gradients are summed within each host first, and then exchanged "
        "between hosts, compressed if compression is set; parameter-server: the parameters are sharded, and every rank "
        "updates its shard and sends it to the others.",
    )
    compression: Literal["none", "fp16", "int8", "int4", "onebit", "topk", "powersgd"] = Field(
        "none",
        description="Compression of the gradients of weight matrices, with error feedback. It saves time only when the "
        "network is slower than the loopback interface. Not available with the strategy parameter-server.",
    )
    compression_start: Share = Field(
        0.1, description="Share of the training steps that run before compression starts, between 0 and 1."
    )
    topk_share: float = Field(
        0.01,
        gt=0,
        le=1,
        description="Share of the gradient's elements that is sent. Applies only if compression is topk.",
    )
    powersgd_rank: int = Field(
        4, ge=1, le=256, description="Rank of the low-rank approximation. Applies only if compression is powersgd."
    )
    server_momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Momentum that the parameter server adds to the gradients; the Spark-BERT paper uses 0.9. 0 turns "
        "it off. Applies only if strategy is parameter-server.",
    )
    server_parameters: Literal["fp32", "fp16"] = Field(
        "fp32",
        description="Precision in which parameters are sent back to the ranks. The servers keep them in fp32. Applies "
        "only if strategy is parameter-server.",
    )
    staleness: Literal[0, 1] = Field(
        0,
        description="Number of steps by which the parameters may be out of date when a gradient is computed. "
        "Applies only if strategy is parameter-server.",
    )

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        if self.strategy == "parameter-server" and self.compression != "none":
            raise ValueError(
                f"compression {self.compression} works only with the strategies all-reduce and hierarchical: write "
                "compression: none, or server_parameters: fp16"
            )
        if self.strategy != "parameter-server" and (
            self.server_momentum or self.staleness or self.server_parameters != "fp32"
        ):
            raise ValueError(
                "server_momentum, server_parameters and staleness work only with strategy: parameter-server: remove "
                "them, or write that strategy"
            )
        return self
