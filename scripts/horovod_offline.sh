#!/usr/bin/env bash
# Install Horovod with NCCL on a machine without a network whose Python, 3.11 or newer, has a torch for GPUs from PyPI,
# 2.11 or newer with CUDA 13. The machine needs pip, a C++ compiler, make and Python's headers, but no CUDA and no GPU.
# usage: scripts/horovod_offline.sh fetch FOLDER PYTHON_VERSION
#            with a network: download into FOLDER what is needed for a version of Python, such as 3.12
#        scripts/horovod_offline.sh install FOLDER [PIP_OPTION...]
#            without one: build the wheel with the python3 on PATH, keep it in FOLDER/built, and install it and what it
#            imports; pip's options may say where, such as --target FOLDER
set -euo pipefail
[ $# -ge 2 ] || { sed -n '4,8s/^# //p' "$0" >&2; exit 2; }
folder=$(realpath -m "$2")
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
builds=(pip setuptools wheel packaging) imports=(cffi cloudpickle packaging psutil pycparser pyyaml)

# The versions of these packages in the lock files, which hold the hashes for Python 3.11 alone.
pins() {
    local names=$*
    grep -hoE "^(${names// /|})==[^ ]*" requirements/tasks-{build,train,common}.lock | sort -u
}

fetch() {
    local systems=(--platform=manylinux{_2_28,_2_17,2014}_"$(uname -m)")
    local pip=(python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder")
    pip+=(--only-binary=:all: --python-version="$1" "${systems[@]}")
    "${pip[@]}" $(pins "${builds[@]}" "${imports[@]}")
    "${pip[@]}" --require-hashes -r requirements/horovod-cuda.lock
    # pip asks a source package for its name, with the newest setuptools unless it is told otherwise.
    pins setuptools >"$scratch/setuptools.txt"
    PIP_CONSTRAINT=$scratch/setuptools.txt python3 -m pip download --quiet --disable-pip-version-check --no-deps \
        --no-binary=horovod --require-hashes --dest "$folder" -r requirements/horovod.txt
}

install() {
    local pip=(python3 -m pip install --quiet --disable-pip-version-check --no-index --find-links "$folder" --no-deps)
    python3 -c 'import torch; assert torch.version.cuda' || { echo "python3 has no torch for GPUs" >&2; exit 1; }
    "${pip[@]}" --target "$scratch/build" "${builds[@]}"
    "${pip[@]}" --target "$scratch/cuda" --require-hashes -r requirements/horovod-cuda.lock
    PYTHONPATH=$scratch/build${PYTHONPATH:+:$PYTHONPATH} PIP_NO_INDEX=1 PIP_FIND_LINKS=$folder \
        scripts/horovod_wheel.sh "$scratch/built" "$scratch/cuda"
    "${pip[@]}" --target "$scratch/check" "${imports[@]}" "$scratch"/built/*.whl
    PYTHONPATH=$scratch/check python3 -c 'import horovod.torch as hvd; assert hvd.nccl_built() and hvd.gloo_built()'
    "${pip[@]}" "$@" "${imports[@]}" "$scratch"/built/*.whl
    mkdir -p "$folder/built"
    mv "$scratch"/built/*.whl "$folder/built" # next to those for other versions of Python
}

case $1 in
    fetch) fetch "${3:?a version of Python, such as 3.12}" ;;
    install) install "${@:3}" ;;
    *) echo "there is no command $1: fetch or install" >&2 && exit 2 ;;
esac
