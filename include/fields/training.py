"""The model and its training: pre-training, batches, the loss and fine-tuning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator

from include.fields.base import Fraction, PositiveShare, Section, Seed, Share, known_name, listed_names
from include.glue import LOSSES, Metric
from include.text import shown

_Epochs = Annotated[float, Field(gt=0, le=100)]
_Rows = Annotated[int, Field(ge=1, le=65536)]
_LearningRate = Annotated[float, Field(gt=0, le=0.1)]


#: What `model.teacher` names if the champion is the teacher.
CHAMPION = "champion"


class Model(Section):
    """The pretrained encoder and the head on top of it, or a baseline."""

    kind: Literal["encoder", "frozen", "tfidf", "textcnn"] = Field(
        "encoder",
        description="What is trained. encoder: the encoder with its head is fine-tuned. The others are baselines: "
        "frozen: a logistic or linear regression on the encoder's pooled output; tfidf: the same on TF-IDF of tokens "
        "and pairs of neighboring tokens; textcnn: convolutions over word vectors of the training rows (a "
        "training.learning_rate of 0.001 is a good start). tfidf and textcnn use only the encoder's tokenizer.",
    )
    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description="The pretrained encoder: the name of a bundled encoder, a local folder (a path that starts with / "
        "or ./) or a name on the Hugging Face hub.",
        examples=["all-MiniLM-L6-v2", "all-mpnet-base-v2"],
    )
    lexicon: str = Field(
        "",
        description="Terms of the domain that the encoder reads as one token each, where its tokenizer would split "
        "them: the name of a bundled list (film) or a text file with one term per line (a path that starts with / or "
        "./). The embedding of a term starts as the mean of those of its pieces. If empty, no terms are added.",
        examples=["film"],
    )
    pooling: Literal["native", "mean", "cls"] = Field(
        "native",
        description="The head on top of the encoder. native: the one that transformers defines for the encoder's "
        "family, so that every tool can load the model; mean: a linear layer on the mean of the token embeddings; cls: "
        "a linear layer on the embedding of the first token.",
    )
    dropout: Fraction = Field(0.1, description="Dropout probability before the head.")
    teacher: str = Field(
        "",
        description="A trained model from which this one learns in addition to the labels: champion (that of the same "
        "dataset or task), the name of a run, or the folder of a model or a package (a path with a slash). If empty, "
        "there is none.",
        examples=["champion", "data/teacher/"],
    )

    @property
    def teacher_run(self) -> str:
        """The name of the run that is the teacher; "" if there is no teacher, or it is named otherwise."""
        is_path = "/" in self.teacher or self.teacher.startswith("~")
        return "" if is_path or self.teacher == CHAMPION else self.teacher


class Pretraining(Section):
    """Domain pre-training: masked language modeling on unlabeled text before fine-tuning."""

    text: str = Field(
        "",
        description="A file of unlabeled text, plain or gzip-compressed, with one document per line, on which the "
        "encoder is pre-trained before it is fine-tuned. If empty, there is no pre-training.",
        examples=["data/imdb/unsupervised.txt.gz"],
    )
    epochs: _Epochs = Field(1, description="Number of passes over the text. Fractions such as 0.5 are allowed.")
    batch_size: _Rows = Field(
        32, description="Number of blocks of max_length tokens per step. For batching.kind length and static."
    )
    learning_rate: _LearningRate = Field(5e-5, description="Peak learning rate of the schedule.")
    whole_words: bool = Field(False, description="Mask all tokens of a word together.")
    seed: Seed = Field(1, description="Random seed of the masks and of the order of the blocks.")


class Batching(Section):
    """How rows are grouped into batches, one batch per step."""

    kind: Literal["length", "tokens", "tiers", "static"] = Field(
        "length",
        description="How rows are grouped into batches. length: training.batch_size rows of similar length; tokens: as "
        "many rows of similar length as fit into batch_tokens; tiers: 128, 64, 32 or 16 rows, depending on their mean "
        "length; static: training.batch_size random rows, padded to preprocessing.max_length.",
    )
    batch_tokens: int = Field(4096, ge=512, le=2**24, description="Maximum of padded tokens per step. For kind tokens.")
    padding_free: bool = Field(
        False,
        description="Concatenate the rows of a batch into one sequence of tokens, so that no padding is computed. It "
        "saves time on a GPU. An encoder that cannot do so, such as DeBERTa, is trained with padding and a warning.",
    )


def _losses() -> list[str]:
    return ["auto", *LOSSES]


class Loss(Section):
    """The loss that training minimizes."""

    kind: Annotated[str, known_name("loss", _losses), listed_names(_losses)] = Field(
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
        2.0, ge=0, le=10, description="Gamma of the focal loss: the larger, the less well-classified rows contribute."
    )
    huber_delta: float = Field(1.0, gt=0, description="Error in scores from which the Huber loss grows linearly.")


class Distillation(Section):
    """Learning from the logits of model.teacher."""

    text: str = Field(
        "",
        description="A file of unlabeled texts, plain or gzip-compressed, with one per line, which the teacher labels. "
        "Lines that are longer than nearly all training rows are divided into sentences. For single texts.",
        examples=["data/imdb/unsupervised.txt.gz"],
    )
    max_rows: int = Field(
        0, ge=0, description="Maximum number of unlabeled rows, which are chosen at random. 0: all of the text."
    )
    temperature: float = Field(
        2.0,
        gt=0,
        le=100,
        description="The logits of both models are divided by it: the higher, the more the labels count that the "
        "teacher does not choose. For classification and multi-label.",
    )
    weight: Share = Field(
        0.5,
        description="Weight of the loss with regard to the teacher in rows that have a label. The loss with regard to "
        "the label has the rest.",
    )


class Training(Section):
    """Fine-tuning of the model."""

    epochs: _Epochs = Field(2, description="Passes over the training split. Fractions such as 0.5 are allowed.")
    batch_size: _Rows = Field(32, description="Rows per step, over all ranks. For batching.kind length and static.")
    learning_rate: _LearningRate = Field(5e-5, description="Peak learning rate of the schedule.")
    weight_decay: Share = Field(0.01, description="Weight decay of AdamW, except for biases and normalization layers.")
    warmup: Share = Field(
        0.06, description="Share of the steps in which the learning rate rises. After that it falls linearly to 0."
    )
    layer_decay: PositiveShare = Field(
        1.0, description="Factor of the learning rate from each layer to the one below. 1: all have the same rate."
    )
    head_rate: float = Field(1.0, gt=0, le=1000, description="Learning rate of the head, relative to the top layer's.")
    freeze_layers: int = Field(
        0, ge=0, le=100, description="Number of the lowest layers that are not trained, nor the embeddings below."
    )
    lora_rank: int = Field(
        0,
        ge=0,
        le=1024,
        description="Rank of LoRA's adapters. If it is not 0, only the adapters and the head are trained, which "
        "usually needs a higher learning rate. The saved model contains the adapters.",
    )
    lora_alpha: int = Field(
        16, ge=1, description="Scale of LoRA's adapters: their output is multiplied by lora_alpha / lora_rank."
    )
    lora_targets: Literal["attention", "all"] = Field(
        "attention",
        description="The linear layers that get LoRA's adapters. attention: those of attention; all: also those of the "
        "feed-forward networks.",
    )
    sparse_embeddings: bool = Field(
        True,
        description="Compute, exchange and apply the gradient of the word embeddings only for the words of a batch. "
        "Momentum and weight decay of the steps without a word are applied when it occurs again. The result equals "
        "that of dense AdamW up to rounding, unless gradients are as small as 1e-8.",
    )
    accumulation: int = Field(1, ge=1, le=1024, description="Micro-batches per step and rank. More need less memory.")
    clip_norm: float = Field(1.0, gt=0, description="Norm of the whole gradient above which it is scaled down.")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="Number format of the forward and backward pass. auto: bf16 if the GPUs or CPUs of all ranks "
        "compute in it, else fp16 on GPUs that compute in that, else fp32. Weights are always kept in fp32. With fp16, "
        "the loss is scaled dynamically.",
    )
    fused_layers: bool = Field(
        True, description="On CPUs, train the layers of BERT and MPNet with kernels in C++, and use faster dropout."
    )
    compiled_layers: bool = Field(
        False,
        description="Compile the encoder's layers with torch.compile, in place of fused_layers. The first training "
        "waits a minute or more for it; later ones find the code in the cache folder. For GPUs. It needs a C++ "
        "compiler, which the images do not contain.",
    )
    activation_checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass, which saves memory and takes longer."
    )
    ranks: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = Field(
        "auto",
        description="Number of ranks, the processes that train together. batch_size must be a multiple of it if "
        "batching.kind is length or static. auto: one per GPU of the machine; without a GPU one, or, in "
        "long trainings and if Horovod is installed, the number with which some timed steps were the fastest.",
    )
    evaluations: int = Field(2, ge=1, le=1000, description="Number of evaluations on the dev split per epoch.")
    best_by: Literal["metric", "loss", Metric] = Field(
        "metric",
        description="How the best checkpoint is selected on the dev split. metric: by the task's selection metric "
        "(accuracy for most, which says little if a class is rare); loss: by the loss; or by a metric of the gate, "
        "such as f1.",
    )
    patience: int = Field(4, ge=0, description="Evaluations without improvement after which training stops. 0: never.")
    average_decay: Fraction = Field(
        0.0, description="Decay per step of the weights' exponential moving average, which is then kept. 0: none."
    )
    seed: Seed = Field(1, description="Random seed of the head's weights, of dropout and of the order of the rows.")

    @field_validator("ranks", mode="wrap")
    @classmethod
    def _ranks_are_auto_or_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:  # For a union, pydantic reports one error per member, which would confuse the user.
            raise ValueError(
                f"{shown(value)} is not a number of ranks: write auto, or a whole number from 1 to 1024"
            ) from None
