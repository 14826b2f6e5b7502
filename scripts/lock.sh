#!/usr/bin/env bash
# Write the lock files of an environment: exact versions, with the sha256 of every file that PyPI has of them.
# Without a package, all versions become the newest ones that fit together; with packages, only theirs do.
# The lock files of one environment are parts of one resolution, so they fit together in every combination. Each lists
# only what it adds to the parts before it, and is installed with --no-deps.
# usage: scripts/lock.sh tasks|airflow|tools [PACKAGE...]
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:?usage: scripts/lock.sh tasks|airflow|tools [PACKAGE...]}
scripts/tools.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
all=$scratch/all.lock

options=()
if [ $# -gt 1 ]; then
    grep -hv '+cpu' requirements/"$name"*.lock >"$all" # uv keeps the versions that it finds in its output file
    options=("${@:2}")
    options=("${options[@]/#/--upgrade-package=}")
fi

compile() {
    UV_INDEX='' UV_FIND_LINKS='' scripts/uv.sh pip compile --quiet --no-header --no-annotate --python .venv/tools "$@"
}

# Write all versions and hashes of these input files to $all.
resolve() {
    compile --generate-hashes --output-file "$all" "${options[@]}" "${@/%/.in}" >/dev/null
}

# The names of the packages that these input files need.
needed() {
    compile --constraints "$all" "${@/%/.in}" | sed 's/==.*//' | LC_ALL=C sort
}

# Write the lock file $1: the packages of $all whose names are on standard input.
part() {
    {
        echo "# Written by scripts/lock.sh $name."
        awk 'NR == FNR { wanted[$1]; next } /^[^ ]/ { split($0, pin, "=="); keep = pin[1] in wanted } keep' - "$all"
    } >"requirements/$1.lock"
}

# Names on standard input that are not among the words of $1.
without() { LC_ALL=C comm -23 - <(LC_ALL=C sort -u <<<"$1"); }

# PyPI's torch for Linux computes with CUDA. The one without CUDA is another version to uv, and so has its own file. It
# comes from wherever pip finds it, which is its own find-links or the publisher's index.
lock_torch() {
    local version pip=(.venv/tools/bin/pip download -qq --no-deps --dest "$scratch/torch")
    version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' "$all")
    "${pip[@]}" "torch==$version+cpu" 2>/dev/null ||
        "${pip[@]}" --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" "torch==$version+cpu"
    part tasks-torch <<<torch
    {
        echo "# Written by scripts/lock.sh $name."
        echo "torch==$version+cpu --hash=sha256:$(sha256sum "$scratch/torch"/*.whl | cut -d' ' -f1)"
    } >requirements/tasks-torch-cpu.lock
}

case $name in
    tasks)
        resolve requirements/tasks requirements/dev requirements/client requirements/rivals requirements/horovod-cuda
        lock_torch
        common=$(needed requirements/tasks-common)
        cuda=$(grep -P '^(cuda-|nvidia-|triton$)' <<<"$common")
        part tasks-cuda <<<"$cuda"
        needed requirements/horovod-cuda | part horovod-cuda
        apart=torch$'\n'$cuda
        without "$apart" <<<"$common" | part tasks-common
        needed requirements/tasks-build | without "$apart" | part tasks-build
        for stages in tasks-data tasks-train; do
            needed requirements/tasks-common "requirements/$stages" | without "$common" | part "$stages"
        done
        needed requirements/tasks-serve | part tasks-serve # all of it, because the image has no other part
        base=$(needed requirements/tasks)
        needed requirements/tasks requirements/dev requirements/client requirements/rivals | without "$base" | part tasks-dev
        ;;
    airflow)
        resolve requirements/airflow requirements/dev requirements/schemas requirements/pictures
        base=$(needed requirements/airflow)
        part airflow <<<"$base"
        for extra in dev schemas pictures; do
            needed requirements/airflow "requirements/$extra" | without "$base" | part "airflow-$extra"
        done
        ;;
    tools)
        resolve requirements/tools requirements/uv
        for one in tools uv; do needed "requirements/$one" | part "$one"; done
        ;;
    *) echo "there is no environment $name: tasks, airflow or tools" >&2 && exit 2 ;;
esac
