"""Models: a pretrained encoder with a head for classification or for masked language modeling."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from include.artifacts import sync
from include.stages import Transient
from tasks.encoder.adapters import ADAPTER, merged, save_adapters
from tasks.encoder.batching import Array, Packing, TokenTable, length_batches
from tasks.encoder.spec import HeadSpec
from tasks.encoder.windows import pool

WEIGHTS = "model.safetensors"


class EncoderWithHead(nn.Module):
    """An encoder with a head, which transformers' model may contain already."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.segments = getattr(self.encoder.config, "type_vocab_size", 0) > 1  # whether it has those of pairs
        self.packs = False  # whether it was enabled to compute packed batches (allow_packing)

    @property
    def encoder(self) -> PreTrainedModel:
        """The encoder without a head."""
        return cast(PreTrainedModel, self.model.base_model)

    @property
    def encoder_prefix(self) -> str:
        """What the names of the encoder's parameters begin with."""
        return next(f"{name}." for name, module in self.named_modules() if module is self.encoder)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def run(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Return logits, [batch, outputs], or the output of an encoder without a head, [batch, tokens, hidden].

        With a packing, which the model must have been enabled for, padding is not computed, and its output is 0.
        """
        inputs = {"token_type_ids": token_type_ids} if self.segments and token_type_ids is not None else {}
        more = {} if packing is None else {"packing": packing}
        return cast(torch.Tensor, self.model(input_ids=input_ids, attention_mask=attention_mask, **inputs, **more)[0])

    def save(self, folder: Path) -> None:
        """Write the model in transformers' format (config.json and model.safetensors), and its adapters in peft's."""
        try:
            self.model.save_pretrained(folder, state_dict=self.weights())
            save_adapters(self.encoder, folder / ADAPTER)
            for weights in folder.rglob("*.safetensors"):  # which safetensors makes readable only for their owner
                weights.chmod((folder / "config.json").stat().st_mode)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that `save` writes, which contain those of adapters."""
        return merged(self.model)


class Classifier(EncoderWithHead):
    """A model for sequence classification. What `save` writes predicts scores if it is a regression.

    In training, its outputs are positions from -0.5 to 0.5 in the range of scores, so it behaves the same for all.
    """

    def __init__(self, model: PreTrainedModel, spec: HeadSpec) -> None:
        super().__init__(model)
        self.spec = spec

    @classmethod
    def of_saved(cls, model: PreTrainedModel, spec: HeadSpec) -> Self:
        """Return the classifier of a model that `save` has written."""
        classifier = cls(model, spec)
        if spec.score_range is not None:
            low, high = spec.score_range
            layer = classifier.output_layer
            with torch.no_grad():  # the inverse of `weights`
                layer.weight.div_(high - low)
                layer.bias.sub_(low).div_(high - low).sub_(0.5)
        return classifier

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Return logits, or scores for a regression, float32 [batch, outputs]: see `run` for the arguments."""
        logits = self.run(input_ids, attention_mask, token_type_ids, packing).float()
        if self.spec.score_range is None:
            return logits
        low, high = self.spec.score_range
        return low + (high - low) * (logits + 0.5)

    @property
    def output_layer(self) -> nn.Linear:
        """The linear layer that computes the outputs."""
        return cast(nn.Linear, self.model.get_submodule(output_layer_name(self.model)))

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights of a model that predicts scores instead of positions within their range."""
        weights = super().weights()
        if self.spec.score_range is not None:
            low, high = self.spec.score_range
            name = output_layer_name(self.model)
            weights[f"{name}.weight"] = weights[f"{name}.weight"] * (high - low)
            weights[f"{name}.bias"] = low + (high - low) * (weights[f"{name}.bias"] + 0.5)
        return weights


def divide_logits(folder: Path, model: Classifier, divisor: float) -> None:
    """Divide the logits of the model that was loaded from a folder: in its file, not in memory.

    Only the weight and bias of the output layer change. Adapters and all other files are not concerned. A reader sees
    the old file or the new one.
    """
    file, layer = folder / WEIGHTS, output_layer_name(model.model)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with safe_open(file, "pt") as opened:
            metadata, weights = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            for name in [name for name, _ in model.output_layer.named_parameters(layer)]:
                weights[name] = (weights[name].double() / divisor).to(weights[name].dtype)
            save_file(weights, temporary, metadata)
        temporary.chmod(file.stat().st_mode)
        sync(temporary)
        temporary.replace(file)
    except (OSError, SafetensorError) as error:
        raise Transient(f"cannot write {file}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def head_modules(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the modules of a model that are not in its encoder, by name and in their order."""
    inside = set(model.base_model.modules())
    return {name: part for name, part in model.named_modules() if part not in inside}


def output_layer_name(model: PreTrainedModel) -> str:
    """Return the name of the linear layer that computes the outputs of a model for sequence classification."""
    return [name for name, part in head_modules(model).items() if isinstance(part, nn.Linear)][-1]


@torch.inference_mode()
def predict_logits(model: Classifier, table: TokenTable, batch_tokens: int = 8192) -> Array:
    """Return the logits of all documents of a table, float32 [documents, outputs]: see `batch_logits`."""
    logits = np.empty((len(table), model.spec.outputs), np.float32)
    for indices in length_batches(table.lengths, batch_tokens=batch_tokens):
        logits[indices] = batch_logits(model, table, indices)
    return pool(logits, table.rows)


@torch.no_grad()  # not inference_mode: weights that ranks gather here are used in the next training step as well
def batch_logits(model: Classifier, table: TokenTable, indices: Array) -> Array:
    """Compute the logits of the rows at some positions as one batch, without dropout, float32 [indices, outputs]."""
    training = model.training
    model.eval()
    batch = table.batch(indices).to(model.device)
    logits: Array = model(batch.input_ids, batch.attention_mask, batch.token_type_ids).float().cpu().numpy()
    model.train(training)
    return logits


class WordHead(nn.Module):
    """BERT's head for masked language modeling (Devlin et al. 2019). The decoder's weight is the word embeddings'."""

    def __init__(self, hidden: int, words: nn.Embedding, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, words.embedding_dim)
        self.norm = nn.LayerNorm(words.embedding_dim, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, tokens: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Return logits [tokens, vocabulary] of outputs [tokens, hidden] and embeddings [vocabulary, size]."""
        return functional.linear(self.norm(functional.gelu(self.dense(tokens))), words, self.bias)


class MaskedLanguageModel(EncoderWithHead):
    """An encoder with a head for masked language modeling. `save` writes only the encoder."""

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder)
        pooler = getattr(encoder, "pooler", None)
        if pooler is not None:  # It is not trained here, but the native head of a fine-tuning may use it.
            pooler.requires_grad_(False)
        epsilon = getattr(encoder.config, "layer_norm_eps", 1e-12)
        self.head = WordHead(encoder.config.hidden_size, self.words, epsilon)

    @property
    def words(self) -> nn.Embedding:
        """The word embeddings, whose weight is also that of the decoder."""
        return cast(nn.Embedding, self.encoder.get_input_embeddings())

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        places: torch.Tensor,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Return logits, float32 [places, vocabulary], of the tokens at some places of the flattened batch."""
        tokens = self.run(input_ids, attention_mask, token_type_ids, packing)
        return cast(torch.Tensor, self.head(tokens.flatten(0, 1)[places], self.words.weight).float())
