"""Layers whose forward and backward passes torch compiles: a few large kernels in the place of many small ones.

A GPU computes a layer of a short batch faster than Python can start the layer's operations one by one.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from transformers import PreTrainedModel

from include.stages import BadInput
from tasks.context import cache_folder
from tasks.training.layers import FILL_A_CACHE, layers_of

_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_REMEDY = "install it, as `make setup` does, or write training.compiled_layers: false, as in containers"


def compile_layers(encoder: PreTrainedModel, backend: str = "inductor") -> None:
    """Let torch compile what each layer does in training, when the layer is first called.

    A few compilations serve all layers and any number of rows and tokens, and later trainings find the code in the
    cache folder. Evaluations use the layers' own passes: they are too rare to pay for other code.

    Args:
        encoder: replace what its layers compute before this call, and wrap them after it.
        backend: torch's name of the compiler.

    Raises:
        BadInput: the compiler needs a C++ compiler or Python's headers, and there are none; the layers cannot share
            code; or nothing can be written into the cache folder.
    """
    kind = encoder.config.model_type
    if kind in FILL_A_CACHE:
        raise BadInput(
            f"the layers of the encoder ({kind}) fill a cache, so that each would need code of its own: "
            "write training.compiled_layers: false"
        )
    if tool := missing_tool():
        raise BadInput(f"training.compiled_layers needs {tool}: {_REMEDY}")
    _keep_code(cache_folder() / "compiled")
    for layer in layers_of(encoder):
        for part in layer:
            part.forward = _in_training(part, part.forward, backend)


def missing_tool() -> str:
    """Return what the compiler needs and does not find: on a GPU, too, its code is started from C. Empty: nothing."""
    compiler, headers = os.environ.get("CXX", "g++"), Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which(compiler) is None:
        return f"a C++ compiler, but there is no program {compiler!r} ($CXX, else g++)"
    return "" if headers.is_file() else f"Python's headers, but there is no {headers}"


def _keep_code(folder: Path) -> None:
    """Keep compiled code in a folder, unless the user has named one. By itself, torch takes one that may be emptied."""
    if os.environ.get(_CACHE) in (None, default_cache_dir()):  # torch itself sets the variable when it is imported
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"training.compiled_layers keeps code in {folder}, which cannot be made ({error.strerror}): name "
                f"another folder in SPARK_BERT_CACHE or {_CACHE}"
            ) from error
        os.environ[_CACHE] = str(folder)


def _in_training(part: nn.Module, plain: Callable[..., Any], backend: str) -> Callable[..., Any]:
    compiled = torch.compile(plain, dynamic=True, backend=backend)

    def forward(*values: Any, **named: Any) -> Any:
        return (compiled if part.training else plain)(*values, **named)

    return forward
