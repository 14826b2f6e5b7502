"""Training: batches, the loss, fine-tuning and the domain pre-training before it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator

from include.glue import Metric
from include.losses import LOSSES
from include.sections.base import Section, Share, known_name, listed_names
from include.written import shown


class Pretraining(Section):
    """Domain pre-training: masked language modeling on unlabeled text before fine-tuning."""

    text: str = Field(
        "",
        description="A file of unlabeled text, plain or gzip-compressed, with one document per line. If it is set, the "
        "encoder is pre-trained on this text and then fine-tuned. If it is empty, there is no pre-training.",
        examples=["data/imdb/unsupervised.txt.gz"],
    )
    epochs: float = Field(
        1, gt=0, le=100, description="Number of passes over the text. Fractions are allowed, for example 0.5."
    )
    batch_size: int = Field(
        32,
        ge=1,
        le=65536,
        description="Number of blocks per step, over all ranks. A block has preprocessing.max_length tokens. Applies "
        "only if batching.kind is length or static.",
    )
    learning_rate: float = Field(5e-5, gt=0, le=0.1, description="Peak learning rate of the schedule.")
    whole_words: bool = Field(False, description="Mask all tokens of a word together.")
    seed: int = Field(1, ge=0, lt=2**31, description="Random seed of the masks and of the order of the blocks.")


class Batching(Section):
    """How rows are grouped into batches, one batch per step."""

    kind: Literal["length", "tokens", "tiers", "static"] = Field(
        "length",
        description="How rows are grouped into batches. length: training.batch_size rows of similar length; tokens: as "
        "many rows of similar length as fit into batching.batch_tokens; tiers: 128, 64, 32 or 16 rows, depending on "
        "their average length; static: training.batch_size random rows, padded to preprocessing.max_length.",
    )
    batch_tokens: int = Field(
        4096,
        ge=512,
        le=2**24,
        description="Maximum number of tokens per step, including padding. Applies only if batching.kind is tokens.",
    )
    padding_free: bool = Field(
        False,
        description="Concatenate the rows of a batch into one sequence of tokens, so that no padding is computed. It "
        "saves time on a GPU. An encoder that cannot do so, such as DeBERTa, is trained with padding, and a warning "
        "says so.",
    )


def _losses() -> list[str]:
    return ["auto", *LOSSES]


LossName = Annotated[str, known_name("loss", _losses), listed_names(_losses)]


class Loss(Section):
    """The loss that training minimizes."""

    kind: LossName = Field(
        "auto",
        description="The loss function. auto: cross-entropy for classification, binary cross-entropy of every label "
        "for multi-label, mean squared error (mse) for regression. focal is for classification and multi-label, huber "
        "for regression.",
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none",
        description="Weights of the classes in the loss. balanced: inversely proportional to the number of training "
        "rows of the class. For classification.",
    )
    focal_gamma: float = Field(
        2.0,
        ge=0,
        le=10,
        description="Focusing parameter gamma of the focal loss. The larger it is, the less do well-classified rows "
        "contribute.",
    )
    huber_delta: float = Field(
        1.0,
        gt=0,
        description="Error, in units of the score, above which the Huber loss grows linearly instead of quadratically.",
    )


class Training(Section):
    """Fine-tuning of the model."""

    epochs: float = Field(
        2, gt=0, le=100, description="Number of passes over the training split. Fractions are allowed, for example 0.5."
    )
    batch_size: int = Field(
        32,
        ge=1,
        le=65536,
        description="Number of rows per step, over all ranks. Applies only if batching.kind is length or static.",
    )
    learning_rate: float = Field(5e-5, gt=0, le=0.1, description="Peak learning rate of the schedule.")
    weight_decay: float = Field(
        0.01, ge=0, le=1, description="Weight decay of AdamW. It does not apply to biases and normalization layers."
    )
    warmup: Share = Field(
        0.06,
        description="Share of the steps during which the learning rate rises to its peak, between 0 and 1. After that "
        "it decreases linearly to 0.",
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Factor by which the learning rate decreases from each layer of the encoder to the layer below it. "
        "1 gives all layers the same learning rate.",
    )
    head_rate: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="Learning rate of the head, as a multiple of the learning rate of the encoder's top layer.",
    )
    freeze_layers: int = Field(
        0,
        ge=0,
        le=100,
        description="Number of layers that are not trained, counted from the bottom of the encoder. If it is not 0, "
        "the embeddings are not trained either.",
    )
    lora_rank: int = Field(
        0,
        ge=0,
        le=1024,
        description="Rank of LoRA's adapters. If it is not 0, the encoder's own weights are not trained, but only the "
        "adapters and the head, which usually needs a higher learning rate. The saved model contains the adapters.",
    )
    lora_alpha: int = Field(
        16, ge=1, description="Scale of LoRA's adapters: their output is multiplied by lora_alpha / lora_rank."
    )
    lora_targets: Literal["attention", "all"] = Field(
        "attention",
        description="Which linear layers get LoRA's adapters. attention: those of attention; all: also those of the "
        "feed-forward networks.",
    )
    sparse_embeddings: bool = Field(
        True,
        description="Compute and exchange the gradient of the word embeddings, and update them, only for the words of "
        "a batch. The momentum and weight decay of the steps in which a word did not occur are applied when it occurs "
        "again (with a parameter server one step later, when its gradient arrives). The result equals that of dense "
        "AdamW up to rounding, unless gradients are as small as 1e-8.",
    )
    accumulation: int = Field(
        1,
        ge=1,
        le=1024,
        description="Number of micro-batches into which each rank divides its part of a step. More micro-batches need "
        "less memory.",
    )
    clip_norm: float = Field(
        1.0, gt=0, description="Largest norm of the gradient of all parameters together. A larger one is scaled down."
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Number format of the forward and backward pass. auto is bf16 if the GPUs or CPUs of all ranks "
        "compute in it, else fp16 on GPUs that compute in that, else fp32, because CPUs that only emulate bf16 are "
        "slower with it. Weights are always kept in fp32. With fp16, the loss is scaled dynamically.",
    )
    fused_layers: bool = Field(
        True,
        description="Use faster implementations on a CPU: of dropout, and with bf16 also of the forward and backward "
        "pass of the layers of BERT and MPNet if batches are padded.",
    )
    compiled_layers: bool = Field(
        False,
        description="Compile the training passes of the encoder's layers with torch.compile, in the place of "
        "fused_layers. The first training waits a minute or more for it; later ones find the code in the cache folder. "
        "It is for GPUs, and needs a C++ compiler, which the images do not contain.",
    )
    activation_checkpointing: bool = Field(
        False,
        description="Discard the activations inside each layer and compute them again in the backward pass. It saves "
        "memory and takes longer.",
    )
    ranks: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = Field(
        "auto",
        description="Number of ranks, which are processes that train together, or auto. If batching.kind is length or "
        "static, batch_size must be a multiple of it. auto: one per GPU of the machine; without a GPU a single one, "
        "with one thread per CPU that the machine or the container grants.",
    )
    evaluations: int = Field(2, ge=1, le=1000, description="Number of evaluations on the dev split per epoch.")
    best_by: Literal["metric", "loss", Metric] = Field(
        "metric",
        description="How the best model is selected on the dev split. metric: by the task's selection metric (accuracy "
        "for most, which says little if a class is rare); loss: by the loss; or the name of a metric that the gate can "
        "require, such as f1.",
    )
    patience: int = Field(
        4,
        ge=0,
        description="Number of evaluations without improvement after which training stops early. 0 turns early "
        "stopping off.",
    )
    average_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Decay per step of an exponential moving average of the weights. If it is not 0, the averaged "
        "weights are evaluated and kept.",
    )
    seed: int = Field(
        1, ge=0, lt=2**31, description="Random seed of the head's weights, of dropout and of the order of the rows."
    )

    @field_validator("ranks", mode="wrap")
    @classmethod
    def _ranks_are_auto_or_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:  # For a union, pydantic reports one error per member, which would confuse the user.
            raise ValueError(
                f"{shown(value)} is not a number of ranks: write auto, or a whole number from 1 to 1024"
            ) from None
