"""Dividing a model among the ranks of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh

from tasks.communication.divided import DividedModel, Part, parts_of
from tasks.communication.exchange import Exchange
from tasks.communication.layout import Layout, Place
from tasks.encoder.models import Classifier, EncoderWithHead
from tasks.training.loop import Trainer
from tasks.training.parallel.mesh import device_mesh
from tasks.training.parallel.pipeline import Pipeline, StagedClassifier, check_pipeline, keep_stage
from tasks.training.parallel.sharding import shard
from tasks.training.parallel.tensor import check_tensor, divide_layers
from tasks.training.parallel.trainer import DividedTrainer, PipelineTrainer, without_values
from tasks.training.training_state import Weights


@dataclass(frozen=True)
class Division:
    """A model that is divided.

    Attributes:
        mesh: the ranks.
        model: what this rank computes of it.
        parts: this rank's parts of the parameters, by name.
        skeleton: the whole model without values.
    """

    mesh: DeviceMesh
    model: EncoderWithHead
    parts: dict[str, Part]
    skeleton: EncoderWithHead

    @property
    def places(self) -> dict[str, Place]:
        """Where each part lies."""
        return {name: part.place for name, part in self.parts.items()}

    def exchange(self, layout: Layout) -> Exchange:
        """Return the exchange of its gradients."""
        return DividedModel(self.model, self.parts, layout)

    def trainer(self, parts: tuple[Any, ...], weights: Weights) -> Trainer:
        """Return the trainer, given the parts that every trainer has."""
        trainer = DividedTrainer(*parts, weights=weights, skeleton=self.skeleton)
        if trainer.layout.mesh.pipeline == 1:
            return trainer
        mesh, settings = self.mesh["pipeline"], trainer.job.experiment.parallel
        pipeline = Pipeline(trainer.objective, trainer.layout, mesh, settings, trainer.precision)
        return PipelineTrainer(*parts, weights=weights, skeleton=self.skeleton, pipeline=pipeline)


def divide(model: EncoderWithHead, layout: Layout, device: torch.device, folder: Path) -> Division:
    """Keep this rank's part of a model. All ranks call it.

    Args:
        model: the whole model, with equal weights on all ranks.
        layout: this rank's place.
        device: its device.
        folder: a folder that all ranks see, and that is removed after them.

    Raises:
        BadInput: the encoder cannot be divided so.
    """
    skeleton, classifier = without_values(model), cast(Classifier, model)
    if layout.mesh.tensor > 1:
        check_tensor(model, layout.mesh.tensor)
    if layout.mesh.pipeline > 1:
        check_pipeline(classifier, layout.mesh.pipeline)
    mesh = device_mesh(layout, device, folder)
    if layout.mesh.pipeline > 1:
        keep_stage(classifier, layout)
        model = StagedClassifier(classifier, layout, mesh["pipeline"])
    if layout.mesh.tensor > 1:
        divide_layers(model, mesh["tensor"])
    if layout.mesh.shard > 1:
        shard(model, mesh["shard"])
    return Division(mesh, model, parts_of(model, layout), skeleton)
