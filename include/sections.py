"""The sections of an experiment, and the rules that stay within one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from include.text import has_control, is_blank, is_unwritable

TaskName = Literal[
    "movie-reviews", "SST-2", "CoLA", "STS-B", "MRPC", "QQP", "MNLI", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX",
    "classification", "regression",
]  # fmt: skip
Cleaning = Literal["html", "punctuation", "lowercase", "whitespace"]
Augmentation = Literal["synonyms", "masking", "order"]
Share = Annotated[float, Field(ge=0, le=1)]
#: A metric's threshold. Correlations reach down to -1; the others stop at 0 by themselves.
Threshold = Annotated[float, Field(ge=-1, le=1)] | None


class Section(BaseModel):
    """A part of the experiment: frozen, and deaf to keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        wrong = next(filter(is_unwritable, _texts(value)), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:80]!a} has a NUL or half a surrogate pair in it, which no file can hold")
        return value


def _texts(value: Any) -> Iterator[str]:
    """All texts in the value of a field."""
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for one in pair for text in _texts(one))
        case tuple():
            yield from (text for one in value for text in _texts(one))


class Data(Section):
    """What is learned, and from where."""

    task: TaskName = Field("movie-reviews", description="A row of the task registry (include/glue.py).")
    source: Literal["bundled", "glue", "hub", "files"] = Field(
        "bundled",
        description="bundled: the movie-review corpus that set-up fetches; glue: a folder in GLUE's layout; "
        "hub: GLUE from the hub, fetched beforehand; files: your own CSV, TSV or Parquet.",
    )
    path: str = Field("", description="The folder of a glue or files source.")
    train: str = Field("train.tsv", description="Files source: the training file, below path.")
    dev: str = Field("dev.tsv", description="Files source: the labelled file that metrics and gate use.")
    test: str = Field("test.tsv", description="Files source: the file to predict; its labels are not read.")
    columns: dict[Literal["sentence", "sentence2", "label"], str] = Field(
        {}, description='Files source: your column names, as {"sentence": "review", "label": "stars"}.'
    )
    keep: tuple[str, ...] = Field(
        (), description='Files source: columns of the test file to copy into its predictions, as ["id"].'
    )
    labels: tuple[str, ...] = Field(
        (), description="Tasks classification: the labels as your files write them, in the order of their ids."
    )
    score_range: tuple[float, float] | None = Field(None, description="Task regression: lowest and highest score.")

    @field_validator("labels")
    @classmethod
    def _labels_differ_and_can_be_written(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        for place, label in enumerate(labels):
            if is_blank(label):
                raise ValueError(f"the label {label!a} has no visible character: give it a name, in the files too")
            if has_control(label):
                raise ValueError(
                    f"the label {label!r} has a tab, a line end or another control character in it, and the file of "
                    "predictions has one row a line: rename it, in the files too"
                )
            if label in labels[:place]:
                raise ValueError(f"the label {label!r} is listed twice: list each label once")
        return labels


class Validation(Section):
    """How much may be wrong with the data before a run stops."""

    engine: Literal["auto", "pandas", "spark"] = Field(
        "auto", description="Where the expectations run; auto takes Spark from a million rows on."
    )
    max_quarantine: Share = Field(
        0.01, description="Largest share of a split's rows that may be set aside as unusable."
    )
    max_overlap: Share = Field(
        0.05, description="Largest share of dev or test that may also stand in train (after case and punctuation)."
    )


class Preprocessing(Section):
    """From text to token ids."""

    clean: tuple[Cleaning, ...] = Field(
        (), description="Cleaning rules, applied in the order html, punctuation, lowercase, whitespace."
    )
    sample: float = Field(1.0, gt=0, le=1, description="Share of the training rows kept, stratified by label.")
    resplit: bool = Field(
        False, description="Join train and dev and cut them 8:1:1 into train, dev and a held-out set."
    )
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="Each adds a copy of every training row: synonyms (10 % of the words, from WordNet), masking "
        "(15 % of the words hidden), order (words moved by up to 3 places).",
    )
    max_length: int = Field(128, ge=8, le=512, description="Longest input in tokens; the rest is cut off.")
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of sampling, re-splitting and augmentation.")


