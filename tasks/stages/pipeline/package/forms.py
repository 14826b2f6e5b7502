"""The forms in which a model is packaged: what computes them, and how their files are made."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.models import Classifier
from tasks.inference.packaged_backends import GROUP, MODEL, openvino_core

log = logging.getLogger(__name__)

#: The version of ONNX's operators. It is the lowest that has all that the encoders need (LayerNormalization).
OPSET = 17
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: Products with fewer outputs, such as those of a head, are fast in any precision.
_LEAST_OUTPUTS = 32


@dataclass(frozen=True)
class Form:
    """A form of a model: the library and the precision that compute it, and its file or folder in the package."""

    engine: str
    precision: str
    file: str

    @property
    def name(self) -> str:
        """The name of the form, such as "openvino-bf16"."""
        return f"{self.engine}-{self.precision}"

    def files(self, package: Path) -> list[Path]:
        """Return the files of the form in a package."""
        path = package / self.file
        return sorted(path.iterdir()) if path.is_dir() else sorted(path.parent.glob(f"{path.stem}.*"))


#: The reference, which every package offers.
REFERENCE = Form("torch", "fp32", MODEL)
_ONNX = Form("onnxruntime", "fp32", "onnx/fp32.onnx")
_OPENVINO = tuple(Form("openvino", precision, "openvino/fp32.xml") for precision in ("fp32", "bf16"))
_INT8 = Form("openvino", "int8", "openvino/int8.xml")
#: All forms. OpenVINO's fp32 and bf16 share a file, because its weights are cast when it is loaded.
FORMS = (REFERENCE, _ONNX, *_OPENVINO, _INT8)


def write_forms(model: Classifier, trained: Path, table: TokenTable, package: Path) -> dict[str, str]:
    """Write the files of all forms that the model allows, and return why it does not allow the others, by name."""
    shutil.copytree(trained, package / REFERENCE.file)
    for form in (_ONNX, _OPENVINO[0]):
        (package / form.file).parent.mkdir()
    onnx = package / _ONNX.file
    if problem := problem_of(lambda: export_onnx(model, table, onnx), "it cannot be written as ONNX"):
        return {form.name: problem for form in FORMS[1:]}
    steps: dict[tuple[Form, ...], Callable[[], object]] = {
        _OPENVINO: lambda: export_openvino(onnx, package / _OPENVINO[0].file),
        (_INT8,): lambda: quantize(onnx, package / _INT8.file),
    }
    problems = {forms: problem_of(step, "it cannot be written") for forms, step in steps.items()}
    return {form.name: problem for forms, problem in problems.items() if problem for form in forms}


def problem_of(step: Callable[[], object], failed: str) -> str:
    """Take a step for a form; return "" or, if it fails, `failed` with the first line of the error."""
    try:
        step()
    except OSError:  # what the machine lacks, such as space on the disk, is no problem of the form
        raise
    except Exception as error:  # The libraries raise errors of many kinds.
        log.warning("a form cannot be made", exc_info=error)
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"{failed}: {reason}"
    return ""


def export_onnx(model: Classifier, table: TokenTable, file: Path) -> None:
    """Write a model as ONNX: int64 [rows, tokens] to logits, or scores in their range, float32 [rows, outputs].

    The exporter is the one that traces the model. PyTorch's newer one, which analyzes the program, takes ten times as
    long; tests show that traces are right for rows of all lengths, in all families.
    """
    batch = table.batch(np.arange(min(2, len(table))))
    inputs = dict(zip(_INPUTS, (batch.input_ids, batch.attention_mask, batch.token_type_ids), strict=True))
    if not model.segments:
        del inputs["token_type_ids"]
    axes = {name: {0: "rows", 1: "tokens"} for name in inputs} | {"logits": {0: "rows"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracer warns of every Python value that depends on the inputs
        torch.onnx.export(
            model, tuple(inputs.values()), str(file), input_names=list(inputs), output_names=["logits"],
            dynamic_axes=axes, opset_version=OPSET, dynamo=False,
        )  # fmt: skip


def export_openvino(onnx: Path, file: Path) -> None:
    """Write an ONNX model in OpenVINO's format, with weights in fp32: an .xml file and a .bin file next to it."""
    import openvino

    openvino.save_model(openvino_core().read_model(onnx), file, compress_to_fp16=False)


def quantize(onnx: Path, file: Path) -> None:
    """Write an ONNX model in OpenVINO's format with weights in int8, each GROUP inputs of an output with a scale.

    OpenVINO quantizes the activations, each GROUP features of a token with a scale, so they need no rows for
    calibration. Products that read no multiple of GROUP features or have few outputs, and embeddings, stay as they are.
    Raise ValueError if nothing is left to quantize.
    """
    import openvino
    from openvino import opset13 as ops

    model = openvino_core().read_model(onnx)
    products = [node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul"]
    quantized = 0
    for product in products:
        weight = product.input_value(1).get_node()
        if weight.get_type_name() != "Constant" or weight.data.ndim != 2:
            continue
        values = weight.data if product.get_attributes()["transpose_b"] else weight.data.T
        outputs, inputs = values.shape
        if inputs % GROUP or outputs < _LEAST_OUTPUTS:
            continue
        groups, scales = quantized_groups(values)
        exact = ops.multiply(ops.convert(ops.constant(groups), "f32"), ops.constant(scales))
        whole = ops.reshape(exact, ops.constant(np.array(values.shape)), special_zero=False)
        with_groups = ops.matmul(product.input_value(0), whole, product.get_attributes()["transpose_a"], True)
        with_groups.set_friendly_name(product.get_friendly_name())
        product.output(0).replace(with_groups.output(0))
        quantized += 1
    if not quantized:
        raise ValueError(f"no product of the model reads a multiple of {GROUP} features")
    openvino.save_model(model, file, compress_to_fp16=False)


def quantized_groups(weight: Array) -> tuple[Array, Array]:
    """Round a weight, fp32 [outputs, inputs], to int8 [outputs, groups, GROUP] times fp32 scales [outputs, groups, 1].

    A scale maps the largest absolute value of a group to 127.
    """
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = np.maximum(np.abs(groups).max(axis=2, keepdims=True) / 127, np.finfo(np.float32).tiny)
    return np.rint(groups / scales).astype(np.int8), scales.astype(np.float32)


def remove_unoffered(package: Path, offered: Mapping[str, bool]) -> None:
    """Remove the files that no offered form needs. `offered` maps the name of each form to whether it is offered."""
    needed = {file for form in FORMS if offered[form.name] for file in form.files(package)}
    for form in FORMS:
        for file in form.files(package):
            if file not in needed:
                file.unlink()
        folder = (package / form.file).parent
        if folder != package and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
