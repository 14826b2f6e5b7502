#!/usr/bin/env bash
# Build Horovod's wheel with the Python on PATH and its torch: for set-up (scripts/horovod.sh) and for the images.
# usage: scripts/horovod_wheel.sh FOLDER
set -euo pipefail
folder=$(realpath -m "$1")
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
unset PYTHONDONTWRITEBYTECODE # CMake starts Python again and again, and each time it imports torch
export CXX=$PWD/scripts/horovod-cxx MAKEFLAGS=-j$(nproc)
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
python -m pip wheel --quiet --no-cache-dir --no-build-isolation --no-deps --require-hashes \
    --wheel-dir "$folder" -r requirements/horovod.txt >"$log" 2>&1 ||
    { tail -40 "$log" >&2; echo "Horovod did not compile, see the 40 lines before this one; one rank does without it" >&2; exit 1; }