class Model(Section):
    """The pretrained encoder and the head on top of it."""

    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description="A bundled encoder, a local folder (a path with a slash at its start or ./), or a hub name.",
        examples=["all-MiniLM-L6-v2", "all-mpnet-base-v2"],
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="What stands for the sentence: the mean of its tokens, or the first token."
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout before the head.")


class Pretraining(Section):
    """Domain pre-training: masked language modelling on unlabelled text, before fine-tuning."""

    text: str = Field(
        "",
        description="A file of unlabelled text, plain or gzip, a document a line. Set it, and the encoder learns the "
        "domain first and is fine-tuned from there; empty: no pre-training.",
        examples=["data/imdb/unsupervised.txt.gz"],
    )
    epochs: float = Field(1, gt=0, le=100, description="Passes over the text; parts of one are allowed.")
    batch_size: int = Field(
        32, ge=1, le=65536, description="Blocks of preprocessing.max_length tokens in a step of length or static."
    )
    learning_rate: float = Field(5e-5, gt=0, le=0.1, description="Peak of the schedule.")
    mask_share: float = Field(
        0.15, gt=0, lt=1, description="Share of the tokens to predict; 80 % of them masked, 10 % replaced, 10 % kept."
    )
    whole_words: bool = Field(False, description="Mask all the pieces of a word together.")
    seed: int = Field(1, ge=0, lt=2**31, description="Seed of masks and order.")


class Batching(Section):
    """Which rows share a step."""

    kind: Literal["length", "tokens", "tiers", "static"] = Field(
        "length",
        description="length: training.batch_size rows of near-equal length; tokens: as many as batch_tokens holds; "
        "tiers: 128, 64, 32 or 16 rows by average length; static: shuffled rows, padded to max_length.",
    )
    batch_tokens: int = Field(4096, ge=512, le=2**24, description="Padded tokens in a step under tokens.")
    padding_free: bool = Field(
        False,
        description="Compute no padding at all: the encoder sees a batch as one row of tokens. Pays on a GPU.",
    )


class Loss(Section):
    """What training makes small."""

    kind: Literal["auto", "cross-entropy", "focal", "mse", "huber"] = Field(
        "auto", description="auto: cross-entropy for classes, mean squared error for scores."
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a class counts in inverse proportion to its training rows."
    )
    focal_gamma: float = Field(2.0, ge=0, le=10, description="Focal loss: how little the easy rows count.")
    huber_delta: float = Field(1.0, gt=0, description="Huber loss: the error from which it grows linearly.")


class Training(Section):
    """Fine-tuning."""

    epochs: float = Field(2, gt=0, le=100, description="Passes over the training split; parts of one are allowed.")
    batch_size: int = Field(32, ge=1, le=65536, description="Rows in a step of length or static, over all ranks.")
    learning_rate: float = Field(5e-5, gt=0, le=0.1, description="Peak of the schedule.")
    weight_decay: float = Field(0.01, ge=0, le=1, description="AdamW's decay; biases and norms have none.")
    warmup: Share = Field(0.06, description="Share of the steps in which the learning rate rises.")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Each layer's learning rate, as a multiple of the layer's above it."
    )
    head_rate: float = Field(
        1.0, gt=0, le=1000, description="The head's learning rate, as a multiple of the encoder's."
    )
    freeze_layers: int = Field(
        0, ge=0, le=100, description="Lowest layers that are not trained; with any, embeddings are not either."
    )
    sparse_embeddings: bool = Field(
        True,
        description="Word embeddings: gradient, exchange and update touch only the rows that a batch uses. When a row "
        "is next used, it catches up on the momentum and weight decay of the steps between, so the result is that of "
        "dense AdamW, up to rounding, unless gradients are near 1e-8. With a parameter server it catches up a step "
        "later, when its gradient arrives.",
    )
    accumulation: int = Field(1, ge=1, le=1024, description="Pieces that a rank cuts its share of a step into.")
    clip_norm: float = Field(1.0, gt=0, description="Largest norm of the whole gradient.")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "bf16", description="Arithmetic of forward and backward; fp16 scales the loss. Weights stay fp32."
    )
    fused_layers: bool = Field(
        True,
        description="On a CPU: dropout of our own, and in bf16 BERT's layers with forward and backward written out.",
    )
    activation_checkpointing: bool = Field(
        False, description="Keep no activations inside a layer; compute them again for backward."
    )
    ranks: Literal["auto"] | Annotated[int, Field(ge=1, le=1024)] = Field(
        "auto",
        description="Horovod processes; with the batching kinds length and static the number must divide batch_size. "
        "auto: one for each GPU of the machine; without GPUs a single one, with a thread for each CPU that the machine "
        "or the container grants.",
    )
    evaluations: int = Field(2, ge=1, le=1000, description="Times an epoch that the dev split is scored.")
    best_by: Literal["metric", "loss"] = Field("metric", description="What of the dev split makes a model the best.")
    patience: int = Field(
        4, ge=0, description="Evaluations without a better model before training stops; 0 never stops."
    )
    average_decay: float = Field(
        0.0, ge=0, lt=1, description="Decay a step of the weights' moving average, which is then kept; 0: no average."
    )
    seed: int = Field(1, ge=0, lt=2**31, description="Seed of head, dropout and order of the rows.")

    @field_validator("ranks", mode="wrap")
    @classmethod
    def _ranks_are_auto_or_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:  # of a union, pydantic complains once for each member
            raise ValueError(
                f"{value!r} is not a number of ranks: write auto, or a whole number from 1 to 1024"
            ) from None


