"""What a model must reach, and what a run produces with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from include.fields.base import Section, Share

# Correlations may be negative, hence the lower bound of -1 for every metric.
_Value = Annotated[float, Field(ge=-1, le=1)]
_Threshold = _Value | None
#: The form that computes a package's model: a name, or auto for the fastest where it is used.
FormName = Literal["auto", "torch-fp32", "onnxruntime-fp32", "openvino-fp32", "openvino-bf16", "openvino-int8"]


class Gate(Section):
    """What a model must reach. If no metric is set, the task's own threshold applies."""

    accuracy: _Threshold = Field(
        None,
        description="Lowest acceptable accuracy on dev. If no metric of this section is set, the task's own threshold "
        "applies; on data of your own, the model then only has to beat its baseline.",
    )
    f1: _Threshold = Field(
        None,
        description="Lowest acceptable F1 score on dev: that of the positive class, or macro F1 for more than two "
        "classes, which leaves out classes that no dev row has and that are never predicted.",
    )
    matthews: _Threshold = Field(None, description="Lowest acceptable Matthews correlation coefficient on dev.")
    f1_micro: _Threshold = Field(
        None, description="Lowest acceptable micro F1 on dev, over all labels of all rows. For data.task multi-label."
    )
    f1_macro: _Threshold = Field(None, description="Lowest acceptable macro F1 on dev. For data.task multi-label.")
    pearson: _Threshold = Field(None, description="Lowest acceptable Pearson correlation coefficient on dev.")
    spearman: _Threshold = Field(None, description="Lowest acceptable Spearman correlation coefficient on dev.")
    calibration_error: Share | None = Field(
        None,
        description="Highest acceptable expected calibration error on dev: by how much the probabilities of the "
        "predictions differ on average from the share that is right. Each row has those of a model calibrated on other "
        "rows.",
    )
    beat_baseline: bool = Field(
        True,
        description="Also require that the metrics are better than those of a model that gives the same answer for "
        "every dev row, and that correlations are above 0.",
    )
    slices: dict[str, _Value] = Field(
        {},
        description='Lowest acceptable values on slices of dev, for example {"length:long": 0.8}: of the task\'s '
        "metric on length:short, length:medium and length:long, of the label's recall on label: followed by a label.",
    )

    teacher_margin: Share | None = Field(
        None,
        description="Largest decline from the model's teacher on the dev rows that cannot be excluded, such as 0.01 "
        "of accuracy: the upper end of the 95 % interval counts. Multi-label models and scores are compared by the "
        "task's metric.",
    )
    teacher_speed: float | None = Field(
        None, gt=0, description="Smallest accepted number of rows per second, as a multiple of the teacher's."
    )

    @property
    def thresholds(self) -> dict[str, float]:
        """The lowest acceptable value of each metric that has one, by the metric's name."""
        others = {"calibration_error", "beat_baseline", "slices", "teacher_margin", "teacher_speed"}
        return self.model_dump(exclude=others, exclude_none=True)


class Packaging(Section):
    """What a faster form of the model must keep of the answers that PyTorch gives in fp32, to be offered."""

    min_agreement: Share = Field(
        0.998,
        description="Smallest accepted share of the dev rows to which a form gives the same answer as PyTorch: the "
        "same label or labels, or a score that differs by no more than 5 % of the task's range.",
    )
    max_metric_loss: Share = Field(
        0.002, description="Largest accepted decline of the task's metric on the dev rows, such as 0.002 of accuracy."
    )
    max_mean_change: Share = Field(
        0.005,
        description="Largest accepted mean change of an answer: of the probability that changes most, or of the score "
        "as a share of the task's range.",
    )
    max_tail_change: Share = Field(
        0.05,
        description="Largest accepted 99.9th percentile of the changes that max_mean_change averages. The largest "
        "change does not count, because it grows with the number of rows.",
    )


class Prediction(Section):
    """The prediction of the test split."""

    batching: Literal["tokens", "tiers", "static"] = Field(
        "tokens",
        description="How rows are grouped into batches. tokens: as many rows of similar length as fit into "
        "batch_tokens; tiers: 128, 64, 32 or 16 rows of similar length, depending on the mean length of a partition's "
        "rows; static: 32 rows in the order of the table.",
    )
    batch_tokens: int = Field(
        2048, ge=512, le=2**24, description="Maximum number of tokens per batch with padding. For batching tokens."
    )
    form: FormName = Field(
        "auto",
        description="The form of the package that computes the labels. auto: of those that this processor computes, "
        "the one that was the fastest on one thread when the model was packaged; torch-fp32: exactly what "
        "transformers computes from the model's folder. A model that is not a package has only torch-fp32.",
    )
    max_risk: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="The model answers only where its error stays below this share, such as 0.05, with 95 % confidence "
        "over the draw of the dev rows. Elsewhere it abstains: the label is empty, and the column abstained says why. "
        "For more than two labels also a set of labels, for scores an interval, which miss the truth as rarely. Needs "
        "a package. Also of the service.",
    )
    escape_formulas: bool = Field(
        False,
        description="Write an apostrophe before each text in predictions.csv and scored.csv that begins with =, +, -, "
        "@, a tab or a line end. A spreadsheet takes it for a formula, which may read files and send them. Parquet "
        "files keep texts as they are.",
    )


class Submission(Section):
    """The contents of the submission zip."""

    all_tasks: bool = Field(False, description="Write the files of all GLUE tasks, with placeholders for missing runs.")
    runs: tuple[str, ...] = Field((), description="Names of other runs whose predictions are included in the same zip.")


class Publication(Section):
    """The repository of the Hugging Face hub that a model is published in."""

    repository: str = Field(
        "",
        pattern=r"^$|^[\w.-]+/[\w.-]+$",
        description="The repository that the model is uploaded to, for example my-team/reviews. If empty, only the "
        "model card is written.",
    )
    private: bool = Field(True, description="Make the repository private if it does not exist yet.")


class Study(Section):
    """The arms that one report compares. The pipeline does not read this section."""

    name: str = Field("", description="The name of the study: its task, and a digest of its overrides.")
