"""Which form of a package computes, for each use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from include.artifacts import write_json
from include.stages import BadInput
from tasks.inference import chosen_form, packaged_backends
from tasks.inference.chosen_form import choose
from tasks.inference.packaged_backends import Form, fastest


def form(name: str, thread: float, client: float = 1, clients: float = 1, reason: str = "") -> Form:
    """Return a form that is this many times as fast as PyTorch on one thread, with one client, and with many."""
    engine, _, precision = name.partition("-")
    times = {"one_thread": thread, "one_client": client, "many_clients": clients}
    speeds = {use: {"times_torch": value} for use, value in times.items()}
    said = {"name": name, "engine": engine, "precision": precision, "file": f"{engine}/{precision}", "speeds": speeds}
    return {**said, "offered": not reason, "reasons": [reason] if reason else []}


TORCH = form("torch-fp32", 1)


def package(folder: Path, *forms: Form) -> Path:
    write_json(folder / "package.json", {"forms": forms, "machine": {"processor": "a fast one"}})
    return folder


@pytest.fixture(autouse=True)
def every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged_backends, "computes", lambda precision: True)


def test_each_use_has_the_form_that_is_fastest_there() -> None:
    forms = [TORCH, form("onnxruntime-fp32", 2, 1, 1.1), form("openvino-bf16", 1.5, 3, 1.5)]
    assert fastest(forms, "prediction")["name"] == "onnxruntime-fp32"
    assert fastest(forms, "serving")["name"] == "openvino-bf16"


def test_a_service_needs_speed_with_one_client_and_with_many() -> None:
    forms = [TORCH, form("onnxruntime-fp32", 1, 2, 2), form("openvino-fp32", 1, 3.5, 1)]
    assert fastest(forms, "serving")["name"] == "onnxruntime-fp32"  # a mean of 2 against 1.87


@pytest.mark.parametrize(("times", "expected"), [(0.98, "openvino-fp32"), (0.957, "torch-fp32")])
def test_at_nearly_equal_speed_a_form_without_pytorch_is_chosen(times: float, expected: str) -> None:
    forms = [TORCH, form("openvino-fp32", times, times, times), form("onnxruntime-fp32", 0.5, 0.5, 0.5)]
    assert fastest(forms, "prediction")["name"] == fastest(forms, "serving")["name"] == expected


@pytest.mark.parametrize(("can", "expected"), [(True, "openvino-bf16"), (False, "onnxruntime-fp32")])
def test_a_form_that_this_processor_does_not_compute_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, can: bool, expected: str
) -> None:
    monkeypatch.setattr(packaged_backends, "computes", lambda precision: can or precision != "bf16")
    folder = package(tmp_path, form("openvino-bf16", 3), form("onnxruntime-fp32", 2), TORCH)
    with caplog.at_level("INFO", chosen_form.__name__):
        assert choose(folder, "prediction")["name"] == expected
    assert f"{expected} computes: the fastest for prediction, {3 if can else 2}.00 times PyTorch" in caplog.text
    assert "where it was packaged (a fast one)" in caplog.text


def test_the_experiment_names_a_form(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = package(tmp_path, form("openvino-fp32", 3), TORCH)
    with caplog.at_level("INFO", chosen_form.__name__):
        assert choose(folder, "serving", "torch-fp32")["name"] == "torch-fp32"
    assert "torch-fp32 computes: serving.form names it" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("openvino-int8", r"it is not offered \(it changes too much\)"),
        ("openvino-bf16", "this processor does not compute in bf16"),
        ("onnxruntime-fp32", "the package has no such form"),
    ],
)
def test_a_form_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Any, why: str
) -> None:
    monkeypatch.setattr(packaged_backends, "computes", lambda precision: precision != "bf16")
    refused = form("openvino-int8", 3, reason="it changes too much")
    folder = package(tmp_path, refused, form("openvino-bf16", 2), TORCH)
    message = f"serving.form {wanted} of {folder} cannot be used, because {why}: write auto or torch-fp32"
    with pytest.raises(BadInput, match=message):
        choose(folder, "serving", wanted)


def test_a_machine_that_computes_no_form_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged_backends, "find_spec", lambda name: None)
    message = r"has no form for this machine \(torch-fp32: torch is not installed here\): package the model"
    with pytest.raises(BadInput, match=message):
        choose(package(tmp_path, TORCH), "serving")
