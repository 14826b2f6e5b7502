"""Where and how stages run, and how long what they have made is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.sections.base import Section


class Runtime(Section):
    """Where and how stages run. These fields do not change any artifact."""

    spark_master: str = Field(
        "local[*]",
        pattern=r"^(local(\[.+\])?|spark://.+|yarn|k8s://.+)$",
        description="The URL of the Spark master, for example local[4] or spark://host:7077.",
    )
    ranks_on: Literal["local", "spark"] = Field(
        "local",
        description="Where the ranks of a training run. local: on the machine of the stage; spark: in the executors of "
        "spark_master, one rank per Spark task. The executors need the artifacts and the cache under the same paths.",
    )
    checkpoint_steps: int = Field(
        500, ge=0, description="Number of training steps between two checkpoints. 0 turns checkpoints off."
    )
    lost_rank: Literal["fail", "restart", "shrink"] = Field(
        "fail",
        description="What happens when a rank is lost. fail: the stage fails, and the next try resumes from the last "
        "checkpoint; restart: training resumes at once with the same number of ranks; shrink: training resumes at once "
        "with the remaining ranks. After three losses without a new checkpoint in between, the stage fails.",
    )
    download: bool = Field(
        False,
        description="Let stages download missing models and data. Otherwise download them beforehand with `make "
        "fetch`.",
    )
    profile: Literal["none", "torch", "horovod"] = Field(
        "none",
        description="Record a few steps in the middle of each training in a file that Perfetto opens, in profiles/ of "
        "the run's folder. torch: the operations of rank 0; horovod: how long gradients wait and travel between ranks.",
    )
    full_check: bool = Field(
        False,
        description="Compare the sha256 of every artifact and every bundled model or corpus that a stage reads. "
        "Otherwise files with rows, of validate and preprocess, and bundled files are considered unchanged if their "
        "size and modification time are the same as when they were last compared, or committed.",
    )


class Retention(Section):
    """What the stage `prune` regards as unused, and whether it removes it. No other stage reads this section."""

    days: int = Field(
        30,
        ge=7,
        description="Number of days without use after which something is removed. The minimum of 7 days is longer than "
        "any run.",
    )
    remove: bool = Field(False, description="Remove what is unused. Otherwise it is only listed.")
