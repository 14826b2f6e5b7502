"""Compile the kernels for this processor's family: `python tasks/kernels/build.py [PREFIX]`, with nothing but Python.

They belong to an environment, whose prefix is that of the Python which runs this. Their names contain the digest of
the source, so that code and kernels of different revisions never meet.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCES = sorted(Path(__file__).resolve().parent.glob("*.[ch]*"))
#: The instructions that code is compiled for, by what torch calls the processor's capability. On other processors than
#: x86, they are those that all of the kind have: an image may be made on one and run on another.
_X86 = platform.machine() == "x86_64"
LEVELS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"} if _X86 else dict.fromkeys(("DEFAULT", "SVE256"), "")
#: Values that are not finite must stay so, which -ffast-math does not promise.
_FLAGS = "-std=c++17 -O3 -fno-math-errno -fno-trapping-math -fopenmp -fPIC"
if _X86:
    _FLAGS += " -mprefer-vector-width=512"


def library_path(capability: str, prefix: str = sys.prefix) -> Path:
    """Return where the library for a capability of processors is."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in _SOURCES) + _FLAGS.encode()).hexdigest()[:16]
    return Path(prefix, "lib", "spark-bert", f"kernels-{digest}-{LEVELS[capability] or platform.machine()}.so")


def build(prefix: str = sys.prefix) -> None:
    """Compile what is not there yet. Raises OSError or CalledProcessError if the compiler is missing or fails."""
    for capability, level in LEVELS.items():
        target = library_path(capability, prefix)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            compiler, code = os.environ.get("CXX", "g++"), [file for file in _SOURCES if file.suffix == ".cpp"]
            flags = [*_FLAGS.split(), *([f"-march={level}"] if level else [])]
            subprocess.run([compiler, *flags, "-c", *code], cwd=scratch, check=True)
            # OpenMP is not linked, so that the kernels use that of torch, with its threads.
            objects = [f"{file.stem}.o" for file in code]
            subprocess.run([compiler, "-shared", *objects, "-o", "library"], cwd=scratch, check=True)
            Path(scratch, "library").replace(target)


if __name__ == "__main__":
    build(*sys.argv[1:])
