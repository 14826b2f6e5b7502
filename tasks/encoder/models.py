"""Models: a pretrained encoder with a head, and how they are loaded and saved."""

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

transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # _load_weights checks what a load reports
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
HEAD_WEIGHTS, HEAD_SPEC = "head.safetensors", "head.json"


class EncoderWithHead(nn.Module):
    """An encoder with a head, which each subclass adds.

    Attributes:
        encoder: the pretrained encoder.
        segments: whether the encoder distinguishes the segments of a pair.
    """

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.segments = getattr(encoder.config, "type_vocab_size", 0) > 1

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Run the encoder.

        Args:
            input_ids: token ids, [batch, tokens].
            attention_mask: 1 for tokens and 0 for padding, [batch, tokens].
            token_type_ids: segment of each token, [batch, tokens]. It is ignored if the encoder has no segments.
            packing: the packing of the batch. If it is given, padding is not computed and its output is zero.

        Returns:
            The output for every token, [batch, tokens, hidden].
        """
        segments = {"token_type_ids": token_type_ids} if self.segments and token_type_ids is not None else {}
        if packing is not None:
            return encode_packed(self.encoder, packing, input_ids=input_ids, **segments)
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **segments)
        return cast(torch.Tensor, output.last_hidden_state)

    def save(self, folder: Path) -> None:
        """Write the encoder in the format of AutoModel (config.json and model.safetensors).

        Raises:
            Transient: if the files cannot be written, for example because the disk is full.
        """
        try:
            self.encoder.save_pretrained(folder)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error


class Classifier(EncoderWithHead):
    """An encoder followed by pooling, dropout and a linear head.

    Args:
        encoder: the pretrained encoder.
        spec: the head, whose weights are drawn from torch's generator.
    """

    def __init__(self, encoder: PreTrainedModel, spec: HeadSpec) -> None:
        super().__init__(encoder)
        self.spec = spec
        self.dropout = nn.Dropout(spec.dropout)
        self.head = nn.Linear(encoder.config.hidden_size, spec.outputs)
        nn.init.normal_(self.head.weight, std=0.02)  # like BERT's layers (Devlin et al. 2019)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Compute logits, or scores for a regression.

        Args:
            input_ids: token ids, [batch, tokens].
            attention_mask: 1 for tokens and 0 for padding, [batch, tokens].
            token_type_ids: segment of each token, [batch, tokens]; None if all are in the first segment.
            packing: the packing of the batch, if it is packed.

        Returns:
            Logits or scores, float32 [batch, outputs].
        """
        tokens = self.encode(input_ids, attention_mask, token_type_ids, packing)
        sentence = tokens[:, 0] if self.spec.pooling == "cls" else _mean(tokens, attention_mask)
        logits = self.head(self.dropout(sentence)).float()
        if self.spec.score_range is None:
            return cast(torch.Tensor, logits)
        low, high = self.spec.score_range
        return cast(torch.Tensor, low + (high - low) * (logits + 0.5))  # a logit of 0 is the middle of the range

    def save(self, folder: Path) -> None:
        """Write the encoder as the base class does, and the head to the same folder.

        Raises:
            Transient: if the files cannot be written, for example because the disk is full.
        """
        super().save(folder)
        head = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
        try:
            save_file(head, folder / HEAD_WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error
        write_json(folder / HEAD_SPEC, dataclasses.asdict(self.spec))


def load_pretrained(folder: Path, spec: HeadSpec) -> Classifier:
    """Load a pretrained encoder and add a head.

    The weights of the head are drawn from torch's generator, unless Classifier.save wrote the folder and the head there
    predicts the same labels or the same range of scores. In that case the head is loaded too.

    Args:
        folder: the folder of the encoder.
        spec: the head.

    Returns:
        The model in training mode.

    Raises:
        BadInput: if files are missing or damaged, do not fit one another or do not allow inputs of spec.max_length
            tokens.
    """
    model = Classifier(load_encoder(folder, spec.max_length), spec)
    if (folder / HEAD_SPEC).is_file():
        trained, weights = _read_head(folder)
        if _meaning(trained) == _meaning(spec):
            _load_head(model, weights, folder)
    return model.train()


def load_trained(folder: Path) -> Classifier:
    """Load a model that Classifier.save wrote.

    Returns:
        The model in evaluation mode.

    Raises:
        BadInput: if files are missing or damaged.
    """
    spec, weights = _read_head(folder)
    model = Classifier(_load_encoder(folder), spec)
    _load_head(model, weights, folder)
    return model.eval()


def _read_head(folder: Path) -> tuple[HeadSpec, dict[str, torch.Tensor]]:
    """Read the description and the weights of the head in a model's folder."""
    try:
        values = json.loads((folder / HEAD_SPEC).read_text(encoding="utf-8"))
        values["label_names"] = tuple(values["label_names"])
        values["score_range"] = values["score_range"] and tuple(values["score_range"])
        return HeadSpec(**values), load_file(folder / HEAD_WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise BadInput(f"{folder} does not hold a trained head ({error}): run the stage train again") from error


def _load_head(model: Classifier, weights: dict[str, torch.Tensor], folder: Path) -> None:
    try:
        model.head.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"{folder / HEAD_WEIGHTS} does not match {HEAD_SPEC}: run the stage train again") from error


def load_encoder(folder: Path, max_length: int) -> PreTrainedModel:
    """Load a pretrained encoder without a head.

    Args:
        folder: the folder of the encoder.
        max_length: maximum length of an input in tokens.

    Returns:
        The encoder in fp32 and evaluation mode.

    Raises:
        BadInput: if files are missing or damaged, do not fit one another or do not allow inputs of max_length tokens.
    """
    encoder = _load_encoder(folder)
    _check_fit(folder, encoder, max_length)
    return encoder


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy the tokenizer of one model's folder to another, in the format of AutoTokenizer."""
    _tokenizer(source).save_pretrained(target)


def _meaning(spec: HeadSpec) -> tuple[Any, ...]:
    """Return what determines the meaning of a head's outputs."""
    return spec.kind, spec.outputs, spec.label_names, spec.score_range


def _mean(tokens: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the mean over the tokens without padding, [batch, hidden]."""
    mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens * mask).sum(1) / mask.sum(1)


def _load_encoder(folder: Path) -> PreTrainedModel:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing: the folder of an encoder must contain this file")
    local = {"local_files_only": True, "trust_remote_code": False}
    with _bad_input_for(f"{folder / 'config.json'} is not the configuration of a known encoder"):
        config = AutoConfig.from_pretrained(folder, **local)
    if config.is_encoder_decoder:
        raise BadInput(
            f"{folder} contains an encoder-decoder model ({config.model_type}): choose a model without a decoder"
        )
    return _load_weights(folder, config, local)


def _load_weights(folder: Path, config: Any, local: dict[str, Any]) -> PreTrainedModel:
    weights = f"{folder / 'model.safetensors'} cannot be read into the encoder that config.json describes"
    with _bad_input_for(f"{weights}: fetch the model again"):
        encoder, report = AutoModel.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **local
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise BadInput(f"{folder / 'model.safetensors'} lacks {len(missing)} weights, for example {missing[0]}: "
                       "use the file that belongs to config.json")  # fmt: skip
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # Its output is not used, and its parameters would take memory.
    return cast(PreTrainedModel, encoder)


@contextmanager
def _bad_input_for(what: str) -> Iterator[None]:
    """Raise BadInput for any error within, because transformers has no class of errors for damaged files."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        message = shorten(" ".join(str(error).split()))
        raise BadInput(f"{what} ({type(error).__name__}: {message})") from error


def _tokenizer(folder: Path) -> Any:
    with _bad_input_for(f"{folder} does not contain a valid tokenizer: fetch the model again"):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _check_fit(folder: Path, encoder: PreTrainedModel, max_length: int) -> None:
    words = len(_tokenizer(folder))
    if words > encoder.config.vocab_size:
        raise BadInput(f"{folder}: the tokenizer has {words} words, but the encoder only {encoder.config.vocab_size}. "
                       "tokenizer.json belongs to another model: fetch the model again")  # fmt: skip
    positions = _positions(encoder)
    if positions is not None and max_length > positions:
        raise BadInput(
            f"preprocessing.max_length is {max_length}, but the encoder in {folder} has {positions} positions: "
            f"write preprocessing.max_length: {positions} or less"
        )


def _positions(encoder: PreTrainedModel) -> int | None:
    """Return the maximum length of an input in tokens, or None if the encoder sets no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    return None if limit is None else limit - first_position(encoder)
