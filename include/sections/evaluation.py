"""The thresholds that a model must reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from include.sections.base import Section, Threshold


class Gate(Section):
    """The lowest acceptable metrics. If no metric is set, the task's own threshold applies."""

    accuracy: Threshold = Field(
        None,
        description="Lowest acceptable accuracy on dev. If no metric of this section is set, the task's own threshold "
        "applies. If the task has none either, the model only has to beat its baseline.",
    )
    f1: Threshold = Field(
        None,
        description="Lowest acceptable F1 score on dev: that of the positive class, or macro F1 for more than two "
        "classes, which leaves out classes that no dev row has and that are never predicted.",
    )
    matthews: Threshold = Field(None, description="Lowest acceptable Matthews correlation coefficient on dev.")
    f1_micro: Threshold = Field(
        None,
        description="Lowest acceptable micro F1 on dev, over all labels of all rows. For data.task multi-label, like "
        "f1_macro.",
    )
    f1_macro: Threshold = Field(None, description="Lowest acceptable mean of the labels' F1 scores on dev.")
    pearson: Threshold = Field(None, description="Lowest acceptable Pearson correlation coefficient on dev.")
    spearman: Threshold = Field(None, description="Lowest acceptable Spearman correlation coefficient on dev.")
    beat_baseline: bool = Field(
        True,
        description="Also require that the metrics are better than those of a model that gives the same answer for "
        "every dev row, and that correlations are above 0.",
    )
    slices: dict[str, Annotated[float, Field(ge=-1, le=1)]] = Field(
        {},
        description="Lowest acceptable values on slices of dev, for example "
        '{"length:long": 0.8}. The slices are length:short, length:medium and length:long, to which the task\'s metric '
        "applies, and label: followed by the name of a label, to which the label's recall applies.",
    )

    @property
    def thresholds(self) -> dict[str, float]:
        """The lowest acceptable value of each metric that has one, by the metric's name."""
        return self.model_dump(exclude={"beat_baseline", "slices"}, exclude_none=True)
