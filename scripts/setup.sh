#!/usr/bin/env bash
# Everything that a run needs and does not find: system packages, environments, Horovod, corpus and encoder.
# usage: scripts/setup.sh [one-rank]  (one-rank: without Horovod, which only trainings of several ranks need)
# From the environment: SPARK_BERT_TORCH, which is cuda or cpu, and is remembered until `make clean`. If it was never
# set, torch is for GPUs where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# One at a time: two make commands at once would make the same environment.
mkdir -p .venv
exec 9>.venv/.lock
flock 9

chosen=.venv/.torch
case ${SPARK_BERT_TORCH:-} in
    cuda | cpu) echo "$SPARK_BERT_TORCH" >$chosen ;;
    '') SPARK_BERT_TORCH=$(cat $chosen 2>/dev/null || true) ;;
    *) echo "SPARK_BERT_TORCH is $SPARK_BERT_TORCH: write cuda or cpu" >&2 && exit 2 ;;
esac
# A driver shows itself by its tool, and in a container at least by its device.
if [ -z "$SPARK_BERT_TORCH" ]; then
    if [ -e /dev/nvidiactl ] || command -v nvidia-smi >/dev/null; then SPARK_BERT_TORCH=cuda; else SPARK_BERT_TORCH=cpu; fi
fi
export SPARK_BERT_TORCH

scope=${1:-all}
scripts/system_packages.sh "$scope"

# Is the other torch installed, which can be replaced now? The one for GPUs also serves a CPU, unless cpu was asked for.
can_be_exchanged() {
    local version=.venv/tasks/lib/python3.11/site-packages/torch/version.py
    if [ "$SPARK_BERT_TORCH" = cuda ]; then
        grep -qsF "+cpu'" $version || return 1
        scripts/torch.sh scripts/uv.sh --quiet --dry-run --python .venv/tasks && return
    else
        [ -s $chosen ] && grep -qs "^cuda.* = '" $version || return 1
        scripts/uv.sh pip install --quiet --no-deps --dry-run --python .venv/tasks \
            "$(grep -o '^torch==[^ ]*' requirements/tasks-torch-cpu.lock)" && return
    fi
    echo "torch stays as it is until make setup can fetch the one for $SPARK_BERT_TORCH" >&2
    return 1
}
# The environment is made again from nothing, and so is Horovod in it, which was compiled for the other torch. It counts
# as unmade from here on, so that a set-up that is killed changes nothing about that.
if can_be_exchanged; then rm -f .venv/tasks/.locks .venv/tasks/.horovod; fi

# Horovod's wheel takes longest and needs only torch. So it is compiled first, while everything else is downloaded.
scripts/environment.sh tasks build
[ "$scope" = one-rank ] || scripts/horovod.sh wheel 9>&- & # what outlives a killed set-up must not keep its lock
wheel=$!
{ nice scripts/environment.sh airflow run && scripts/airflow.sh true; } & # which also makes Airflow's database
airflow=$!
.venv/tasks/bin/python tasks/kernels/build.py ||
    echo "The kernels cannot be compiled, so training on CPUs is slower. GCC 12, as in Debian 12, compiles them." >&2
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
