"""The ranks of a training, and where stages run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from include.fields.base import Fraction, PositiveShare, Section, Share

_Parts = Annotated[int, Field(ge=1, le=64)]


class Communication(Section):
    """How ranks exchange gradients and parameters."""

    strategy: Literal["all-reduce", "hierarchical", "parameter-server"] = Field(
        "all-reduce",
        description="How gradients are synchronized. all-reduce: every rank receives the sum of all gradients and "
        "updates all parameters; hierarchical: gradients are summed within each host first, and then exchanged "
        "between hosts, where compression applies; parameter-server: the parameters are sharded, and every rank "
        "updates its shard and sends it to the others.",
    )
    compression: Literal["none", "fp16", "int8", "int4", "onebit", "topk", "powersgd"] = Field(
        "none",
        description="Compression of the gradients of weight matrices, with error feedback. It saves time only if the "
        "network is slower than the loopback interface. Not for strategy parameter-server.",
    )
    compression_start: Share = Field(0.1, description="Share of the training steps before compression starts.")
    topk_share: PositiveShare = Field(0.01, description="Share of the gradient that is sent. For compression topk.")
    powersgd_rank: int = Field(4, ge=1, le=256, description="Rank of the approximation. For compression powersgd.")
    server_momentum: Fraction = Field(
        0.0,
        description="Momentum that the parameter server adds to the gradients; the Spark-BERT paper uses 0.9. 0: none. "
        "For strategy parameter-server.",
    )
    server_parameters: Literal["fp32", "fp16"] = Field(
        "fp32", description="Precision in which a parameter server sends parameters. It keeps them in fp32."
    )
    staleness: Literal[0, 1] = Field(
        0, description="Number of steps by which a parameter server's parameters may be out of date for a gradient."
    )


class Parallel(Section):
    """How ranks divide a model that is too large for one of them. On CPUs, this takes longer."""

    tensor: _Parts = Field(1, description="Number of ranks that divide each layer, by attention heads and features.")
    pipeline: _Parts = Field(1, description="Number of stages, one per rank, into which the layers are divided.")
    shard: int = Field(
        1,
        ge=1,
        le=1024,
        description="Number of ranks that each keep a part of weights, gradients and moments (FSDP2), and gather the "
        "weights of a layer when they compute it, each for other rows.",
    )
    micro_batches: int = Field(
        4, ge=1, le=1024, description="Number of micro-batches of a step in the pipeline, at least as many as stages."
    )

    @property
    def ranks(self) -> int:
        """The number of ranks that share one copy of the model."""
        return self.tensor * self.pipeline * self.shard

    @property
    def same_rows(self) -> int:
        """The number of ranks that compute the same rows."""
        return self.tensor * self.pipeline


class Runtime(Section):
    """Where and how stages run. These fields do not change any artifact."""

    spark_master: str = Field(
        "local[*]",
        pattern=r"^(local(\[.+\])?|spark://.+|yarn|k8s://.+)$",
        description="The URL of the Spark master, for example local[4] or spark://host:7077.",
    )
    engine: Literal["auto", "process", "spark"] = Field(
        "auto",
        description="What validate, preprocess, teach, predict, and score work on rows with. process: the process of "
        "the stage; spark: the executors of spark_master; auto: Spark from about 1,000,000 rows on, and in teach, "
        "predict, and score from 4,000 on, otherwise the process of the stage.",
    )
    ranks_on: Literal["local", "spark"] = Field(
        "local",
        description="Where the ranks of a training run. local: on the machine of the stage; spark: in the executors of "
        "spark_master, one rank per Spark task. Executors need the artifacts and the cache under the same paths, or "
        "the deployment's SPARK_BERT_STAGING.",
    )
    checkpoint_steps: int = Field(500, ge=0, description="Number of training steps between two checkpoints. 0: none.")
    lost_rank: Literal["fail", "restart", "shrink"] = Field(
        "fail",
        description="What happens when a rank is lost. fail: the stage fails, and the next try resumes from the last "
        "checkpoint; restart: training resumes at once with the same number of ranks; shrink: with the remaining "
        "ranks. After three losses without a new checkpoint in between, the stage fails.",
    )
    download: bool = Field(False, description="Let stages download missing models and data. Else, run `make fetch`.")
    profile: Literal["none", "torch", "horovod"] = Field(
        "none",
        description="Record a few steps in the middle of each training in a file that Perfetto opens, in profiles/ of "
        "the run's folder. torch: the operations of rank 0; horovod: how long gradients wait and travel between ranks.",
    )
    full_check: bool = Field(
        False,
        description="Compare the sha256 of every artifact and every bundled model or corpus that a stage reads. "
        "Otherwise artifacts of validate and preprocess and bundled files are considered unchanged if their size and "
        "modification time are.",
    )
