from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from include.fields.training import Training
from include.stages import BadInput
from tasks.encoder.adapters import add_adapters
from tasks.encoder.batching import Packing
from tasks.encoder.models import Classifier
from tasks.encoder.padding_free import allow_packing
from tasks.launching.launch import ROOT
from tasks.training.factory import build_trainer
from tasks.training.layers import compile_layers, layers_of, recompute_activations
from tests.tasks.launching.jobs import losses, make_job
from tests.tasks.training.test_activation_checkpointing import built, gradients

SHAPES = ((4, 12), (4, 9), (6, 12), (3, 20))
FOLDER = "TORCHINDUCTOR_CACHE_DIR"
TRACED = "aot_eager"  # what torch would compile, computed by its own kernels: it takes seconds, not a minute


@pytest.fixture(autouse=True)
def nothing_compiled_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(FOLDER, default_cache_dir())  # as torch does when it is imported
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def without_dropout(kind: str) -> Classifier:
    model = built(kind)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout_prob", None), float):
            module.dropout_prob = 0.0  # type: ignore[assignment]
    return model


def step(model: Classifier, shape: tuple[int, int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of a batch of this shape, whose second row is shorter, and the gradients."""
    ids = torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    more: dict[str, Any] = {"packing": Packing.of(mask)} if model.packs else {}
    model.zero_grad()
    loss = model(ids, mask, torch.zeros_like(ids), **more).square().sum()
    loss.backward()
    return loss.detach(), gradients(model)


def packed(model: Classifier) -> None:
    model.packs = allow_packing(model.model)
    assert model.packs


def with_adapters(model: Classifier) -> None:
    torch.manual_seed(2)
    add_adapters(model.encoder, layers_of(model.encoder), Training(lora_rank=2))


@pytest.mark.parametrize(
    ("kind", "change", "graphs"),
    [
        ("bert", None, 1),
        ("bert", packed, 1),
        ("bert", with_adapters, 2),  # nothing below the first layer is trained
        ("mpnet", None, 1),
        ("mpnet", packed, 1),
        ("distilbert", None, 1),
    ],
)
def test_few_compilations_serve_all_layers_and_batches_and_change_no_gradient(
    kind: str, change: Callable[[Classifier], None] | None, graphs: int
) -> None:
    plain, compiled = without_dropout(kind), without_dropout(kind)
    for model in (plain, compiled):
        if change:
            change(model)
    compile_layers(compiled.encoder, TRACED)
    for shape in SHAPES:
        (loss, expected), (same_loss, found) = step(plain, shape), step(compiled, shape)
        torch.testing.assert_close(same_loss, loss)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == graphs
    assert not counters["graph_break"]


def test_activations_of_compiled_layers_can_be_recomputed() -> None:
    plain, recomputing = without_dropout("bert"), without_dropout("bert")
    compile_layers(recomputing.encoder, TRACED)
    recompute_activations(recomputing.encoder)
    (loss, expected), (same_loss, found) = step(plain, SHAPES[0]), step(recomputing, SHAPES[0])
    torch.testing.assert_close(same_loss, loss)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-5)


def test_evaluation_compiles_nothing() -> None:
    model = without_dropout("bert").eval()
    names = list(model.state_dict())
    compile_layers(model.encoder, TRACED)
    loss, _ = step(model, SHAPES[0])
    assert torch.equal(loss, step(without_dropout("bert").eval(), SHAPES[0])[0])
    assert counters["stats"]["unique_graphs"] == 0
    assert list(model.state_dict()) == names


def test_a_training_learns_the_same_and_the_next_one_finds_the_code(tmp_path: Path) -> None:
    plain, *compiled = [
        make_job(tmp_path, fused_layers=False, compiled_layers=on, epochs=0.5) for on in (False, True, True)
    ]
    build_trainer(plain, stopping=lambda: False).run()
    found = []
    for job in compiled:
        torch._dynamo.reset()
        counters.clear()
        build_trainer(job, stopping=lambda: False).run()
        np.testing.assert_allclose(losses(job.output), losses(plain.output), rtol=1e-4)
        found.append((counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"]))
    (made, _), (made_again, read) = found
    assert (made, made_again) == (read, 0) and made > 0
    assert list((tmp_path / "cache" / "compiled").iterdir())


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        (
            "CXX",
            r"needs a C\+\+ compiler, but there is no program '/nowhere/g\+\+' .*training.compiled_layers: false",
        ),
        ("headers", "needs Python's headers, but there is no /nowhere/Python.h: .*training.compiled_layers: false"),
    ],
)
def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch, lacking: str, message: str) -> None:
    if lacking == "CXX":
        monkeypatch.setenv("CXX", "/nowhere/g++")
    else:
        monkeypatch.setattr(sysconfig, "get_path", lambda name: "/nowhere")
    with pytest.raises(BadInput, match=message):
        compile_layers(built("bert").encoder)


def test_code_is_kept_where_the_user_says_or_else_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    look = (
        "import os; from tasks.training import factory; from tests.tasks.training.test_layers import encoder; "
        f"factory.compile_layers(encoder('bert')); print(os.environ['{FOLDER}'])"
    )
    for named, expected in ((None, tmp_path / "cache" / "compiled"), (tmp_path / "mine", tmp_path / "mine")):
        monkeypatch.delenv(FOLDER) if named is None else monkeypatch.setenv(FOLDER, str(named))
        done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
        assert Path(done.stdout.strip()) == expected
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv(FOLDER)
    with pytest.raises(BadInput, match=r"compiled, which cannot be made .*: name another folder in SPARK_BERT_CACHE"):
        compile_layers(built("bert").encoder)


@pytest.mark.parametrize("kind", ["xlm", "flaubert"])
def test_layers_that_would_not_share_code_are_refused(kind: str) -> None:
    with pytest.raises(BadInput, match=rf"the encoder \({kind}\) .* write training.compiled_layers: false"):
        compile_layers(built(kind).encoder)
