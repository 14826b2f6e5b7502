"""A pretrained encoder and what is trained on top of it, above all a classifier; how they are loaded and kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from include.artifacts import write_json
from include.stages import BadInput, Transient
from include.written import shorten
from tasks.encoder.packing import Packing
from tasks.encoder.padding_free import encode_packed, first_position
from tasks.encoder.spec import HeadSpec

transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # what a load reports is checked below
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
HEAD_WEIGHTS, HEAD_SPEC = "head.safetensors", "head.json"


class EncoderWithHead(nn.Module):
    """What is trained: an encoder under a head, which each subclass adds."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.segments = getattr(encoder.config, "type_vocab_size", 0) > 1

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """The encoder's output for every token, [batch, tokens, hidden], of ids [batch, tokens].

        With a packing, padding is not computed, and zero.
        """
        segments = {"token_type_ids": token_type_ids} if self.segments and token_type_ids is not None else {}
        if packing is not None:
            return encode_packed(self.encoder, packing, input_ids=input_ids, **segments)
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **segments)
        return cast(torch.Tensor, output.last_hidden_state)

    def save(self, folder: Path) -> None:
        """Write the encoder as AutoModel reads it (config.json, model.safetensors).

        Raises Transient when there is no room for it.
        """
        try:
            self.encoder.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error


class Classifier(EncoderWithHead):
    """An encoder, pooling, dropout and a linear head."""

    def __init__(self, encoder: PreTrainedModel, spec: HeadSpec) -> None:
        super().__init__(encoder)
        self.spec = spec
        self.dropout = nn.Dropout(spec.dropout)
        self.head = nn.Linear(encoder.config.hidden_size, spec.outputs)
        nn.init.normal_(self.head.weight, std=0.02)  # as BERT's own layers (Devlin et al. 2019)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Logits [batch, outputs] (scores for a regression), float32, of ids [batch, tokens]."""
        tokens = self.encode(input_ids, attention_mask, token_type_ids, packing)
        sentence = tokens[:, 0] if self.spec.pooling == "cls" else _mean(tokens, attention_mask)
        logits = self.head(self.dropout(sentence)).float()
        if self.spec.score_range is None:
            return cast(torch.Tensor, logits)
        low, high = self.spec.score_range
        return cast(torch.Tensor, low + (high - low) * (logits + 0.5))  # an untrained head says the middle

    def save(self, folder: Path) -> None:
        """Write the encoder as its base does, with the head beside it."""
        super().save(folder)
        head = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
        try:
            save_file(head, folder / HEAD_WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error
        write_json(folder / HEAD_SPEC, dataclasses.asdict(self.spec))


def load_pretrained(folder: Path, spec: HeadSpec) -> Classifier:
    """A pretrained encoder under a new head drawn from torch's generator, in training mode.

    A folder that Classifier.save wrote brings its head along, where that says the same things as the spec's: labels or
    range of scores. Raises BadInput when the folder's files are missing, damaged or do not fit each other or
    spec.max_length.
    """
    model = Classifier(load_encoder(folder, spec.max_length), spec)
    if (folder / HEAD_SPEC).is_file():
        trained, weights = _read_head(folder)
        if _says(trained) == _says(spec):
            _put_head(model, weights, folder)
    return model.train()


def load_trained(folder: Path) -> Classifier:
    """What Classifier.save wrote, in evaluation mode. Raises BadInput when it is damaged."""
    spec, weights = _read_head(folder)
    model = Classifier(_load_encoder(folder), spec)
    _put_head(model, weights, folder)
    return model.eval()


def _read_head(folder: Path) -> tuple[HeadSpec, dict[str, torch.Tensor]]:
    """What the head beside an encoder is, and its weights."""
    try:
        values = json.loads((folder / HEAD_SPEC).read_text(encoding="utf-8"))
        values["label_names"] = tuple(values["label_names"])
        values["score_range"] = values["score_range"] and tuple(values["score_range"])
        return HeadSpec(**values), load_file(folder / HEAD_WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise BadInput(f"{folder} does not hold a trained head ({error}): run the stage train again") from error


def _put_head(model: Classifier, weights: dict[str, torch.Tensor], folder: Path) -> None:
    try:
        model.head.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"{folder / HEAD_WEIGHTS} does not fit {HEAD_SPEC}: run the stage train again") from error


def load_encoder(folder: Path, max_length: int) -> PreTrainedModel:
    """A pretrained encoder alone, in fp32 and evaluation mode. Raises BadInput as load_pretrained does."""
    encoder = _load_encoder(folder)
    _check_fit(folder, encoder, max_length)
    return encoder


def copy_tokenizer(source: Path, target: Path) -> None:
    """Keep the tokenizer beside a model, as AutoTokenizer reads it."""
    _tokenizer(source).save_pretrained(target)


def _says(spec: HeadSpec) -> tuple[Any, ...]:
    """What a head's outputs mean."""
    return spec.kind, spec.outputs, spec.label_names, spec.score_range


def _mean(tokens: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that are not padding, [batch, hidden]."""
    mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1)


def _load_encoder(folder: Path) -> PreTrainedModel:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing: an encoder's folder holds it")
    local = {"local_files_only": True, "trust_remote_code": False}
    with _refused(f"{folder / 'config.json'} is not the configuration of a known encoder"):
        config = AutoConfig.from_pretrained(folder, **local)
    if config.is_encoder_decoder:
        raise BadInput(f"{folder} holds an encoder with a decoder ({config.model_type}): choose an encoder alone")
    return _load_weights(folder, config, local)


def _load_weights(folder: Path, config: Any, local: dict[str, Any]) -> PreTrainedModel:
    weights = f"{folder / 'model.safetensors'} cannot be read into the encoder that config.json describes"
    with _refused(f"{weights}: fetch the model again"):
        encoder, report = AutoModel.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **local
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise BadInput(f"{folder / 'model.safetensors'} lacks {len(missing)} weights, as {missing[0]}: "
                       "it is not the file that belongs to config.json")  # fmt: skip
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # its output is not used here, and a parameter without gradient costs memory
    return cast(PreTrainedModel, encoder)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise BadInput for whatever transformers raises over a file: for one that is wrong it has no class of errors."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        said = shorten(" ".join(str(error).split()))
        raise BadInput(f"{what} ({type(error).__name__}: {said})") from error


def _tokenizer(folder: Path) -> Any:
    with _refused(f"{folder} does not hold the files of a tokenizer: fetch the model again"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _check_fit(folder: Path, encoder: PreTrainedModel, max_length: int) -> None:
    words = len(_tokenizer(folder))
    if words > encoder.config.vocab_size:
        raise BadInput(f"{folder}: the tokenizer has {words} words and the encoder {encoder.config.vocab_size}: "
                       "tokenizer.json belongs to another model")  # fmt: skip
    positions = _positions(encoder)
    if positions is not None and max_length > positions:
        raise BadInput(f"preprocessing.max_length is {max_length}, but {folder} has {positions} positions: "
                       f"write preprocessing.max_length: {positions} or less")  # fmt: skip


def _positions(encoder: PreTrainedModel) -> int | None:
    """Longest input in tokens; None when the encoder sets no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    return None if limit is None else limit - first_position(encoder)
