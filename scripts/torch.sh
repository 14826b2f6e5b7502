#!/usr/bin/env bash
# Install torch: with CUDA's libraries, from PyPI, if $SPARK_BERT_TORCH is cuda; else the one without CUDA where the given
# indexes have it, and PyPI's where they do not. For set-up (scripts/environment.sh) and for the images. A torch from
# anywhere else is refused, as its hash is not known.
# usage: scripts/torch.sh UV [OPTION...]  (UV: a command that runs uv; options of `uv pip install`)
set -euo pipefail
locks=$(dirname "$0")/../requirements
cpu=$(grep -o '^torch==[^ ]*' "$locks/tasks-torch-cpu.lock")

uv=("$1" pip install --no-deps "${@:2}")
if [ "${SPARK_BERT_TORCH:-cpu}" = cpu ] && "${uv[@]}" --dry-run "$cpu" >/dev/null 2>&1; then
    "${uv[@]}" --require-hashes --requirements "$locks/tasks-torch-cpu.lock"
else
    # To ==, the same version without CUDA is equal, whether it is installed or among the wheels of an index.
    "${uv[@]}" --require-hashes --requirements <(sed 's/^torch==/torch===/' "$locks/tasks-torch.lock") \
        --requirements "$locks/tasks-cuda.lock"
fi
