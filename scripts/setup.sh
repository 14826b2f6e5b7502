#!/usr/bin/env bash
# Everything that a run needs and does not find: system packages, environments, Horovod, corpus and encoder.
# usage: scripts/setup.sh [one-rank]  (one-rank: without Horovod, which only trainings of several ranks need)
# From the environment: SPARK_BERT_TORCH, which is cuda or cpu. Without it, torch is for GPUs where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# One at a time: two make commands at once would make the same environment.
mkdir -p .venv
exec 9>.venv/.lock
flock 9

scope=${1:-all}
scripts/system_packages.sh "$scope"

# A driver shows itself by its tool, and in a container at least by its device.
if [ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null; then gpu=cuda; else gpu=cpu; fi
export SPARK_BERT_TORCH=${SPARK_BERT_TORCH:-$gpu}
version=.venv/tasks/lib/python3.11/site-packages/torch/version.py
if [ "$SPARK_BERT_TORCH" = cuda ] && grep -qsF "+cpu'" $version; then # made before there was a GPU
    # What an installation began and did not end is made again from nothing, for which a network is needed, too.
    if scripts/torch.sh scripts/uv.sh --quiet --dry-run --python .venv/tasks; then
        rm -f .venv/tasks/.ready-build .venv/tasks/.horovod
    else
        echo "The torch for GPUs cannot be fetched: trainings use the CPU until make setup can" >&2
    fi
fi

# Horovod's wheel takes longest and needs only torch. So it is compiled first, while everything else is downloaded.
scripts/environment.sh tasks build
[ "$scope" = one-rank ] || scripts/horovod.sh wheel 9>&- & # what outlives a killed set-up must not keep its lock
wheel=$!
nice scripts/environment.sh airflow run &
airflow=$!
nice scripts/environment.sh tasks run
ready=.venv/.fetched
if [ "$(cat $ready 2>/dev/null)" != "$(sha256sum tasks/assets.py)" ]; then
    echo "==> corpus and encoder"
    .venv/tasks/bin/python -m tasks fetch
    sha256sum tasks/assets.py >$ready
fi
wait $airflow
wait $wheel
[ "$scope" = one-rank ] || scripts/horovod.sh
