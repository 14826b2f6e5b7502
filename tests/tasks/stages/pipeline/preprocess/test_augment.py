"""Copies: numbered so that their source is known, and blind to how the rows are cut."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from include.stages import BadInput
from tasks.encoder.tokens import COPY, mask_token
from tasks.stages.pipeline.preprocess.augment import Augment, shifts
from tests.tasks.stages.pipeline.pretrain.samples import tiny_encoder

TEXT = "a good film that moved me very much"
SOURCES = (0, 2, 7, 30)


@pytest.fixture
def wordnet(tmp_path: Path) -> str:
    """The folder of a WordNet of two words."""
    senses = ("film%1:10:00:: 00000001 1 2", "movie%1:10:00:: 00000001 1 1")
    (tmp_path / "index.sense").write_text("\n".join(senses), encoding="utf-8")
    (tmp_path / "english").write_text("the", encoding="utf-8")
    return str(tmp_path)


def changed(augment: Augment, numbers: list[int]) -> dict[int, tuple[str, str]]:
    columns = {"row": numbers, "sentence1": [TEXT] * len(numbers), "sentence2": [TEXT] * len(numbers)}
    found = augment.change(pa.table(columns), ("sentence1", "sentence2")).to_pylist()
    return {row["row"]: (row["sentence1"], row["sentence2"]) for row in found}


def test_a_copys_number_tells_its_method() -> None:
    assert shifts(()) == [0]
    assert shifts(["order", "synonyms", "order"]) == [0, COPY, 3 * COPY]


def test_every_method_changes_its_copies(wordnet: str) -> None:
    found = changed(Augment(0, "[MASK]", wordnet), [row + COPY * method for method in (1, 2, 3) for row in SOURCES])
    for source in SOURCES:
        assert found[source + COPY] == (TEXT.replace("film", "movie"),) * 2
        assert all(text.count("[MASK]") in (1, 2) for text in found[source + 2 * COPY])
        assert all(sorted(text.split()) == sorted(TEXT.split()) for text in found[source + 3 * COPY])
    assert len({text for source in SOURCES for text in found[source + 3 * COPY]}) == 8  # each sentence has its own


def test_a_change_is_the_seeds_and_the_rows() -> None:
    numbers = [row + COPY * method for method in (2, 3) for row in SOURCES]
    augment = Augment(0, "[MASK]", "")
    together = changed(augment, numbers)
    assert {number: changed(augment, [number])[number] for number in reversed(numbers)} == together
    assert changed(Augment(1, "[MASK]", ""), numbers) != together


def test_the_tokenizer_says_what_hides_a_word(tmp_path: Path, encoder: Path) -> None:
    assert mask_token(tiny_encoder(tmp_path / "masked") / "tokenizer.json") == "[MASK]"
    assert mask_token(encoder / "tokenizer.json") == "[UNK]"
    Tokenizer(models.WordLevel({"[MASK]": 0}, "[MASK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BadInput, match=r"tokenizer.json has none of the special tokens \[MASK\].*remove masking"):
        mask_token(tmp_path / "tokenizer.json")
