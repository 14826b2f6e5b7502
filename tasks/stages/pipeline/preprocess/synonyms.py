"""A table of synonyms from WordNet (Fellbaum 1998), read from its file index.sense.

A line of index.sense describes one sense of a word (https://wordnet.princeton.edu/documentation/senseidx5wn): its key
lemma%type:..., the offset of its synset, its number, and how often it occurs in WordNet's own tagged texts. The words
of a synset are synonyms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

Synonyms = dict[str, tuple[str, ...]]
Synset = tuple[str, str]  # type and offset, because offsets are unique only within a type

_ADJECTIVE, _SATELLITE = "3", "5"  # both types share the file of adjectives, and so its offsets
#: WordNet knows these words only in an unrelated sense (a verb, a noun, a country), and NLTK's stop words lack them.
_NAMESAKES = {"like", "might", "us"}


def read_synonyms(folder: Path) -> Synonyms:
    """Read the table of synonyms.

    Args:
        folder: The folder with WordNet's index.sense and the list of stop words, `english`.

    Returns:
        Lower-case word to the other words of its most frequent synset. The word and its synonyms are single uninflected
        words that occur in this sense in WordNet's tagged texts. Stop words are left out, because WordNet contains no
        pronouns, prepositions and the like and so knows them only in unrelated senses.
    """
    stop = _NAMESAKES | set((folder / "english").read_text(encoding="utf-8").split())
    members: dict[Synset, dict[str, None]] = defaultdict(dict)  # a dict is an ordered set
    usual: dict[str, tuple[int, Synset]] = {}
    for word, synset, times in _senses(folder / "index.sense"):
        members[synset][word] = None
        if word not in usual or times > usual[word][0]:
            usual[word] = times, synset
    table = {
        word: tuple(other for other in members[synset] if other != word)
        for word, (_, synset) in usual.items()
        if word not in stop
    }
    return {word: others for word, others in table.items() if others}


def _senses(file: Path) -> Iterator[tuple[str, Synset, int]]:
    """Yield word, synset and frequency of each sense of a single word that occurs in the tagged texts."""
    for line in file.read_text(encoding="utf-8").splitlines():
        key, offset, _, times = line.split()
        word, _, rest = key.partition("%")
        if word.isalpha() and times != "0":
            yield word, (_ADJECTIVE if rest[0] == _SATELLITE else rest[0], offset), int(times)
