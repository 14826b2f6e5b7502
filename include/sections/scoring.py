"""The table whose rows are scored, and the model that scores them."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from include.sections.base import Section

#: What the address of a database begins with.
JDBC = "jdbc:"
#: A login or another secret in the address of a database: as a parameter, before the host, or before Oracle's.
_LOGIN = re.compile(r"(?i)\b(user|username)=|(password|passwd|pwd|secret|token)\d*=|//[^/?@]+@|thin:[^@]+@")


class Scoring(Section):
    """The scoring of a table. Only the stage `score` reads this section."""

    input: str = Field(
        "",
        description="The table to score: a file that ends in .csv, .tsv, .parquet, .jsonl or .ndjson, a folder of such "
        "files, or the JDBC address of a database, without a login.",
        examples=["reviews.csv", "jdbc:postgresql://db.example.org/shop"],
    )
    table: str = Field("", description="The table in the database. Applies only if scoring.input is one.")
    driver: str = Field(
        "", description="The file (.jar) of the database's JDBC driver. Applies only if scoring.input is a database."
    )
    text: str = Field("text", min_length=1, description="The column with the text.")
    text2: str = Field("", description="The column with the second text, for a model that was trained on pairs.")
    model: str = Field(
        "",
        description="The folder of a model or of a package. If it is empty, the champion in the registry for "
        "dataset.name, or else for data.task, is used.",
    )

    @property
    def is_database(self) -> bool:
        """Whether the table is in a database."""
        return self.input.startswith(JDBC)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns with the texts, one or two."""
        return (self.text, self.text2) if self.text2 else (self.text,)

    @field_validator("input")
    @classmethod
    def _no_login_in_the_address(cls, value: str) -> str:
        if value.strip().lower().startswith(JDBC) and _LOGIN.search(value):  # a misspelled one would be recorded too
            raise ValueError(
                "the address contains a login, which the run's record would show: remove it, and give the login as "
                "SPARK_BERT_JDBC_USER and SPARK_BERT_JDBC_PASSWORD, or as secret files"
            )
        return value
