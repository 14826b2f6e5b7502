from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from include.experiment import Experiment
from include.fields.training import Loss
from include.glue import LOSSES as ROWS
from include.glue import TASKS, Kind
from include.stages import BadInput
from tasks.encoder.batching import Array
from tasks.training.loss import LOSSES, Criterion, balanced_weights, distillation, focal
from tasks.training.sampler import Sampler

CLASSES, SCORES = TASKS["MNLI"], TASKS["STS-B"]
LABELS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 0])  # balanced: 10/21, 10/6, 10/3
RANDOM = np.random.default_rng(0)


def criterion(**loss: Any) -> Criterion:
    regression = loss.get("kind") in ("mse", "huber")
    return Criterion(Loss.model_validate(loss), SCORES if regression else CLASSES, LABELS)


def test_losses_by_hand() -> None:
    logits = torch.tensor([[1.0, 3.0, -100.0], [0.5, 0.5, -100.0]])
    p = np.array([math.exp(3) / (math.exp(1) + math.exp(3)), 0.5])  # of the row's own class
    labels = torch.tensor([1, 0])
    for loss, expected in (
        ({}, -np.log(p)),
        ({"kind": "cross-entropy"}, -np.log(p)),
        ({"kind": "focal", "focal_gamma": 2}, -((1 - p) ** 2) * np.log(p)),
        ({"kind": "focal", "focal_gamma": 0.5}, -((1 - p) ** 0.5) * np.log(p)),
        ({"kind": "focal", "class_weights": "balanced"}, -((1 - p) ** 2) * np.log(p) * [10 / 6, 10 / 21]),
        ({"class_weights": "balanced"}, -np.log(p) * [10 / 6, 10 / 21]),
    ):
        np.testing.assert_allclose(criterion(**loss).losses(logits, labels), expected, rtol=1e-5)


def test_losses_of_scores_by_hand() -> None:
    scores, labels = torch.tensor([[2.0], [5.0], [0.5]]), torch.tensor([1.0, 5.5, 4.0])
    assert Criterion(Loss(), SCORES, LABELS).losses(scores, labels).tolist() == [1.0, 0.25, 12.25]
    assert criterion(kind="mse").losses(scores, labels).tolist() == [1.0, 0.25, 12.25]
    # An error of 1 is half squared up to delta 1, one of 0.5 too; 3.5 grows linearly: 1 * (3.5 - 0.5).
    assert criterion(kind="huber").losses(scores, labels).tolist() == [0.5, 0.125, 3.0]
    # Delta is in the units of the score: all three lie below 4.
    assert criterion(kind="huber", huber_delta=4).losses(scores, labels).tolist() == [0.5, 0.125, 6.125]


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0, 5.0])
def test_the_gradient_of_focal_loss(gamma: float) -> None:
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert gradcheck(lambda x: focal(x, torch.tensor([0, 1, 2, 0, 1, 2]), Loss(focal_gamma=gamma)), (logits,))


def test_focal_loss_with_gamma_0_is_cross_entropy() -> None:
    labels = torch.tensor([0, 1, 2, 0])
    for weights in ("none", "balanced"):
        results = []
        for loss in (criterion(kind="focal", focal_gamma=0, class_weights=weights), criterion(class_weights=weights)):
            logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
            losses = loss.losses(logits, labels)
            results.append([losses.detach(), *torch.autograd.grad(losses.sum(), logits)])
        for with_focus, plain in zip(*results, strict=True):
            torch.testing.assert_close(with_focus, plain, rtol=0, atol=0)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0])
def test_focal_loss_of_a_certain_row_has_a_gradient(gamma: float) -> None:
    logits = torch.tensor([[100.0, 0.0], [20.0, 0.0], [0.0, 100.0]], requires_grad=True)
    losses = focal(logits, torch.tensor([0, 0, 0]), Loss(focal_gamma=gamma))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.tolist()[0] == 0
    assert losses.tolist()[2] == 100
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient[0], torch.zeros(2))
    torch.testing.assert_close(gradient[2], torch.tensor([-1.0, 1.0]))


def test_balanced_weights_give_every_class_the_same_say() -> None:
    weights = balanced_weights(LABELS, CLASSES.label_names)
    np.testing.assert_allclose(weights, [10 / 21, 10 / 6, 10 / 3])
    np.testing.assert_allclose(np.bincount(LABELS, weights=weights[LABELS]), 10 / 3)


def test_a_class_without_rows_cannot_be_balanced() -> None:
    with pytest.raises(BadInput, match=f"label '{CLASSES.label_names[1]}'.* write loss.class_weights: none"):
        balanced_weights(np.array([0, 2, 2]), CLASSES.label_names)


