"""The table of synonyms: of a word's most frequent sense, and of nothing that is no word."""

from __future__ import annotations

from pathlib import Path

from include.fields.ranks import Runtime
from tasks.assets import wordnet_folder
from tasks.stages.pipeline.preprocess.augment import read_synonyms

SENSES = """
can%1:06:00:: 00000001 1 3
can%2:41:00:: 00000002 1 1
film%1:10:01:: 00000003 1 38
film%2:36:00:: 00000003 1 2
film_over%2:30:00:: 00000003 1 2
flick%1:10:00:: 00000003 1 0
great%5:00:01:large:00 00000004 1 9
large%3:00:00:: 00000004 1 5
movie%1:10:00:: 00000003 1 26
shoot%2:36:02:: 00000003 1 4
tin%1:06:00:: 00000001 1 1
"""


def test_the_most_frequent_sense_counts(tmp_path: Path) -> None:
    (tmp_path / "index.sense").write_text(SENSES.lstrip(), encoding="utf-8")
    (tmp_path / "english").write_text("can\nthe\n", encoding="utf-8")
    assert read_synonyms(tmp_path) == {
        "film": ("movie",),  # the noun; flick is in no tagged text
        "movie": ("film",),
        "shoot": ("film",),
        "great": ("large",),
        "large": ("great",),
        "tin": ("can",),  # a stop word itself has no synonyms
    }


def test_wordnets_table() -> None:
    table = read_synonyms(wordnet_folder(Runtime(download=True)))
    assert len(table) == 5342
    assert table["movie"] == ("film", "picture")
    assert table["big"] == ("large",)
    assert not table.keys() & {"the", "it", "can", "us", "like", "films"}
    assert all(other.isalpha() and other != word for word, others in table.items() for other in others)
