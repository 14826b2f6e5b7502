"""What a run produces with its model: predictions, the submission and a publication."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.sections.base import Section


class Prediction(Section):
    """The prediction of the test split."""

    batching: Literal["tokens", "tiers", "static"] = Field(
        "tokens",
        description="How rows are grouped into batches. tokens: as many rows of similar length as fit into "
        "prediction.batch_tokens; tiers: 128, 64, 32 or 16 rows of similar length, depending on the average length of "
        "a partition's rows; static: 32 rows in the order of the table.",
    )
    batch_tokens: int = Field(
        2048,
        ge=512,
        le=2**24,
        description="Maximum number of tokens per batch, including padding. Applies only if prediction.batching is "
        "tokens.",
    )
    backend: Literal["fastest", "torch", "onnxruntime", "openvino"] = Field(
        "fastest",
        description="What computes the model. fastest: the fastest form that the package offers and this processor "
        "computes; torch: exactly what transformers computes from the model's folder, in fp32; onnxruntime, "
        "openvino: the fastest form of that library. A model that is not a package has only torch.",
    )
    escape_formulas: bool = Field(
        False,
        description="Write an apostrophe before each text in predictions.csv and scored.csv that begins with =, +, -, "
        "@, a tab or a line end. A spreadsheet takes it for a formula, which may read files and send them. The "
        "Parquet files always have the texts as they are.",
    )


class Submission(Section):
    """The contents of the submission zip."""

    all_tasks: bool = Field(
        False,
        description="Write the files of all eleven GLUE tasks. A task for which no run is given gets a placeholder.",
    )
    runs: tuple[str, ...] = Field((), description="Names of other runs whose predictions are included in the same zip.")


class Publication(Section):
    """The repository of the Hugging Face hub that a model is published in."""

    repository: str = Field(
        "",
        pattern=r"^$|^[\w.-]+/[\w.-]+$",
        description="The repository that the model is uploaded to, for example my-team/reviews. If it is empty, only "
        "the model card is written.",
    )
    private: bool = Field(True, description="Make the repository private if it does not exist yet.")