def test_the_mean_is_torch_s() -> None:
    logits = RANDOM.normal(size=(10, 3)).astype(np.float32)
    for name, weights in (("none", None), ("balanced", torch.tensor([10 / 21, 10 / 6, 10 / 3]))):
        expected = nn.CrossEntropyLoss(weights)(torch.from_numpy(logits), torch.from_numpy(LABELS))
        assert criterion(class_weights=name).mean(logits, LABELS) == pytest.approx(float(expected), rel=1e-6)
    scores = RANDOM.normal(size=(10, 1)).astype(np.float32)
    assert criterion(kind="mse").mean(scores, LABELS / 2) == pytest.approx(np.mean((scores[:, 0] - LABELS / 2) ** 2))
    assert math.isnan(criterion().mean(logits[:0], LABELS[:0]))


@pytest.mark.parametrize("loss", [{}, {"class_weights": "balanced"}, {"kind": "focal", "class_weights": "balanced"}])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_ranks_losses_add_up_to_the_batch_s_weighted_mean(world: int, loss: dict[str, Any]) -> None:
    labels: Array = RANDOM.choice(3, 61, p=[0.7, 0.2, 0.1])
    logits = torch.from_numpy(RANDOM.normal(size=(61, 3)).astype(np.float32))
    what = Criterion(Loss.model_validate(loss), CLASSES, labels)
    experiment, lengths = Experiment(), RANDOM.integers(3, 30, 61)
    samplers = [
        Sampler(lengths, what.weights(labels), experiment.batching, experiment.training, rank, world)
        for rank in range(world)
    ]
    for shares in zip(*samplers, strict=True):
        parts = [part for share in shares for part in share.micro_batches(3)]
        losses = [
            part.weight * what.losses(logits[part.indices], torch.from_numpy(labels[part.indices])).sum()
            for part in parts
        ]
        rows = np.unique(np.concatenate([part.indices for part in parts if part.weight]))
        assert float(sum(losses)) == pytest.approx(what.mean(logits[rows].numpy(), labels[rows]), rel=1e-5)


def test_every_loss_has_a_function_and_one_without_is_refused() -> None:
    assert ROWS.keys() == LOSSES.keys()
    unknown = Loss.model_construct(kind="hinge", class_weights="none")
    with pytest.raises(BadInput, match=r"loss\.kind hinge has no function"):
        Criterion(unknown, CLASSES, LABELS)


def test_losses_of_several_labels_by_hand() -> None:
    logits, labels = torch.tensor([[2.0, -1.0], [0.5, 3.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    p = 1 / (1 + np.exp([[-2.0, 1.0], [0.5, -3.0]]))  # of what is true of each label
    for loss, expected in (
        ({}, -np.log(p)),
        ({"kind": "binary-cross-entropy"}, -np.log(p)),
        ({"kind": "focal", "focal_gamma": 2}, -((1 - p) ** 2) * np.log(p)),
    ):
        found = Criterion(Loss.model_validate(loss), TASKS["multi-label"], labels.numpy())
        np.testing.assert_allclose(found.losses(logits, labels), expected.mean(axis=1), rtol=1e-5)
        assert found.mean(logits.numpy(), labels.numpy().astype(int)) == pytest.approx(expected.mean(), rel=1e-5)


def test_the_gradient_of_focal_loss_of_several_labels() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert gradcheck(lambda x: focal(x, torch.eye(4, 3), Loss()), (logits,))


def test_the_loss_with_regard_to_a_teacher_by_hand() -> None:
    ours, theirs = np.array([[2.0, -1.0, 0.5]]), np.array([[1.0, 1.0, -3.0]])
    p, q = (np.exp(each / 2) / np.exp(each / 2).sum() for each in (theirs, ours))
    mine, teacher = torch.tensor(ours), torch.tensor(theirs)
    assert float(distillation("classification", mine, teacher, 2)) == pytest.approx(4 * (p * np.log(p / q)).sum())
    p, q = (1 / (1 + np.exp(-each / 2)) for each in (theirs, ours))
    expected = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert float(distillation("multilabel", mine, teacher, 2)) == pytest.approx(4 * expected.mean())
    assert float(distillation("regression", mine[:, :1], teacher[:, :1], 2)) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_the_gradient_with_regard_to_a_teacher(kind: Kind) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, teacher = (torch.randn(4, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    assert gradcheck(lambda x: distillation(kind, x, teacher, 3.0), (logits.requires_grad_(),))
    (found,) = torch.autograd.grad(distillation(kind, teacher.requires_grad_(), teacher.detach(), 3.0).sum(), teacher)
    assert found.abs().max() < 1e-12
