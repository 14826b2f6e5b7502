"""Models: a pretrained encoder with a head."""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from include.stages import Transient
from tasks.encoder.adapters import ADAPTER, merged, save_adapters
from tasks.encoder.batching import Packing
from tasks.encoder.spec import HeadSpec


class EncoderWithHead(nn.Module):
    """An encoder with a head.

    Attributes:
        model: the encoder as transformers defines it, with or without a head of its own.
        segments: whether the encoder distinguishes the segments of a pair.
        packs: whether the model was enabled to compute packed batches (allow_packing).
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.segments = getattr(self.encoder.config, "type_vocab_size", 0) > 1
        self.packs = False

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
        """Run transformers' model.

        Args:
            input_ids: token ids, [batch, tokens].
            attention_mask: 1 for tokens and 0 for padding, [batch, tokens].
            token_type_ids: segment of each token, [batch, tokens]. It is ignored if the encoder has no segments.
            packing: the packing of the batch, if the model packs. Padding is then not computed, and its output is 0.

        Returns:
            Logits, [batch, outputs], or the output of an encoder without a head, [batch, tokens, hidden].
        """
        inputs = {"token_type_ids": token_type_ids} if self.segments and token_type_ids is not None else {}
        more = {} if packing is None else {"packing": packing}
        return cast(torch.Tensor, self.model(input_ids=input_ids, attention_mask=attention_mask, **inputs, **more)[0])

    def save(self, folder: Path) -> None:
        """Write the model in transformers' format (config.json and model.safetensors), and its adapters in peft's.

        Raises:
            Transient: if the files cannot be written, for example because the disk is full.
        """
        try:
            self.model.save_pretrained(folder, state_dict=self.weights())
            save_adapters(self.encoder, folder / ADAPTER)
            for weights in folder.rglob("*.safetensors"):  # which safetensors lets nobody but their owner read
                weights.chmod((folder / "config.json").stat().st_mode)
        except (OSError, SafetensorError) as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights that `save` writes. They contain those of adapters."""
        return merged(self.model)


class Classifier(EncoderWithHead):
    """A model for sequence classification.

    The model's outputs for a regression are positions within the range of scores: 0 is the middle of the range, and
    its ends are -0.5 and 0.5. So a training behaves the same for all ranges. What `save` writes predicts scores.
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


def head_modules(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the modules of a model that are not in its encoder, by name and in their order."""
    inside = set(model.base_model.modules())
    return {name: part for name, part in model.named_modules() if part not in inside}


def output_layer_name(model: PreTrainedModel) -> str:
    """Return the name of the linear layer that computes the outputs of a model for sequence classification."""
    return [name for name, part in head_modules(model).items() if isinstance(part, nn.Linear)][-1]
