"""A table of synonyms out of WordNet (Fellbaum 1998), read from its file index.sense.

A line of index.sense is a sense of a word (https://wordnet.princeton.edu/documentation/senseidx5wn): its key
lemma%type:..., the offset of its synset, its number, and how often it occurs in WordNet's own tagged texts.
Words of one synset are synonyms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

Synonyms = dict[str, tuple[str, ...]]
Synset = tuple[str, str]  # type and offset: offsets are unique within a type only

_ADJECTIVE, _SATELLITE = "3", "5"  # both are in the file of adjectives
#: Of these words WordNet has only namesakes (a verb, a noun, a country), and NLTK's stop words lack them.
_NAMESAKES = {"like", "might", "us"}


def read_synonyms(folder: Path) -> Synonyms:
    """Lower-case word to the other words of the synset that it most often stands for.

    Both the word and its synonyms are single words without inflection that occur in that sense in WordNet's tagged
    texts. Stop words are left out: WordNet holds no pronouns, prepositions and the like, so theirs are namesakes.
    """
    stop = _NAMESAKES | set((folder / "english").read_text(encoding="utf-8").split())
    members: dict[Synset, dict[str, None]] = defaultdict(dict)  # in the file's order, each once
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
    """Word, synset and times of each sense of a single word that occurs in the tagged texts."""
    for line in file.read_text(encoding="utf-8").splitlines():
        key, offset, _, times = line.split()
        word, _, rest = key.partition("%")
        if word.isalpha() and times != "0":
            yield word, (_ADJECTIVE if rest[0] == _SATELLITE else rest[0], offset), int(times)
