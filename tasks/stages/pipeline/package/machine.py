"""The machine on which the forms are timed, and what its processor cannot compute."""

from __future__ import annotations

from typing import Any

import openvino

from tasks.inference.openvino_backend import computes
from tasks.stages.pipeline.package.forms import Form


def describe_machine() -> dict[str, Any]:
    """Return the name of the processor, and the precisions that OpenVINO can use on it."""
    core = openvino.Core()
    return {
        "processor": core.get_property("CPU", "FULL_DEVICE_NAME"),
        "precisions": list(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
    }


def lacks(form: Form) -> str:
    """Return why the processor cannot compute a form in time; "" if it can."""
    return "" if computes(form.precision) else f"this processor does not compute in {form.precision}"
