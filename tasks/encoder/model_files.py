"""The files of a model's folder as transformers' objects: its configuration, its weights and its tokenizer.

Functions raise BadInput, with the file and a remedy, if files are missing, damaged, or do not fit one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import torch
from transformers import CONFIG_MAPPING, PreTrainedModel, PreTrainedTokenizerFast

from include.stages import BadInput
from tasks.encoder.padding_free import first_position
from tasks.encoder.spec import CODE, CONFIG, bad_input_for, described_head, has_head, named_code, read_values

_WEIGHTS, _TOKENIZER = "model.safetensors", "tokenizer.json"
#: transformers would add the weights of an adapter that this file describes.
_ADAPTER = "adapter_config.json"
#: The longest row of a table of tokens, which has the lengths in 16 bits.
_LONGEST = 2**16 - 1


def read_config(folder: Path, trained: bool = False) -> Any:
    """Return the configuration of a model, without running the folder's code. If `trained`, it must have a head."""
    for name in (CONFIG, _WEIGHTS, _TOKENIZER):
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing: the folder of an encoder must contain this file")
    if (folder / _ADAPTER).is_file():
        raise BadInput(f"{folder / _ADAPTER} is of an adapter, which is not applied: merge it into {_WEIGHTS}")
    values = read_values(folder)
    if values.get("quantization_config"):
        raise BadInput(f"{folder / CONFIG}: quantization_config says that the weights are quantized: "
                       "choose the model in full precision")  # fmt: skip
    if trained or has_head(values):
        names = dict(enumerate(described_head(folder, values).names))
        values |= {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    with bad_input_for(f"{folder / CONFIG} is not the configuration of a known encoder"):
        config = _class_of(folder, values.get("model_type")).from_dict(values)
    if config.is_encoder_decoder:
        raise BadInput(
            f"{folder} contains an encoder-decoder model ({config.model_type}): choose a model without a decoder"
        )
    return config


def load_weights(kind: Any, folder: Path, config: Any) -> PreTrainedModel:
    """Load a model of one of transformers' auto classes in fp32. Only the weights of a pooler may be missing."""
    file = folder / _WEIGHTS
    with bad_input_for(f"{file} cannot be read into the model that config.json describes: fetch the model again"):
        model, report = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
            local_files_only=True, trust_remote_code=False,
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise BadInput(f"{file} lacks {len(missing)} weights, for example {missing[0]}: "
                       "use the file that belongs to config.json")  # fmt: skip
    if unknown := _of_its_parts(model, report["unexpected_keys"]):
        raise BadInput(f"{file} has {len(unknown)} weights that the model of config.json does not have, for example "
                       f"{unknown[0]}: use the files that belong together")  # fmt: skip
    return cast(PreTrainedModel, model)


def open_pretrained_tokenizer(folder: Path, **values: Any) -> Any:
    """Return the tokenizer of a folder with some other values, for `save_pretrained`.

    AutoTokenizer would build another tokenizer than that of tokenizer.json for some of transformers' classes.
    """
    with bad_input_for(f"{folder} does not contain a valid tokenizer: fetch the model again"):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, **values, local_files_only=True)
    for key in CODE:
        tokenizer.init_kwargs.pop(key, None)  # which `save_pretrained` would write
    return tokenizer


def longest_input(folder: Path, encoder: PreTrainedModel) -> int:
    """Return the maximum length of an input in tokens; raise BadInput if tokenizer and encoder set no limit."""
    limit, positions = open_pretrained_tokenizer(folder).model_max_length, positions_of(encoder)
    file = folder / "tokenizer_config.json"
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
        raise BadInput(f"{file}: model_max_length is {limit!r}: write the maximum number of tokens of an input")
    longest = min(limit, positions or limit)  # A tokenizer that sets no limit names a very large one.
    if longest > _LONGEST:
        raise BadInput(f"{folder} does not say how long an input may be: write the maximum number of tokens, at most "
                       f"{_LONGEST}, as model_max_length into {file.name}")  # fmt: skip
    return int(longest)


def check_fit(folder: Path, encoder: Any, max_length: int) -> None:
    """Raise BadInput if the encoder lacks embeddings for the tokenizer's words, or positions for max_length tokens."""
    words = 1 + max(open_pretrained_tokenizer(folder).get_vocab().values(), default=-1)
    if words > encoder.config.vocab_size:
        raise BadInput(f"{folder}: the tokenizer has {words} words, but the encoder only {encoder.config.vocab_size}. "
                       "tokenizer.json belongs to another model: fetch the model again")  # fmt: skip
    positions = positions_of(encoder)
    if positions is not None and max_length > positions:
        raise BadInput(
            f"preprocessing.max_length is {max_length}, but the encoder in {folder} has {positions} positions: "
            f"write preprocessing.max_length: {positions} or less"
        )


def positions_of(encoder: PreTrainedModel) -> int | None:
    """Return the maximum length of an input in tokens, or None if the encoder sets no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    return None if limit is None or limit <= 0 else limit - first_position(encoder)


def _class_of(folder: Path, kind: Any) -> Any:
    if isinstance(kind, str) and kind in CONFIG_MAPPING:
        return CONFIG_MAPPING[kind]
    code = named_code(folder)
    never = f", and the code that it names is never run ({code})" if code else ""
    raise ValueError(f"transformers has no model_type {kind!r}{never}: choose a model of a family that it has")


def _of_its_parts(model: PreTrainedModel, names: Iterable[str]) -> list[str]:
    """Return those names of weights that begin with a part of the model, except a pooler that the head may not use."""
    inside = f"{model.base_model_prefix}."
    parts = {name for each in (model, model.base_model) for name, _ in each.named_children()} - {"pooler", inside[:-1]}
    return sorted(name for name in names if name.removeprefix(inside).partition(".")[0] in parts)
