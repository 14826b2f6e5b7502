"""Table 5 of the paper behind this project (Spark-BERT, He Yeyang): claims to compare our own figures with."""

from __future__ import annotations

from typing import NamedTuple

from include.ablations import TABLE_5


class Claim(NamedTuple):
    """A row of the table, for SST-2 with BERT-base.

    Attributes:
        accuracy: The accuracy in percent.
        throughput: The increase in throughput over the first row, in percent.
        memory: The decrease in memory from the first row, in percent.
    """

    accuracy: float
    throughput: float
    memory: float


CLAIMS = dict(
    zip(
        TABLE_5,
        (
            Claim(90.5, 0.0, 0.0),
            Claim(91.2, 12.3, 8.5),
            Claim(91.8, 18.7, 37.0),
            Claim(92.2, 24.5, 42.5),
            Claim(92.7, 37.2, 58.3),
        ),
        strict=True,
    )
)
