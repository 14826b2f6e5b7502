"""Domain terms that an encoder reads as one token each (model.lexicon), where its tokenizer splits or lacks them.

A term's embedding starts as the mean of those of its pieces. A tokenizer that distinguishes cases also gets the term
with a capital letter. The result is a folder like any other encoder's, and has the terms already if it is used again.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from include.folders import check_file, user_path
from include.stages import BadInput
from tasks import digests
from tasks.assets import is_path

log = logging.getLogger(__name__)

#: The lists that belong to the project, one term per line.
BUNDLED = Path(__file__).with_name("lexicons")
_LONGEST = 100  # characters of a term
_TOKENIZER, _CONFIG, _WEIGHTS = "tokenizer.json", "config.json", "model.safetensors"


def fingerprint(name: str) -> str:
    """Return a string that changes whenever the terms of a lexicon do; "" if the name is empty, for no lexicon."""
    return f"-{digests.digest(lexicon_file(name))}" if name else ""


def lexicon_file(name: str) -> Path:
    """Return the file of a lexicon: a bundled one, or the user's. Raise BadInput if there is none."""
    if is_path(name):
        file = user_path(name)
        check_file(file, "put the terms there, one per line, or correct model.lexicon")
        return file
    file = BUNDLED / f"{name}.txt"
    if file not in BUNDLED.iterdir():
        known = ", ".join(sorted(path.stem for path in BUNDLED.iterdir()))
        raise BadInput(
            f"model.lexicon {name!r} is neither bundled ({known}) nor a file: begin the path of a file with / or ./"
        )
    return file


def read_terms(file: Path) -> list[str]:
    """Return the terms of a text file, one per line. Raise BadInput if there are none, or a line cannot be one."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except ValueError as error:
        raise BadInput(f"{file} is not encoded in UTF-8 ({error}): save it in UTF-8") from error
    terms: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        term = " ".join(line.split())
        if len(term) > _LONGEST:
            raise BadInput(f"{file}, line {number}: a term has at most {_LONGEST} characters: write one term per line")
        if term:
            terms[term] = None
    if not terms:
        raise BadInput(f"{file} has no terms: write one per line, or leave model.lexicon empty")
    return list(terms)


def write_tokenizer(encoder: Path, name: str, folder: Path) -> Path:
    """Return the tokenizer.json of an encoder that keeps the terms of a lexicon, if any, whole: its own, or a copy."""
    if not name:
        return encoder / _TOKENIZER
    tokenizer, _ = _with_terms(encoder, name)
    tokenizer.save(str(folder / _TOKENIZER))
    return folder / _TOKENIZER


def write_encoder(encoder: Path, name: str, folder: Path) -> Path:
    """Return the folder of an encoder that keeps the terms of a lexicon, if any, whole: its own, or a copy."""
    if not name:
        return encoder
    tokenizer, pieces = _with_terms(encoder, name)
    if not pieces:
        return encoder
    for file in encoder.glob("*token*.json"):
        shutil.copyfile(file, folder / file.name)
    tokenizer.save(str(folder / _TOKENIZER))
    rows = _grow_embeddings(encoder, pieces, folder / _WEIGHTS)
    config = json.loads((encoder / _CONFIG).read_text(encoding="utf-8"))
    config.get("encoder", config)["vocab_size"] = rows  # a model with a pooled head has its encoder's within its own
    (folder / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder


def add_terms(tokenizer: Tokenizer, terms: Iterable[str]) -> dict[int, list[int]]:
    """Add the terms that a tokenizer splits or lacks, and return the pieces' ids of each new token, by its own id.

    Raise ValueError, with the term, if the tokenizer does not find the new token in a text.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    before = Tokenizer.from_str(tokenizer.to_str())
    normal = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    forms: dict[str, str] = {}  # by what the tokenizer makes of them, as one without case needs one of two
    for form in (form for term in terms for form in (term, term[0].upper() + term[1:])):
        forms.setdefault(normal(form), form)
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
    # BPE and Unigram know most words with the space before them.
    wholes = {form: _ids(before, f" {form}") for form in forms.values()}
    added = {form: whole for form, whole in wholes.items() if len(whole) > 1 or whole == [unknown]}
    # All at once: each call takes as long as the tokenizer has added tokens.
    tokenizer.add_tokens([AddedToken(form, single_word=True, lstrip=True, normalized=True) for form in added])
    pieces: dict[int, list[int]] = {}
    for form, whole in added.items():
        number = tokenizer.token_to_id(form)
        if number is None or number not in _ids(tokenizer, f"a {form}, and"):
            raise ValueError(form)
        pieces[number] = whole
    return pieces


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _with_terms(encoder: Path, name: str) -> tuple[Tokenizer, dict[int, list[int]]]:
    """Return the tokenizer of an encoder with the terms of a lexicon, and what add_terms returns."""
    file = lexicon_file(name)
    terms = read_terms(file)
    tokenizer = Tokenizer.from_file(str(encoder / _TOKENIZER))
    try:
        pieces = add_terms(tokenizer, terms)
    except ValueError as error:
        raise BadInput(
            f"the tokenizer in {encoder} cannot keep {str(error)!r} of {file} whole: remove the term, leave "
            "model.lexicon empty, or choose another encoder"
        ) from error
    log.info(
        "the lexicon %s adds %d tokens for its %d terms; the tokenizer has the others", name, len(pieces), len(terms)
    )
    return tokenizer, pieces


def _grow_embeddings(encoder: Path, pieces: Mapping[int, Sequence[int]], file: Path) -> int:
    """Write the encoder's weights with embeddings for new tokens, and return the number of embeddings.

    Args:
        encoder: the folder of the encoder.
        pieces: the ids of which a new token's embedding is the mean, by its own id.
        file: what is written.
    """
    import torch
    from safetensors.torch import load_file, save_file

    from tasks.encoder.loading import word_embeddings_name

    weights = load_file(encoder / _WEIGHTS)
    name = word_embeddings_name(encoder, weights)
    old = weights[name]
    new = old.new_zeros(max(len(old), max(pieces) + 1), old.shape[1])
    new[: len(old)] = old
    for number, parts in pieces.items():
        new[number] = old[torch.tensor(parts)].float().mean(0).to(old.dtype)
    save_file({**weights, name: new}, file, {"format": "pt"})
    return len(new)
