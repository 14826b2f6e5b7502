"""The files of all forms: every family, both kinds of heads, and rows of all lengths."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from tasks.encoder.spec import HeadSpec
from tasks.inference.packaged_backends import OnnxBackend, OpenVinoBackend
from tasks.inference.trained_model import TorchBackend
from tasks.stages.pipeline.package.forms import (
    FORMS,
    export_onnx,
    export_openvino,
    quantize,
    quantized_groups,
    remove_unoffered,
)
from tests.tasks.encoder.families import FAMILIES
from tests.tasks.stages.pipeline.package.packages import CLASSES, LENGTH, SCORES, largest_difference, rows_of, trained

#: Rows and tokens of batches, among them a single token and as many tokens as an input may have.
SHAPES = ((1, 1), (1, 5), (3, LENGTH), (9, 11), (16, 8))

#: The largest change of a logit by int8, and by bf16 in what is not quantized.
INT8 = 0.1


def check(folder: Path, kind: str, spec: HeadSpec) -> None:
    """Compare the logits of ONNX and OpenVINO with those of PyTorch for batches of several shapes."""
    model = trained(folder / "model", kind, spec)
    table = rows_of(folder / "dev", folder / "model", [0.0] * 40, spec.kind == "regression")
    onnx, xml, quantized = folder / "model.onnx", folder / "model.xml", folder / "int8.xml"
    export_onnx(model, table, onnx)
    export_openvino(onnx, xml)
    quantize(onnx, quantized)
    backends = OnnxBackend(onnx, threads=1), OpenVinoBackend(xml, "fp32", LENGTH, threads=1)
    int8 = OpenVinoBackend(quantized, "int8", LENGTH, threads=1)
    session, outputs = onnxruntime.InferenceSession(onnx), []
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if model.segments else [])]
    assert [(each.name, each.type, len(each.shape)) for each in session.get_inputs()] == [
        (name, "tensor(int64)", 2) for name in names
    ]
    random = np.random.default_rng(0)
    for rows, length in SHAPES:
        ids = random.integers(5, table.largest_id(), (rows, length))
        lengths = np.maximum(1, random.integers(length // 2, length + 1, (rows, 1)))
        lengths[0] = length
        mask = (np.arange(length) < lengths).astype(np.int64)
        segments = mask * (np.arange(length) >= lengths // 2)
        expected = TorchBackend(model, threads=1).logits(ids, mask, segments)
        outputs.append(expected)
        for backend in backends:
            assert largest_difference(backend.logits(ids, mask, segments), expected) < 1e-4
        assert largest_difference(int8.logits(ids, mask, segments), expected) < INT8
    assert np.concatenate(outputs).std(0).min() > 1e-2


@pytest.mark.parametrize("kind", ["bert", "mpnet", "roberta"])
def test_onnx_and_openvino_give_the_logits_of_pytorch(tmp_path: Path, kind: str) -> None:
    check(tmp_path, kind, CLASSES)


def test_scores_are_in_the_range_of_the_task(tmp_path: Path) -> None:
    check(tmp_path, "bert", SCORES)


def loaded(folder: Path) -> OpenVinoBackend:
    model, onnx, xml = trained(folder / "model", "bert", CLASSES), folder / "model.onnx", folder / "model.xml"
    export_onnx(model, rows_of(folder / "dev", folder / "model", [0.0] * 40, False), onnx)
    export_openvino(onnx, xml)
    return OpenVinoBackend(xml, "fp32", LENGTH, threads=1)


def test_openvino_computes_on_any_core(tmp_path: Path) -> None:
    """The Python workers of Spark are processes, of which each would otherwise compute on the first core."""
    backend, ids = loaded(tmp_path), np.full((64, LENGTH), 5)
    seen: set[frozenset[int]] = set()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: [backend.logits(ids, np.ones_like(ids), np.zeros_like(ids)) for _ in range(50)])
        while not running.done():
            for thread in Path("/proc/self/task").iterdir():
                with suppress(ProcessLookupError):
                    seen.add(frozenset(os.sched_getaffinity(int(thread.name))))
    assert seen == {frozenset(os.sched_getaffinity(0))}


def test_openvino_answers_several_threads_at_once(tmp_path: Path) -> None:
    """MLflow's server computes each request in a thread."""
    backend = loaded(tmp_path)
    rows = [np.full((1, 8), 5 + number) for number in range(20)]
    expected = [backend.logits(ids, np.ones_like(ids), np.zeros_like(ids)) for ids in rows]

    def compute(number: int) -> float:
        ids = rows[number % len(rows)]
        return largest_difference(
            backend.logits(ids, np.ones_like(ids), np.zeros_like(ids)), expected[number % len(rows)]
        )

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(compute, range(400))) < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("pooling", ["native", "mean", "cls"])
@pytest.mark.parametrize("classes", [True, False], ids=["classes", "scores"])
def test_every_family_gives_the_logits_of_pytorch(tmp_path: Path, kind: str, pooling: str, classes: bool) -> None:
    if classes:
        spec = HeadSpec("classification", 3, pooling, max_length=LENGTH, label_names=("a", "b", "c"))  # type: ignore[arg-type]
    else:
        spec = HeadSpec("regression", 1, pooling, max_length=LENGTH, score_range=(1.0, 5.0))  # type: ignore[arg-type]
    check(tmp_path, kind, spec)


