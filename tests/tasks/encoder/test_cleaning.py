"""The cleaning rules against strings made by hand."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from tasks.encoder.cleaning import RULES, STOP_WORDS, clean, clean_all

ALL = tuple(RULES)


@pytest.mark.parametrize(
    ("rules", "text", "cleaned"),
    [
        ((), "  <b>As</b> it IS!  ", "  <b>As</b> it IS!  "),
        (("html",), "The end.<br /><br/>Start", "The end.  Start"),
        (("html",), '<a href="x">link</a><!-- note -->', " link  "),
        (("html",), "<p\nclass='x'>two\nlines", " two\nlines"),
        (("html",), "3 < 5 and 7 > 6", "3 < 5 and 7 > 6"),
        (("punctuation",), "it's: well_made, 10/10!", "its well_made 1010"),
        (("punctuation",), "café, naïve: 電影。", "café naïve 電影"),
        (("punctuation",), "cafe\u0301, bon!", "cafe\u0301 bon"),  # the accent is a character of its own
        (
            ("punctuation",),
            "\u0939\u093f\u0928\u094d! \u0645\u06cc\u200c\u062e!",
            "\u0939\u093f\u0928\u094d \u0645\u06cc\u200c\u062e",
        ),  # Hindi, Persian
        (("punctuation",), "\U0001f600 $5 \u00bd", " 5 \u00bd"),
        (("lowercase",), "The ÉCOLE", "the école"),
        (("whitespace",), "a \t\n b\u00a0\u2003c", "a b c"),
        (("whitespace", "lowercase", "punctuation", "html"), "A<br/>B,  C", "a b c"),
        (("stop-words",), "The film is NOT bad, don\u2019t miss it!", " film   bad,  miss !"),
        (("stop-words",), "an over-the-top thesis, it 's well", " over-the-top thesis,  ' well"),
        (("stop-words", "punctuation", "whitespace"), "We'll see: isn't it?", " see "),
        (("stop-words", "html"), "<b>so</b> what<br/>not", " " * 4),
        (ALL, "<p>...</p>", " "),
        (("html",), "<b" * 100_000 + ">", "<b" * 99_999 + " "),  # takes no quadratic time
    ],
)
def test_rules(rules: tuple[str, ...], text: str, cleaned: str) -> None:
    assert clean(text, rules) == cleaned and clean_all([text, ""], rules) == [cleaned, ""]


def test_the_stop_words_are_those_of_spark() -> None:
    (jar,) = Path(pyspark.__path__[0], "jars").glob("spark-mllib_*.jar")
    words = ZipFile(jar).read("org/apache/spark/ml/feature/stopwords/english.txt").decode().split()
    assert sorted(STOP_WORDS) == sorted(words)


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match=r"there is no cleaning rule 'stem': the rules are html, stop-words"):
        clean("text", ["html", "stem"])