class Communication(Section):
    """How ranks exchange gradients and parameters."""

    strategy: Literal["all-reduce", "hierarchical", "parameter-server"] = Field(
        "all-reduce",
        description="all-reduce: every rank sums and updates everything; hierarchical: inside a host first, "
        "then compressed between hosts; parameter-server: every rank serves the part that it updates.",
    )
    compression: Literal["none", "fp16", "int8", "int4", "onebit", "topk", "powersgd"] = Field(
        "none", description="Of the matrices' gradient, with error feedback. It pays on links slower than the loopback."
    )
    compression_start: Share = Field(0.1, description="Share of the steps before compression starts.")
    topk_share: float = Field(0.01, gt=0, le=1, description="topk: share of the elements that are sent.")
    powersgd_rank: int = Field(4, ge=1, le=256, description="powersgd: rank of the approximation.")
    server_momentum: float = Field(
        0.0, ge=0, lt=1, description="parameter-server: momentum of the gradient centre; the paper has 0.9."
    )
    server_parameters: Literal["fp32", "fp16"] = Field(
        "fp32", description="parameter-server: how parameters travel back; the servers keep fp32."
    )
    staleness: Literal[0, 1] = Field(
        0, description="parameter-server: steps by which the parameters that a gradient is computed on may be old."
    )

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        if self.strategy == "parameter-server" and self.compression != "none":
            raise ValueError(
                f"compression {self.compression} is for all-reduce and hierarchical: write compression: none, "
                "or server_parameters: fp16"
            )
        if self.strategy != "parameter-server" and (
            self.server_momentum or self.staleness or self.server_parameters != "fp32"
        ):
            raise ValueError(
                "server_momentum, server_parameters and staleness are for strategy: parameter-server: remove them, "
                "or write that strategy"
            )
        return self


class Gate(Section):
    """Lowest acceptable metrics. With none set, the task's own threshold counts."""

    accuracy: Threshold = Field(None, description="Share of dev rows that must be right.")
    f1: Threshold = Field(None, description="F1 of the positive class (macro F1 beyond two classes).")
    matthews: Threshold = Field(None, description="Matthews correlation.")
    pearson: Threshold = Field(None, description="Pearson correlation.")
    spearman: Threshold = Field(None, description="Spearman correlation.")
    beat_baseline: bool = Field(
        True,
        description="The metrics must also be better than those of a model that gives every dev row the same answer; "
        "correlations must be above 0.",
    )
    slices: dict[str, Annotated[float, Field(ge=-1, le=1)]] = Field(
        {}, description='Floors of the task\'s metric on slices of dev, as {"length:long": 0.8}.'
    )

    @property
    def thresholds(self) -> dict[str, float]:
        """Metric name to lowest acceptable value, of those that are set."""
        return self.model_dump(exclude={"beat_baseline", "slices"}, exclude_none=True)