def test_int8_keeps_the_answers_of_a_row_in_every_batch(tmp_path: Path) -> None:
    model = trained(tmp_path / "model", "bert", CLASSES)
    table = rows_of(tmp_path / "dev", tmp_path / "model", [0] * 40, pairs=False)
    export_onnx(model, table, tmp_path / "fp32.onnx")
    export_openvino(tmp_path / "fp32.onnx", tmp_path / "fp32.xml")
    quantize(tmp_path / "fp32.onnx", tmp_path / "int8.xml")
    batch = [part.numpy() for part in vars(table.batch(np.arange(40))).values() if isinstance(part, torch.Tensor)]
    parts = [part for part in batch if part.ndim == 2][:3]
    exact = OpenVinoBackend(tmp_path / "fp32.xml", "fp32", LENGTH, threads=1).logits(*parts)
    rounded = OpenVinoBackend(tmp_path / "int8.xml", "fp32", LENGTH, threads=1).logits(*parts)
    int8 = OpenVinoBackend(tmp_path / "int8.xml", "int8", LENGTH, threads=1)
    found = int8.logits(*parts)
    assert 0 < largest_difference(rounded, exact) < 0.02 and 0 < largest_difference(found, exact) < 0.1
    alone = np.concatenate([int8.logits(*(part[row : row + 1] for part in parts)) for row in range(40)])
    assert largest_difference(alone, found) < 0.02
    sizes = [(tmp_path / f"{name}.bin").stat().st_size for name in ("fp32", "int8")]
    assert sizes[1] < sizes[0]


def test_every_group_of_a_weight_has_a_scale() -> None:
    weight = np.random.default_rng(0).normal(size=(3, 128)).astype(np.float32)
    weight[0, :64] = 0
    weight[1, 64:] *= 1000
    groups, scales = quantized_groups(weight)
    assert groups.dtype == np.int8 and groups.shape == (3, 2, 64) and scales.shape == (3, 2, 1)
    assert np.abs(groups[1:]).max(axis=2).min() == 127 and not groups[0, 0].any()
    assert (np.abs(groups * scales - weight.reshape(3, 2, 64)) <= scales / 2 * 1.001).all()


def test_a_model_without_wide_products_has_no_int8(tmp_path: Path) -> None:
    export_onnx_of = torch.nn.Linear(8, 2)
    torch.onnx.export(export_onnx_of, (torch.zeros(1, 8),), str(tmp_path / "small.onnx"), dynamo=False)
    with pytest.raises(ValueError, match="no product of the model reads a multiple of 64 features"):
        quantize(tmp_path / "small.onnx", tmp_path / "int8.xml")


OPENVINO = ("openvino/fp32.xml", "openvino/fp32.bin", "openvino/int8.xml", "openvino/int8.bin")


def test_only_the_files_that_an_offered_form_needs_stay(tmp_path: Path) -> None:
    def filled(folder: Path, *names: str) -> set[str]:
        for file in ("model/config.json", "onnx/fp32.onnx", *OPENVINO):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        remove_unoffered(folder, {form.name: form.name in ("torch-fp32", *names) for form in FORMS})
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {"model", "model/config.json"}

    assert filled(tmp_path / "a") == set()
    assert filled(tmp_path / "b", "openvino-int8") == {"openvino", *OPENVINO[2:]}
    assert filled(tmp_path / "c", "openvino-bf16") == {"openvino", *OPENVINO[:2]}
