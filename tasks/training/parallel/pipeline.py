"""Dividing the layers of an encoder among ranks, through which the micro-batches of a step go (Huang et al. 2019)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional

from include.fields.ranks import Parallel
from include.stages import BadInput
from tasks.communication.layout import Layout
from tasks.encoder.batching import Batch
from tasks.encoder.models import Classifier, head_modules
from tasks.training.layers import layers_of
from tasks.training.objectives import Objective
from tasks.training.precision import Precision, autocast

#: The families whose stages share no parameters, unlike MPNet's, which share a table of relative positions.
FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta")
_MULTIPLE = 8  # of the tokens of a row: every length has a schedule of its own
_KEPT = 8  # most recent schedules, each of which keeps buffers for all hidden states that a stage receives in a step


def check_pipeline(model: Classifier, stages: int) -> None:
    """Raise BadInput if the encoder cannot be divided into this number of stages."""
    kind, layers = model.encoder.config.model_type, len(layers_of(model.encoder))
    if kind not in FAMILIES:
        raise BadInput(
            f"parallel.pipeline does not know how to divide the encoder ({kind}) into stages, only those of "
            f"{', '.join(FAMILIES)}: write parallel.pipeline: 1, and parallel.shard to save memory"
        )
    if layers % stages:
        fitting = max(number for number in range(1, min(stages, layers) + 1) if layers % number == 0)
        raise BadInput(
            f"parallel.pipeline is {stages}, but the encoder has {layers} layers, which cannot be divided into as many "
            f"equal stages: write parallel.pipeline: {fitting}, or another divisor of {layers}"
        )


class Received(nn.Module):
    """Takes the place of the embeddings: returns what the stage before has computed."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.zeros(0)
        self.word_embeddings = nn.Embedding(0, 1)  # an encoder is asked for them

    def forward(self, *values: Any, **more: Any) -> torch.Tensor:
        """Return the hidden states. The arguments are those of the embeddings."""
        return self.hidden


def keep_stage(model: Classifier, layout: Layout) -> None:
    """Remove what other stages compute. What stays keeps its name."""
    encoder: Any = model.encoder
    device = model.device
    lists = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and m[0] is layers_of(encoder)[0][0]]
    (stack,) = lists
    stages, own = layout.mesh.pipeline, layout.place.pipeline
    each = len(stack) // stages
    for number in range(len(stack)):
        if number // each != own:
            del stack._modules[str(number)]
    if own > 0:
        encoder.embeddings = Received().to(device)  # the model's first parameters, from which its device is read
    if not layout.is_last_stage:
        for name in head_modules(model.model):
            if "." not in name and name:
                delattr(model.model, name)
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None