class Prediction(Section):
    """Labelling the test split."""

    batching: Literal["tiers", "tokens"] = Field(
        "tiers",
        description="tiers: 128, 64, 32 or 16 rows by a partition's average length; tokens: up to batch_tokens.",
    )
    batch_tokens: int = Field(8192, ge=512, le=2**24, description="Padded tokens in a batch under tokens.")


class Submission(Section):
    """What goes into the zip."""

    all_tasks: bool = Field(
        False, description="Write all eleven GLUE files, placeholders where no run of the task is given."
    )
    runs: tuple[str, ...] = Field((), description="Other runs whose predictions go into the same zip.")


class Runtime(Section):
    """Where stages run. Changes no artifact."""

    spark_master: str = Field(
        "local[*]", pattern=r"^(local(\[.+\])?|spark://.+|yarn|k8s://.+)$", description="Spark's master."
    )
    ranks_on: Literal["local", "spark"] = Field(
        "local",
        description="Where a training's ranks run: local (the stage's own machine) or spark (executors of "
        "spark_master, a rank in a task; they need artifacts and cache under the same paths).",
    )
    checkpoint_steps: int = Field(500, ge=0, description="Steps between two checkpoints of a training; 0: none.")
    lost_rank: Literal["fail", "restart", "shrink"] = Field(
        "fail",
        description="When a rank is lost: fail (a retry goes on from the last checkpoint), restart with as many, "
        "or shrink to what is left; three losses without a new checkpoint fail.",
    )
    download: bool = Field(
        False, description="Let stages fetch missing models and data; otherwise `make fetch` does it beforehand."
    )


class Dataset(Section):
    """A dataset that grows by the files of a drop folder. No run of the pipeline reads it.

    The limits lie above what batches of 100 rows of a corpus show against the rest of it: docs/RETRAIN.md.
    """

    name: str = Field("", pattern="^[A-Za-z0-9_-]*$", description="The dataset; empty: as its task is called.")
    drop: str = Field("", description="The folder that new files (CSV, TSV, Parquet) are put into.")
    drift_rows: int = Field(100, ge=1, description="Fewest new rows whose drift can stop them: fewer tell little.")
    max_label_drift: Share = Field(
        0.2,
        description="Largest change of the label balance: total variation distance, half the sum of the classes' "
        "changes; of scores, the largest distance of their distribution functions (Kolmogorov-Smirnov).",
    )
    max_length_drift: Share = Field(
        0.25, description="Largest distance of the distribution functions of lengths in words (Kolmogorov-Smirnov)."
    )
    max_vocabulary_drift: Share = Field(
        0.15, description="Largest share of the new rows' words that the last version's training rows do not hold."
    )


class Study(Section):
    """Putting an ablation's arms together. No run of the pipeline reads it."""

    name: str = Field("", description="The study: its task, and a digest of what all its arms changed, if anything.")


class Retention(Section):
    """What `prune` takes for unused, and whether it removes it. No other stage reads this."""

    days: int = Field(
        30, ge=7, description="Only what has not been used for this many days is removed. No run takes 7 days."
    )
    remove: bool = Field(False, description="Remove what is unused; otherwise only list it.")


class Retraining(Section):
    """Training again as data arrives, and taking a champion's place. Only the Dag `retrain` has use for it."""

    start: Literal["encoder", "champion"] = Field(
        "encoder", description="What training begins with: encoder (model.name), or the champion's weights, if any."
    )
    margin: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="Largest loss against the champion on the same dev rows that is accepted: of accuracy, and of "
        "scores of the task's metric.",
    )
    slice_margin: float = Field(0.1, ge=0, lt=1, description="The same on every slice of the dev rows.")
    max_latency: float = Field(
        0, ge=0, description="Most milliseconds that the model may take for a row by itself (median, CPU); 0: any."
    )
    max_size: float = Field(0, ge=0, description="Most megabytes (10^6 bytes) that the model's files may have; 0: any.")
    approval: bool = Field(
        False, description="Let a person decide about the promotion; otherwise the comparison decides."
    )
    timeout_hours: float = Field(
        72, gt=0, le=96, description="Hours that the decision may take; after that it is a rejection."
    )
