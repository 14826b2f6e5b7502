"""Augmentation on Spark: add copies of the training rows, each modified by one of the paper's methods.

The row number of a copy is that of its source plus COPY times the 1-based position of its method in METHODS. So `row`
stays unique, row % COPY is the source and row // COPY the method. The modification depends only on the seed and the row
number, not on the partitioning of the rows. It follows cleaning, which would remove the mask token's punctuation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tokenizers import Tokenizer

from include.experiment import Experiment
from include.sections import Augmentation
from include.stages import BadInput
from tasks.assets import wordnet_folder
from tasks.encoder.tokens import COPY
from tasks.stages.pipeline.preprocess.synonyms import Synonyms, read_synonyms
from tasks.stages.pipeline.preprocess.words import mask_words, replace_words, shuffle_words

METHODS: tuple[Augmentation, ...] = ("synonyms", "masking", "order")  # append new ones, since row numbers depend on it
#: Candidates for the token that replaces a masked word. The first one that the tokenizer knows is used.
MASKS = ("[MASK]", "<mask>", "[UNK]", "<unk>")


def add_copies(rows: DataFrame, methods: Collection[Augmentation]) -> DataFrame:
    """Add one copy per row and method to the rows. AugmentPartition changes the texts of the copies later.

    Args:
        rows: A data frame with a column `row`.
        methods: The augmentation methods.
    """
    shifts = [0, *(COPY * place for place, method in enumerate(METHODS, 1) if method in methods)]
    copies = rows.withColumn("shift", F.explode(F.array(*map(F.lit, shifts))))
    return copies.withColumn("row", F.col("row") + F.col("shift")).drop("shift")


@dataclass(frozen=True)
class AugmentPartition:
    """Changes the texts of a partition's copies; a function for DataFrame.mapInArrow.

    Attributes:
        seed: The random seed of all copies.
        mask: The token that replaces a masked word.
        synonyms: The table of synonyms, which is sent to each executor once; empty if synonyms are not used.
    """

    seed: int
    mask: str
    synonyms: Broadcast[Synonyms]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with modified sentences in the copies."""
        for batch in batches:
            rows = batch.column("row").to_pylist()
            for place, name in enumerate(batch.schema.names):
                if name in ("sentence1", "sentence2"):
                    pairs = zip(rows, batch.column(name).to_pylist(), strict=True)
                    texts = [self._changed(text, row, name) for row, text in pairs]
                    batch = batch.set_column(place, batch.schema.field(place), pa.array(texts, pa.string()))
            yield batch

    def _changed(self, text: str, row: int, sentence: str) -> str:
        if row < COPY:
            return text
        random = Random(f"{self.seed} {row} {sentence}")
        match METHODS[row // COPY - 1]:
            case "synonyms":
                return replace_words(text, self.synonyms.value, random)
            case "masking":
                return mask_words(text, self.mask, random)
            case "order":
                return shuffle_words(text, random)


def augmentation(spark: SparkSession, experiment: Experiment, tokenizer: Path) -> AugmentPartition:
    """Return the augmentation that the experiment specifies.

    Args:
        spark: The Spark session, which broadcasts the table of synonyms.
        experiment: The experiment.
        tokenizer: The path of tokenizer.json.

    Raises:
        BadInput: If the tokenizer has no mask token, or WordNet is missing, although a method needs it.
    """
    options = experiment.preprocessing
    mask = mask_token(tokenizer) if "masking" in options.augment else ""
    wanted = "synonyms" in options.augment
    table = read_synonyms(wordnet_folder(experiment.runtime)) if wanted else {}
    return AugmentPartition(options.seed, mask, spark.sparkContext.broadcast(table))


def mask_token(tokenizer: Path) -> str:
    """Return the special token that masks a word. The tokenizer recognizes it within any text.

    Args:
        tokenizer: The path of tokenizer.json.

    Raises:
        BadInput: If the tokenizer has none of MASKS.
    """
    tokens = Tokenizer.from_file(str(tokenizer)).get_added_tokens_decoder().values()
    special = {token.content for token in tokens if token.special}
    for mask in MASKS:
        if mask in special:
            return mask
    raise BadInput(
        f"{tokenizer} has none of the special tokens {', '.join(MASKS)}, which preprocessing.augment: [masking] needs: "
        "remove masking"
    )