class Pipeline:
    """The stage that is the objective's model, and a schedule per shape; all stages see the same shapes."""

    def __init__(
        self, objective: Objective, layout: Layout, mesh: DeviceMesh, settings: Parallel, precision: Precision
    ) -> None:
        self._stage = Stage(objective, layout, precision)
        self._layout, self._group, self._settings = layout, mesh.get_group(), settings
        self._schedule_of = lru_cache(_KEPT)(self._schedule)
        self._loss_scale: float | torch.Tensor = 1.0

    def step(self, batch: Batch, weight: float, loss_scale: float | torch.Tensor) -> torch.Tensor:
        """Run both passes of a batch; each row's loss has the factor `weight`. Only the last stage returns a loss."""
        batch, weights = self._padded(batch, weight)
        self._loss_scale = loss_scale
        rows, length = batch.input_ids.shape
        schedule, losses = self._schedule_of(rows // self._settings.micro_batches, length), list[torch.Tensor]()
        hidden = (batch.input_ids,) if self._layout.place.pipeline == 0 else ()
        target = weights if self._layout.is_last_stage else None
        inputs = {name: getattr(batch, name) for name in ("input_ids", "attention_mask", "token_type_ids", "labels")}
        schedule.step(*hidden, target=target, losses=losses, return_outputs=False, **inputs)
        return torch.stack(losses).sum().detach() / loss_scale if losses else torch.zeros((), device=weights.device)

    def shape(self, batch: Batch) -> tuple[int, int]:
        """Return rows and tokens that the stages compute: at least those of the batch, in few shapes."""
        rows, length = batch.input_ids.shape
        longer = min(-length % _MULTIPLE, max(0, self._stage.longest - length))
        return rows + -rows % self._settings.micro_batches, length + longer

    def _schedule(self, rows: int, length: int) -> Any:
        device, hidden = self._stage.device, self._stage.hidden
        ids = torch.empty(rows, length, dtype=torch.int64, device="meta")
        states = torch.empty(rows, length, hidden, device="meta", requires_grad=True)
        losses = torch.empty(rows, device="meta", requires_grad=True)
        place, last = self._layout.place.pipeline, self._layout.is_last_stage
        stage = PipelineStage(
            self._stage, place, self._layout.mesh.pipeline, device, group=self._group,
            input_args=(states if place else ids,), output_args=(losses if last else states,),
        )  # fmt: skip
        return Schedule1F1B(stage, self._settings.micro_batches, loss_fn=self._loss, scale_grads=False)

    def _loss(self, losses: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (losses * weights).sum() * self._loss_scale

    def _padded(self, batch: Batch, weight: float) -> tuple[Batch, torch.Tensor]:
        (rows, length), (own, before) = self.shape(batch), batch.input_ids.shape
        weights = torch.full((rows,), weight, device=batch.input_ids.device)
        weights[own:] = 0
        chosen = torch.arange(rows, device=weights.device).clamp(max=own - 1)
        ids, mask, segments = (
            functional.pad(values[chosen], (0, length - before))
            for values in (batch.input_ids, batch.attention_mask, batch.token_type_ids)
        )
        return Batch(ids, mask, segments, batch.labels[chosen]), weights


class Stage(nn.Module):
    """What a rank computes of a micro-batch."""

    def __init__(self, objective: Objective, layout: Layout, precision: Precision) -> None:
        super().__init__()
        self.model = cast(Classifier, objective.model)
        self._objective, self._layout, self._precision = objective, layout, precision
        self.device = self.model.device
        self.hidden = int(self.model.encoder.config.hidden_size)
        self.longest = self.model.spec.max_length

    def forward(
        self,
        hidden: torch.Tensor,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
        labels: torch.Tensor,
    ) -> torch.Tensor:
        """Return the rows' losses, [rows], on the last stage, else hidden states, fp32 [rows, tokens, hidden]."""
        with autocast(self._precision, self.device):
            if self._layout.is_last_stage:
                receive(self.model, hidden)
                return self._objective.losses(Batch(input_ids, attention_mask, token_type_ids, labels))
            return partial_forward(self.model, hidden, attention_mask, token_type_ids, input_ids)


def receive(model: Classifier, hidden: torch.Tensor) -> None:
    """Give a stage what the stage before has computed."""
    embeddings = cast(Any, model.encoder).embeddings
    if isinstance(embeddings, Received):
        embeddings.hidden = hidden


def partial_forward(
    model: Classifier, hidden: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor | None, ids: torch.Tensor
) -> torch.Tensor:
    """Return the hidden states above the layers of a stage that is not the last one."""
    receive(model, hidden)
    more = {"token_type_ids": segments} if model.segments and segments is not None else {}
    return cast(torch.Tensor, model.encoder(input_ids=ids, attention_mask=mask, **more)[0].float())


class StagedClassifier(Classifier):
    """A stage of a classifier, whose ranks compute the logits of a batch together, one stage after the other."""

    def __init__(self, whole: Classifier, layout: Layout, mesh: DeviceMesh) -> None:
        super().__init__(whole.model, whole.spec)
        self._layout, self._group = layout, mesh.get_group()
        self._ranks = dist.get_process_group_ranks(self._group)
        self.train(whole.training)

    def run(self, input_ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        """Return logits, which the last stage computes and sends to the others, [batch, outputs]."""
        if torch.is_grad_enabled():  # the schedule moves what stages exchange in a training
            return super().run(input_ids, *rest)
        mask, segments = rest[0], rest[1]
        place, size = self._layout.place.pipeline, (*input_ids.shape, int(self.encoder.config.hidden_size))
        hidden = torch.empty(size, device=self.device)
        if place > 0:
            dist.recv(hidden, self._ranks[place - 1], self._group)
        if self._layout.is_last_stage:
            receive(self, hidden)
            logits = super().run(input_ids, mask, segments).float()
        else:
            hidden = partial_forward(self, hidden, mask, segments, input_ids)
            dist.send(hidden.contiguous(), self._ranks[place + 1], self._group)
            logits = torch.empty(len(input_ids), self.spec.outputs, device=self.device)
        dist.broadcast(logits, self._ranks[-1], self._group)
        return logits
