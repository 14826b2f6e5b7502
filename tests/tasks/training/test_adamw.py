"""The kernels of AdamW, held against torch's AdamW and against the same updates computed by torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tasks.kernels import library
from tasks.training.adamw import BETAS, EPSILON, KernelAdamW, RowAdamW, Setting
from tasks.training.optim import Optimizer

SIZES = {"short": 7, "long": 20_001, "vector": 384, "bare": 33}
SETTINGS = {"short": Setting(1.0, 0.0), "long": Setting(1.0, 0.1), "vector": Setting(0.5, 0.0), "bare": Setting(2, 0.1)}
NARROW = {"long", "vector"}  # have gradients and copies in bf16
RATES = [0.01, 0.1, 0.05, 0.02]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    used = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(used)


def drawn(number: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(number)
    values = {name: torch.randn(size, generator=random) for name, size in SIZES.items()}
    return {name: value.bfloat16() if number and name in NARROW else value for name, value in values.items()}


class Model:
    """Parameters, their copies, and the optimizer that keeps both."""

    def __init__(self) -> None:
        self.weights = {name: nn.Parameter(values.clone()) for name, values in drawn(0).items()}
        self.copies = {name: self.weights[name].detach().bfloat16() for name in NARROW}
        for name in NARROW:
            self.weights[name].grad_dtype = None
        self.optimizer = Optimizer(self.weights, SETTINGS, frozenset(), copies=self.copies)

    def step(self, number: int, rate: float) -> None:
        for name, gradient in drawn(number).items():
            self.weights[name].grad = gradient
        self.optimizer.step(rate, divisor=3.0)
        self.optimizer.zero_grad()


def trained() -> Model:
    model = Model()
    for number, rate in enumerate(RATES, 1):
        model.step(number, rate)
    return model


@pytest.mark.usefixtures("threads")
def test_it_takes_torchs_steps_and_rounds_the_weights() -> None:
    model = trained()
    reference = {name: nn.Parameter(values) for name, values in drawn(0).items()}
    groups = [{"params": [p], "weight_decay": SETTINGS[name].weight_decay} for name, p in reference.items()]
    adamw = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON, foreach=False)
    for number, rate in enumerate(RATES, 1):
        for group, (name, gradient) in zip(adamw.param_groups, drawn(number).items(), strict=True):
            group["lr"], reference[name].grad = rate * SETTINGS[name].rate, gradient.float() / 3.0
        adamw.step()
    state = model.optimizer.state_dict()
    for name, weight in reference.items():
        torch.testing.assert_close(model.weights[name], weight, rtol=1e-5, atol=1e-6)
        for key, value in adamw.state[weight].items():
            torch.testing.assert_close(state[f"{name}.{key}"], value, rtol=1e-5, atol=1e-7)
    for name, copy in model.copies.items():
        assert torch.equal(copy, model.weights[name].bfloat16())


def test_neither_threads_nor_repetition_change_a_bit(threads: int) -> None:
    one = trained()
    torch.set_num_threads(3 - threads)
    other = trained()
    for name, weight in one.weights.items():
        assert torch.equal(weight, other.weights[name])


@pytest.mark.parametrize("cut", [1, 7, 4099, 20_000])
def test_a_parameter_in_two_pieces_moves_as_the_whole_one(cut: int) -> None:
    whole = trained().weights["long"]
    values = drawn(0)["long"]
    pieces = [nn.Parameter(values[:cut].clone()), nn.Parameter(values[cut:].clone())]
    optimizer = Optimizer(dict(zip("ab", pieces, strict=True)), dict.fromkeys("ab", SETTINGS["long"]), frozenset())
    for number, rate in enumerate(RATES, 1):
        gradient = drawn(number)["long"].float()
        pieces[0].grad, pieces[1].grad = gradient[:cut], gradient[cut:]
        optimizer.step(rate, divisor=3.0)
    assert torch.equal(torch.cat([piece.detach() for piece in pieces]), whole)


def test_a_step_that_is_not_finite_is_not_taken_where_the_device_says_so() -> None:
    model = trained()
    before = {key: value.clone() for key, value in model.optimizer.state_dict().items()}
    for name, gradient in drawn(1).items():
        model.weights[name].grad = gradient
    model.optimizer.step(1.0, 1.0, found_inf=torch.tensor(1.0))
    assert all(torch.equal(value, before[key]) for key, value in model.optimizer.state_dict().items())


def test_without_kernels_nothing_has_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library", lambda: None)
    with pytest.raises(AssertionError, match="copies"):
        Model()


@pytest.mark.usefixtures("threads")
def test_rows_move_as_torch_moves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    words, features = 500, 37
    start = torch.randn(words, features, generator=torch.Generator().manual_seed(0))
    compiled, plain = (RowAdamW(start.clone(), Setting(2.0, 0.1)) for _ in range(2))
    for step in range(1, 60):
        random = torch.Generator().manual_seed(step)
        read = torch.randint(words, (4, 9), generator=random)  # some more than once
        rows = torch.unique(read)
        gradient = 0.01 * torch.randn(len(rows), features, generator=random)
        for one, there in ((compiled, library.library()), (plain, None)):
            with monkeypatch.context() as patch:
                patch.setattr(library, "library", lambda there=there: there)
                one.catch_up(read)
                one.parameter.grad = torch.sparse_coo_tensor(rows[None], gradient, start.shape).coalesce()
                one.step(1e-3, divisor=3.0)
    for key, value in compiled.state_dict().items():
        torch.testing.assert_close(value, plain.state_dict()[key], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(compiled.parameter, plain.parameter, rtol=1e-5, atol=1e-6)
    assert isinstance(Optimizer({"a": start}, {"a": Setting(1.0, 0.0)}, frozenset())._adamw, KernelAdamW)
