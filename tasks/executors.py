"""What executors must have in common with the driver: Python, and the packages that work on executors needs.

The driver sends the versions of its packages with the environment of the executors, and each Python worker compares
them with its own before it runs our code. `problem` explains what Spark reports of executors that do not get this far.
"""

from __future__ import annotations

import json
import os
import re
import socket
from importlib.metadata import PackageNotFoundError, version

from include.stages import BadInput

#: The variable with the driver's versions, which only executors have.
VERSIONS = "SPARK_BERT_VERSIONS"
_PACKAGES = (
    "numpy", "onnxruntime", "openvino", "pandas", "pyarrow", "safetensors", "scipy", "tokenizers", "torch",
    "transformers",
)  # fmt: skip
_REMEDY = "give executors the image of the stages, or name their Python with these packages in PYSPARK_PYTHON"
#: What Spark reports, and what it means.
_REPORTS = {
    r"PYTHON_VERSION_MISMATCH\] Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)": (
        "an executor has Python {}, but the driver has {}: {remedy}"
    ),
    r"ModuleNotFoundError: No module named '([\w.]+)'": "an executor lacks the Python package {}: {remedy}",
    r'Cannot run program "([^"]+)": error=\d+, ([\w ]+)': "an executor cannot start Python, {} ({}): {remedy}",
}


def versions() -> str:
    """Return the versions of the driver's packages, for VERSIONS."""
    return json.dumps({name: found for name in _PACKAGES if (found := _version(name))})


def check_versions() -> None:
    """Raise BadInput if this executor has other packages than the driver."""
    for name, wanted in json.loads(os.environ[VERSIONS]).items():
        if (found := _version(name)) != wanted:
            raise BadInput(
                f"the executor on {socket.gethostname()} has {f'{name} {found}' if found else f'no {name}'}, but the "
                f"driver has {name} {wanted}: {_REMEDY}"
            )


def problem(report: str) -> BadInput | None:
    """Return what a report of Spark says about executors that cannot run our code, or None."""
    for pattern, meaning in _REPORTS.items():
        if found := re.search(pattern, report):
            return BadInput(meaning.format(*found.groups(), remedy=_REMEDY))
    return None


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]  # torch for CPUs is the same as torch for GPUs
    except PackageNotFoundError:
        return ""
