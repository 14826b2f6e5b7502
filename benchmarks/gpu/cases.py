"""What is measured: the rows of the papers' table 5, and transformers' Trainer beside them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from tasks.training.layers import missing_tool

#: Gradients are decided on by the same numbers in all cases, and nothing is evaluated between the steps.
COMMON = ("training.patience=0", "training.epochs=1", "training.evaluations=1", "preprocessing.max_length=128")
#: Embeddings are dense in all rows, as they are without an exchange.
BASE = {
    "batching.kind": "static", "training.precision": "fp32", "communication.compression_start": "0",
    "training.sparse_embeddings": "false",
}  # fmt: skip
COMPRESSION = "communication.compression"
SWITCHES = "switches.json"  # the file in which Trainer's worker reads which of them are on


@dataclass(frozen=True)
class Case:
    """A way to train.

    Attributes:
        name: of the table's row.
        fields: of the experiment; of Trainer's cases only those that both know.
        trainer: which of Trainer's switches are on; None: it is our engine.
        papers: throughput and memory of the papers' row, in percent above and below base.
    """

    name: str
    fields: tuple[tuple[str, str], ...] = ()
    trainer: Literal["default", "best", "compiled"] | None = None
    papers: tuple[float, float] | None = None

    @property
    def overrides(self) -> tuple[str, ...]:
        """The fields as overrides of an experiment."""
        return (*COMMON, *(f"{key}={value}" for key, value in self.fields))

    @property
    def fixed(self) -> bool:
        """Whether all batches have one shape, and take so long that a part of the rows tells enough."""
        return self.trainer == "default" or dict(self.fields).get("batching.kind") == "static"


#: What each row adds to the one above it.
STEPS: tuple[tuple[str, dict[str, str], tuple[float, float] | None], ...] = (
    ("base: static batches, fp32", {}, (0.0, 0.0)),
    ("+ dynamic batching", {"batching.kind": "length"}, (12.3, 8.5)),
    ("+ mixed precision", {"training.precision": "bf16"}, (18.7, 37.0)),
    ("+ gradient compression, and the exchange for it", {COMPRESSION: "powersgd"}, (24.5, 42.5)),
    ("+ no padding", {"batching.padding_free": "true"}, None),
    ("+ activation checkpointing (full)", {"training.activation_checkpointing": "true"}, (37.2, 58.3)),
)
FAST = {"batching.kind": "length", "training.precision": "bf16", "batching.padding_free": "true"}
ONE_GPU = Case("bf16 without padding, on one GPU", tuple(FAST.items()))
COMPILED = Case(f"{ONE_GPU.name}, compiled layers", (*ONE_GPU.fields, ("training.compiled_layers", "true")))
TRAINER = Case("Trainer, best switches", trainer="best")


def table5() -> list[Case]:
    """The papers' rows. Without Horovod, nothing is compressed, and the row that would begin to is left out."""
    fields, found = dict(BASE), []
    for name, changes, papers in STEPS:
        if COMPRESSION in changes and find_spec("horovod") is None:
            continue
        fields |= changes
        found.append(Case(name, tuple(fields.items()), papers=papers))
    return found


def beside() -> list[Case]:
    """What stands beside them. Without a compiler, nothing is compiled."""
    return [
        ONE_GPU,
        *([] if missing_tool() else [COMPILED]),
        Case("the same in fp16", tuple({**FAST, "training.precision": "fp16"}.items())),
        Case("Trainer, as run_glue uses it", trainer="default"),
        TRAINER,
        Case("Trainer, best switches, compiled", trainer="compiled"),
    ]
