"""Training again on new data: the dataset that grows, the comparison with the champion, and what is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.fields.base import Fraction, Section, Share


class Dataset(Section):
    """A dataset to which files of a drop folder are added. docs/RETRAIN.md has the measurements behind the limits."""

    name: str = Field("", pattern="^[A-Za-z0-9_-]*$", description="Name of the dataset. If empty, that of the task.")
    drop: str = Field("", description="The folder into which new files (CSV, TSV, JSON Lines or Parquet) are put.")
    drift_rows: int = Field(100, ge=1, description="Smallest number of new rows to reject for drift.")
    max_label_drift: Share = Field(
        0.2,
        description="Largest accepted change of the label distribution, between 0 and 1. For classes it is the total "
        "variation distance, which is half the sum of the absolute changes; for multi-label the largest change of the "
        "share of rows that have a label; for scores the Kolmogorov-Smirnov distance.",
    )
    max_length_drift: Share = Field(
        0.25, description="Largest accepted Kolmogorov-Smirnov distance of text lengths in words, between 0 and 1."
    )
    max_vocabulary_drift: Share = Field(
        0.15, description="Largest accepted share of words in new rows that the latest training rows do not have."
    )


class Retraining(Section):
    """Training on new data and the promotion to champion. Only the Dag `retrain` uses this section."""

    start: Literal["encoder", "champion"] = Field(
        "encoder",
        description="The weights that training starts from. encoder: the pretrained encoder model.name; champion: the "
        "current champion, if there is one.",
    )
    margin: Fraction = Field(
        0.02,
        description="Largest accepted decline in quality from the champion on the same dev rows, in accuracy for "
        "classes, and in the task's metric for multi-label and scores.",
    )
    slice_margin: Fraction = Field(
        0.1, description="Largest accepted decline in quality on every slice of the dev rows, measured like margin."
    )
    max_latency: float = Field(
        0, ge=0, description="Largest accepted median latency in milliseconds per row on one CPU thread. 0: no limit."
    )
    max_size: float = Field(0, ge=0, description="Largest accepted size of the model in megabytes. 0: no limit.")
    trial_texts: int = Field(
        0,
        ge=0,
        description="Number of texts that the deployment's service answers with both the new version and the champion "
        "before the decision. It needs serving.shadow. 0: no trial.",
    )
    trial_minutes: float = Field(60, gt=0, le=1440, description="Minutes after which the trial ends at the latest.")
    min_agreement: Share = Field(
        0,
        description="Smallest accepted share of the trial's texts for which the new version agrees with the champion. "
        "With a smaller share, or fewer texts than trial_texts, the version is registered but not promoted. "
        "0: no limit.",
    )
    approval: bool = Field(False, description="Let a person decide on the promotion. Otherwise the comparison decides.")
    timeout_hours: float = Field(72, gt=0, le=96, description="Hours after which an undecided promotion is rejected.")
    rollout_minutes: float = Field(
        10, gt=0, le=1440, description="Minutes for the service to answer with a promoted version. Else, it is undone."
    )


class Retention(Section):
    """What the stage `prune` regards as unused, and whether it removes it. No other stage reads this section."""

    days: int = Field(30, ge=7, description="Days without use after which something is removed.")
    remove: bool = Field(False, description="Remove what is unused. Otherwise it is only listed.")
