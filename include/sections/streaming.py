"""The stream whose rows are labeled as they arrive, and the model that labels them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from include.sections.base import Section


class Streaming(Section):
    """The labeling of rows as they arrive. Only the stage `stream` reads this section.

    The limits of drift are those of the section dataset.
    """

    name: str = Field(
        "stream",
        pattern="^[A-Za-z0-9_-]+$",
        description="The name of the stream: its rows and what it has read so far are kept in streams/NAME.",
    )
    source: Literal["files", "kafka", "kafka-java"] = Field(
        "files",
        description="Where the rows come from. kafka-java: a topic of Kafka that Spark's own connector reads, which "
        "the deployment adds to Spark.",
    )
    folder: str = Field(
        "",
        description="The folder into which files (CSV, TSV, Parquet or JSON Lines) are put, each under a new name. "
        "Applies only to files.",
    )
    settle: float = Field(
        1, ge=0, description="Seconds for which a file must not have changed before it is read. Applies only to files."
    )
    brokers: str = Field(
        "",
        description="The brokers, separated by commas. Applies only to Kafka.",
        examples=["kafka-1:9092,kafka-2:9092"],
    )
    topic: str = Field(
        "", description="The topic, whose messages are JSON objects with the columns as fields. Applies only to Kafka."
    )
    starting: Literal["earliest", "latest"] = Field(
        "earliest", description="The messages with which a new stream begins. Applies only to Kafka."
    )
    text: str = Field("text", min_length=1, description="The column with the text.")
    text2: str = Field("", description="The column with the second text, for a model that was trained on pairs.")
    model: str = Field(
        "",
        description="The folder of a model or of a package. If it is empty, the champion for dataset.name, or else for "
        "data.task, is used, and the next batch has the new one as soon as it changes.",
    )
    continuous: bool = Field(
        False, description="Go on until stopped. Otherwise the stage ends with the rows that are there when it starts."
    )
    interval: float = Field(
        1, gt=0, description="Seconds between two looks for new rows. Applies only to a continuous stream."
    )
    batch_rows: int = Field(10_000, ge=1, description="Maximum number of messages per batch. Applies only to Kafka.")
    batch_files: int = Field(100, ge=1, description="Maximum number of files per batch. Applies only to files.")
    window_rows: int = Field(
        1000, ge=1, description="Number of rows that are compared with the training rows at a time to find drift."
    )

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns with the texts, one or two."""
        return (self.text, self.text2) if self.text2 else (self.text,)
