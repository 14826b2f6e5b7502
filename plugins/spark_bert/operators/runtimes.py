"""The runtimes in which stages run, each with its operator."""

from __future__ import annotations

import importlib
import os
from typing import cast

from include.stages import BadInput
from spark_bert.operators.base import StageOperator

#: The operator of each value of $SPARK_BERT_RUNTIME. The value is also the name of the operator's module.
_RUNTIMES = {
    "process": "ProcessStageOperator",
    "docker": "DockerStageOperator",
    "kubernetes": "KubernetesStageOperator",
}


def operator() -> type[StageOperator]:
    """Return the runtime's operator. Only its module is imported, because the other runtimes need not be installed."""
    module = importlib.import_module(f"spark_bert.operators.{runtime()}")
    return cast(type[StageOperator], getattr(module, _RUNTIMES[runtime()]))


def runtime() -> str:
    """Return the runtime in which the deployment runs stages: `process`, or the value of $SPARK_BERT_RUNTIME."""
    name = os.environ.get("SPARK_BERT_RUNTIME") or "process"
    if name not in _RUNTIMES:
        raise BadInput(f"SPARK_BERT_RUNTIME={name!r} is not a runtime: write one of {', '.join(_RUNTIMES)}")
    return name
