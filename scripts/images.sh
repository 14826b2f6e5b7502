#!/usr/bin/env bash
# Build the images of this checkout. Each is tagged with the git revision and with $SPARK_BERT_TAG.
# usage: scripts/images.sh [data|train|search|train-gpu|search-gpu|serve|airflow ...]  (all but *-gpu, when none is named)
# From the environment: BASE, what they start from, and TORCH_INDEX, where torch comes from (tasks/Dockerfile). Its hash
# has to be in requirements/tasks-torch*.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- data train search serve airflow
images=${SPARK_BERT_IMAGES:-spark-bert} tag=${SPARK_BERT_TAG:-latest}
revision=$(git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown)

build() {
    echo "==> image $images/$1:$tag" >&2
    docker build --quiet --build-arg BASE --build-arg REVISION="$revision" \
        --tag "$images/$1:$tag" --tag "$images/$1:$revision" "${@:2}" . >/dev/null
}

for name; do
    case $name in
        data | train | search | serve) build "$name" --file tasks/Dockerfile --target "$name" --build-arg TORCH_INDEX ;;
        train-gpu | search-gpu)
            # PyPI's torch computes with CUDA, and Horovod is compiled for it, with NCCL. Neither needs a GPU here.
            if compgen -G 'wheelhouse/*.whl' >/dev/null; then
                echo "wheelhouse/ holds wheels for the CPU: take them away to build $name" >&2
                exit 1
            fi
            build "$name" --file tasks/Dockerfile --target "${name%-gpu}" --build-arg TORCH_INDEX=https://pypi.org/simple
            ;;
        airflow) build "$name" ;;
        *) echo "there is no image $name: data, train, search, train-gpu, search-gpu, serve or airflow" >&2 && exit 2 ;;
    esac
done
