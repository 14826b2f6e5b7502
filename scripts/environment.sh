#!/usr/bin/env bash
# Make .venv/tasks or .venv/airflow from its lock files, part by part. An environment is made again from nothing when
# its lock files have changed or an installation was interrupted.
# usage: scripts/environment.sh tasks build|run|dev ...
#        scripts/environment.sh airflow run|dev|schemas|pictures ...
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 venv=.venv/$1
wanted=$(cat scripts/environment.sh requirements/"$name"*.lock | sha256sum)

# Install these lock files, without anything that they do not list.
install() {
    local locks=("${@/#/--requirements=requirements/}")
    scripts/uv.sh pip install --quiet --python "$venv" --require-hashes --no-deps \
        --build-constraints requirements/tasks-build.lock --require-build-hashes "${options[@]}" "${locks[@]/%/.lock}"
}

install_part() {
    # Python compiles a module when it first imports it. Where it may not write the result, all are compiled here.
    local options=(${PYTHONDONTWRITEBYTECODE:+--compile-bytecode})
    case $name-$1 in
        tasks-build)
            scripts/torch.sh scripts/uv.sh --quiet --python "$venv" "${options[@]}"
            install tasks-build
            ;;
        tasks-run) install tasks-common tasks-data tasks-train tasks-serve ;;
        airflow-run) install airflow ;;
        *) install "$name-$1" ;;
    esac
}

scripts/tools.sh
if [ "$(cat "$venv/.locks" 2>/dev/null)" != "$wanted" ] || [ -e "$venv/.installing" ]; then
    python3.11 -m venv --without-pip --clear "$venv"
    echo "$wanted" >"$venv/.locks"
fi
for part in "${@:2}"; do
    [ -e "$venv/.ready-$part" ] && continue
    echo "==> environment $venv: $part"
    touch "$venv/.installing"
    install_part "$part"
    touch "$venv/.ready-$part"
    rm "$venv/.installing"
done
