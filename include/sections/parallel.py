"""How the ranks of a training divide a model that is too large for one of them."""

from __future__ import annotations

from pydantic import Field

from include.sections.base import Section


class Parallel(Section):
    """How ranks divide the model among themselves. It saves memory; on CPUs it takes longer."""

    tensor: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of ranks that divide the matrices of each layer, by attention heads and by features of the "
        "feed-forward network.",
    )
    pipeline: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of stages, on a rank each, into which the layers are divided. A step's rows go through "
        "them in micro-batches.",
    )
    shard: int = Field(
        1,
        ge=1,
        le=1024,
        description="Number of ranks that each keep a part of weights, gradients, and moments (FSDP2), and gather the "
        "weights of a layer when they compute it. Each of them computes other rows.",
    )
    micro_batches: int = Field(
        4,
        ge=1,
        le=1024,
        description="Number of micro-batches into which the rows of a step are divided, at least as many as stages. "
        "Applies only if pipeline is not 1.",
    )

    @property
    def ranks(self) -> int:
        """The number of ranks that share one copy of the model."""
        return self.tensor * self.pipeline * self.shard

    @property
    def same_rows(self) -> int:
        """The number of ranks that compute the same rows."""
        return self.tensor * self.pipeline
