"""Labeling with a model: of a table, of a stream, and over HTTP."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from include.fields.base import Section, Share, has_login
from include.fields.results import FormName

#: What the address of a database begins with.
JDBC = "jdbc:"


class _Texts(Section):
    """Rows with texts, and the model that labels them."""

    text: str = Field("text", min_length=1, description="The column with the text.")
    text2: str = Field("", description="The column with the second text, for a model that was trained on pairs.")
    model: str = Field(
        "",
        description="The folder of a model or of a package. If empty, the champion for dataset.name, or else for "
        "data.task, is used. A stream uses a new champion from its next batch on.",
    )

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns with the texts, one or two."""
        return (self.text, self.text2) if self.text2 else (self.text,)


class Scoring(_Texts):
    """The scoring of a table. Only the stage `score` reads this section."""

    input: str = Field(
        "",
        description="The table to score: a file that ends in .csv, .tsv, .parquet, .jsonl or .ndjson (texts also in "
        ".gz or .zst), a folder of such files, a pattern such as in/2026-*.csv, or the JDBC address of a database, "
        "without a login. Also a Delta table (its folder or address), or the address of an Iceberg catalog.",
        examples=["reviews.csv", "jdbc:postgresql://db.example.org/shop"],
    )
    table: str = Field("", description="The table of a database, or of Iceberg as CATALOG.NAMESPACE.TABLE.")
    version: str = Field(
        "",
        pattern="^[0-9]*$",
        description="The version of a Delta table, or the snapshot of an Iceberg table. If empty, the newest.",
    )
    driver: str = Field("", description="The .jar file of the JDBC driver. For a database.")
    explain: bool = Field(
        False,
        description="Add the column explanation: how much each word contributes to the answer. It costs as much as one "
        "more row per word.",
    )

    @property
    def is_database(self) -> bool:
        """Whether the table is in a database."""
        return self.input.startswith(JDBC)

    @field_validator("input")
    @classmethod
    def _no_login_in_the_address(cls, value: str) -> str:
        is_jdbc = value.strip().lower().startswith(JDBC)  # a misspelled one would be recorded too
        if (is_jdbc or "://" in value) and has_login(value):
            instead = ", and give the login as SPARK_BERT_JDBC_USER and SPARK_BERT_JDBC_PASSWORD, or as secret files"
            what = "the address contains a login, which the run's record would show: remove it"
            raise ValueError(f"{what}{instead if is_jdbc else ''}")
        return value


class Streaming(_Texts):
    """The labeling of rows as they arrive, by the stage `stream`. The limits of drift are in the section dataset."""

    name: str = Field("stream", pattern="^[A-Za-z0-9_-]+$", description="The stream, whose state is in streams/NAME.")
    source: Literal["files", "kafka", "kafka-java"] = Field(
        "files",
        description="Where the rows come from. kafka-java: a topic of Kafka, read by Spark's own connector, which the "
        "deployment adds to Spark.",
    )
    folder: str = Field("", description="Folder for files (CSV, TSV, Parquet, JSON Lines), each under a new name.")
    settle: float = Field(1, ge=0, description="Seconds that a file must stay unchanged before it is read. For files.")
    brokers: str = Field("", description="Kafka's brokers, comma-separated.", examples=["kafka-1:9092,kafka-2:9092"])
    topic: str = Field("", description="The topic. Its messages are JSON objects with columns as fields. For Kafka.")
    starting: Literal["earliest", "latest"] = Field("earliest", description="Where a new stream begins. For Kafka.")
    continuous: bool = Field(False, description="Run until stopped. Otherwise, end with the rows that are there.")
    interval: float = Field(1, gt=0, description="Seconds between two checks for new rows. For a continuous stream.")
    batch_rows: int = Field(10_000, ge=1, description="Maximum number of messages per batch. For Kafka.")
    batch_files: int = Field(100, ge=1, description="Maximum number of files per batch. For files.")
    window_rows: int = Field(1000, ge=1, description="Number of rows that are checked for drift at a time.")


class Serving(Section):
    """The service of `make serve`. The pipeline does not read this section."""

    model: str = Field(
        "",
        description="The folder of a package, such as work/artifacts/package/KEY. If empty, the service answers with "
        "the champion, and with each new one as soon as there is one.",
    )
    form: FormName = Field(
        "auto",
        description="The form of the package that answers. auto: of those that this processor computes, the one "
        "that was the fastest with one client and with 32 when the model was packaged.",
    )
    host: str = Field("127.0.0.1", description="The address that the service listens on.")
    port: int = Field(8000, ge=0, le=65535, description="The port that the service listens on; 0 for any free port.")
    threads: int = Field(
        0,
        ge=0,
        description="Number of CPU threads of the model, each with batches of its own; 0 for one per core, within the "
        "quota of a container.",
    )
    batch_tokens: int = Field(256, ge=64, le=2**20, description="Maximum number of tokens per batch with padding.")
    queue_tokens: int = Field(
        131072,
        ge=512,
        description="Maximum number of tokens that wait for the model. Waiting clients have equal shares of it, and a "
        "request may take half of what is left of its client's share. Others are refused with 429.",
    )
    max_rows: int = Field(1000, ge=1, description="Maximum number of texts per request.")
    max_bytes: int = Field(1_000_000, ge=1000, description="Maximum size of a request's body in bytes.")
    deadline: float = Field(10, gt=0, description="Seconds after which a request is given up, including its body.")
    shadow: Share = Field(0, description="Share of requests, chosen at random, that the challenger computes as well.")
    canary: Share = Field(0, description="Share of requests, chosen by their id, that the challenger answers.")
    poll: float = Field(2, gt=0, description="Seconds between two checks of the aliases champion and challenger.")
