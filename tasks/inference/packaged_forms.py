"""The forms that a package offers, and which of them this machine computes fastest. It imports no engine at once."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

#: The largest change of a probability, or of a score as a share of the task's range, that a form may make.
LARGEST_CHANGE = 0.02
#: The libraries that compute forms.
ENGINES = ("torch", "onnxruntime", "openvino")
#: What package.json says of a form.
Form = dict[str, Any]


def computable(form: Form) -> bool:
    """Return whether the library of a form is installed, and the processor computes in its precision."""
    if form["engine"] not in ENGINES or not find_spec(form["engine"]):
        return False
    if form["engine"] != "openvino":
        return True
    from tasks.inference.openvino_backend import computes

    return computes(form["precision"])


def fastest(forms: Iterable[Form]) -> Form:
    """Return the form with the highest speed relative to PyTorch, of one or more."""
    return max(forms, key=lambda form: float(form["times_torch"]))
