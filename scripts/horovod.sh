#!/usr/bin/env bash
# Install Horovod into .venv/tasks. Its wheel is built once and kept in the cache, by version, torch and Python. With a
# torch for GPUs, ranks exchange through NCCL.
# usage: scripts/horovod.sh [wheel]  (wheel: only build it, which needs nothing but the environment's part `build`)
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SPARK_BERT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spark-bert}
requirement=$(grep -o '^horovod==[0-9.]*' requirements/horovod.txt)
stamp=.venv/tasks/.horovod # goes with the environment, so a new environment gets it again

# Read from its file: importing torch takes seconds.
version=.venv/tasks/lib/python3.11/site-packages/torch/version.py
torch=$(sed -n "s/^__version__ = '\(.*\)'\$/\1/p" $version)
cuda=$(sed -n "s/^cuda.* = '\(.*\)'\$/\1/p" $version)
wheels=$cache/wheels/${requirement/==/-}${cuda:+-nccl}-torch$torch-py311-$(uname -m)
[ "$(cat $stamp 2>/dev/null)" = "${wheels##*/}" ] && exit

if [ ! -d "$wheels" ]; then
    echo "==> building the Horovod wheel (two to three minutes, once)"
    mkdir -p "$cache/wheels"
    scratch=$(mktemp -d "$cache/wheels/.build-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    [ -z "$cuda" ] || scripts/uv.sh pip install --quiet --python .venv/tasks --target "$scratch/cuda" \
        --require-hashes --no-deps --requirements requirements/horovod-cuda.lock
    PATH=$PWD/.venv/tasks/bin:$PATH scripts/horovod_wheel.sh "$scratch/wheels" ${cuda:+"$scratch/cuda"}
    # This may have outlived its set-up, and another one have exchanged torch meanwhile.
    grep -qsF "'$torch'" $version || { echo "Horovod was compiled while torch was exchanged: run it again" >&2; exit 1; }
    mv -T "$scratch/wheels" "$wheels" 2>/dev/null || true # another set-up may have been faster
fi
[ "${1:-}" = wheel ] && exit
scripts/uv.sh pip install --quiet --python .venv/tasks --no-deps ${PYTHONDONTWRITEBYTECODE:+--compile-bytecode} \
    "$wheels"/*.whl
echo "${wheels##*/}" >$stamp
