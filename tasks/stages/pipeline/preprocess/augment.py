"""Augmentation: add copies of the training rows, each modified by one of the paper's methods.

The row number of a copy is that of its source plus COPY times the 1-based position of its method in METHODS. So `row`
stays unique, row % COPY is the source and row // COPY the method. The modification depends only on the seed and the row
number, not on the partitioning of the rows. It follows cleaning, which would remove the mask token's punctuation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa

from include.experiment import Experiment
from include.fields.data import Augmentation
from tasks.assets import wordnet_folder
from tasks.encoder.tokens import COPY, mask_token
from tasks.staging import Staging, fetched

Synonyms = dict[str, tuple[str, ...]]
Synset = tuple[str, str]  # type and offset, because offsets are unique only within a type

METHODS: tuple[Augmentation, ...] = ("synonyms", "masking", "order")  # append new ones, since row numbers depend on it
MASK_SHARE = 0.15  # as in the paper
REACH = 3  # positions that a word may move, as in the paper
SYNONYM_SHARE = 0.1  # as in EDA (Wei and Zou 2019), because the paper states none
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")

_SENSES, _STOP_WORDS = "index.sense", "english"
_ADJECTIVE, _SATELLITE = "3", "5"  # both types share the file of adjectives, and so its offsets
#: WordNet knows these words only in an unrelated sense (a verb, a noun, a country), and NLTK's stop words lack them.
_NAMESAKES = {"like", "might", "us"}


def shifts(methods: Collection[Augmentation]) -> list[int]:
    """Return what is added to the row numbers of train for the rows themselves, and for the copies by each method."""
    return [0, *(COPY * place for place, method in enumerate(METHODS, 1) if method in methods)]


@dataclass(frozen=True)
class Augment:
    """Changes the texts of copies. It can be sent to executors.

    Attributes:
        seed: of the changes.
        mask: the token that replaces masked words.
        wordnet: the address of the folder of WordNet; "" without synonyms.
    """

    seed: int
    mask: str
    wordnet: str

    def change(self, rows: pa.Table, sentences: Sequence[str]) -> pa.Table:
        """Return copies with changed texts in the columns `sentences`."""
        numbers = rows["row"].to_pylist()
        for name in sentences:
            pairs = zip(numbers, rows[name].to_pylist(), strict=True)
            texts = [self._changed(text, row, name) for row, text in pairs]
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(texts, pa.string()))
        return rows

    def _changed(self, text: str, row: int, sentence: str) -> str:
        random = Random(f"{self.seed} {row} {sentence}")
        match METHODS[row // COPY - 1]:
            case "synonyms":
                return replace_words(text, _synonyms(self.wordnet), random)
            case "masking":
                return mask_words(text, self.mask, random)
            case "order":
                return shuffle_words(text, random)


def augmentation(experiment: Experiment, tokenizer: Path, staged: Staging) -> Augment:
    """Return the augmentation that the experiment specifies, for the tokenizer in a tokenizer.json."""
    options = experiment.preprocessing
    mask = mask_token(tokenizer) if "masking" in options.augment else ""
    wordnet = ""
    if "synonyms" in options.augment:
        folder = wordnet_folder(experiment.runtime)
        wordnet = staged.share(folder, [folder / _SENSES, folder / _STOP_WORDS])
    return Augment(options.seed, mask, wordnet)


@lru_cache(maxsize=1)  # a Python worker processes several partitions
def _synonyms(wordnet: str) -> Synonyms:
    return read_synonyms(fetched(wordnet))


def replace_words(text: str, synonyms: Mapping[str, Sequence[str]], random: Random) -> str:
    """Replace SYNONYM_SHARE of the words, at least one if any has a synonym, by random synonyms in the same case."""
    words = _WORD.findall(text)
    known = [number for number, word in enumerate(words) if word.lower() in synonyms]
    wanted = min(max(1, round(SYNONYM_SHARE * len(words))), len(known))
    chosen = sorted(random.sample(known, wanted))
    return _exchange(text, {at: _like(words[at], random.choice(synonyms[words[at].lower()])) for at in chosen})


def mask_words(text: str, mask: str, random: Random) -> str:
    """Replace MASK_SHARE of the words by `mask`, rounded at random so that its mean is exact, but never all of them."""
    words = len(_WORD.findall(text))
    wanted = max(0, min(int(MASK_SHARE * words + random.random()), words - 1))
    return _exchange(text, dict.fromkeys(random.sample(range(words), wanted), mask))


def shuffle_words(text: str, random: Random) -> str:
    """Move words, with adjacent punctuation, by at most REACH positions; white space becomes single spaces.

    Words are sorted by i + U(0, REACH + 1), where i is the position (Lample et al. 2018, "Unsupervised machine
    translation using monolingual corpora only"), so that only the next REACH words can overtake a word.
    """
    words = text.split()
    keys = [place + random.uniform(0, REACH + 1) for place in range(len(words))]
    return " ".join(words[place] for place in sorted(range(len(words)), key=keys.__getitem__))


def _exchange(text: str, exchanged: Mapping[int, str]) -> str:
    """Replace the words at these positions. The text between words stays unchanged."""
    numbers = count()
    return _WORD.sub(lambda word: exchanged.get(next(numbers), word[0]), text)


def _like(word: str, synonym: str) -> str:
    return synonym[0].upper() + synonym[1:] if word[0].isupper() else synonym


def read_synonyms(folder: Path) -> Synonyms:
    """Return the synonyms of each word in its most frequent sense in WordNet (Fellbaum 1998), in lower case.

    All are single uninflected words that occur in this sense in WordNet's tagged texts. Stop words are left out,
    because WordNet contains no pronouns, prepositions and the like, and so knows them only in unrelated senses.
    """
    stop = _NAMESAKES | set((folder / _STOP_WORDS).read_text(encoding="utf-8").split())
    members: dict[Synset, dict[str, None]] = defaultdict(dict)  # a dict is an ordered set
    usual: dict[str, tuple[int, Synset]] = {}
    for word, synset, times in _senses(folder / _SENSES):
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
    """Yield word, synset and frequency of each sense of a single word that occurs in the tagged texts.

    For the lines of index.sense, see https://wordnet.princeton.edu/documentation/senseidx5wn.
    """
    for line in file.read_text(encoding="utf-8").splitlines():
        key, offset, _, times = line.split()
        word, _, rest = key.partition("%")
        if word.isalpha() and times != "0":
            yield word, (_ADJECTIVE if rest[0] == _SATELLITE else rest[0], offset), int(times)
