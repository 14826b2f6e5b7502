#!/usr/bin/env bash
# Install Horovod into .venv/tasks; its wheel is built once and kept in the cache, by version, torch and Python.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/tasks/bin/python
cache=${SPARK_BERT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spark-bert}
requirement=$(grep -o '^horovod==[0-9.]*' requirements/horovod.txt)
stamp=.venv/tasks/.horovod # goes with the environment, so a new environment gets it again
[ "$(cat $stamp 2>/dev/null)" = "$requirement" ] && exit

tag=$("$python" -c 'import sys, torch, platform; print(f"torch{torch.__version__}-py{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}")')
wheels=$cache/wheels/${requirement/==/-}-$tag

if [ ! -d "$wheels" ]; then
    echo "==> building the Horovod wheel (two to three minutes, once)"
    mkdir -p "$cache/wheels"
    scratch=$(mktemp -d "$cache/wheels/.build-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    PATH=$PWD/.venv/tasks/bin:$PATH scripts/horovod_wheel.sh "$scratch/wheels"
    mv -T "$scratch/wheels" "$wheels" 2>/dev/null || true # another set-up may have been faster
fi
"$python" -m pip install -qq --disable-pip-version-check --no-deps "$wheels"/*.whl
echo "$requirement" >$stamp
