#!/usr/bin/env bash
# Build Horovod's wheel with the Python on PATH and its torch: for set-up (scripts/horovod.sh), for the images, and for
# machines without a network (scripts/horovod_offline.sh).
# usage: scripts/horovod_wheel.sh FOLDER [CUDA]
# CUDA: the folder into which requirements/horovod-cuda.lock was installed. Ranks then exchange through torch's NCCL.
set -euo pipefail
folder=$(realpath -m "$1")
cuda=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
unset PYTHONDONTWRITEBYTECODE # CMake starts Python again and again, and each time it imports torch
export CXX=$PWD/scripts/horovod-cxx MAKEFLAGS=-j$(nproc)
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1

# Horovod asks distutils where they are, which Python 3.12 does not have.
CPLUS_INCLUDE_PATH=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
export CPLUS_INCLUDE_PATH

if [ "$cuda" ]; then
    nccl=$(python3 -c 'import nvidia.nccl; print(*nvidia.nccl.__path__)')
    export CUDA_HOME=$cuda/nvidia/cu13 # of CUDA 13: compiler, headers and libraries of all wheels in one folder
    # What CMake and the linker look for, and wheels do not have.
    ln -sfn lib "$CUDA_HOME/lib64"
    ln -sf libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"
    ln -sf "$nccl/lib/libnccl.so.2" "$CUDA_HOME/lib/libnccl.so"
    export PATH=$CUDA_HOME/bin:$cuda/cmake/data/bin:$PATH
    export CUDACXX=$PWD/scripts/horovod-nvcc CUDAToolkit_ROOT=$CUDA_HOME
    export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED HOROVOD_WITHOUT_NVTX=1
    export HOROVOD_NCCL_INCLUDE=$nccl/include HOROVOD_NCCL_LIB=$CUDA_HOME/lib
fi

python3 -m pip wheel --quiet --no-cache-dir --no-build-isolation --no-deps --require-hashes \
    --wheel-dir "$folder" -r requirements/horovod.txt >"$log" 2>&1 ||
    { tail -40 "$log" >&2; echo "Horovod did not compile, see the 40 lines before this one; one rank does without it" >&2; exit 1; }

# Horovod leaves NCCL out where it does not find it, and says so only in its log.
[ -z "$cuda" ] || python3 - "$folder"/horovod-*.whl <<'CHECK'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    libraries = [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]
if not any(b"libnccl.so" in library for library in libraries):
    sys.exit("Horovod was compiled without NCCL")
CHECK
