#!/usr/bin/env bash
# Make .venv/<name> from its lock file. Anything but a finished environment is made again from nothing.
# usage: scripts/environment.sh tasks|airflow [dev|benchmarks|schemas ...]
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 venv=.venv/$1
lock=requirements/$name.lock

# The stamp holds what was installed, so a changed lock file or an interrupted set-up starts over.
wanted=$(cat "requirements/$name"*.in "$lock" scripts/environment.sh | sha256sum)
if [ "$(cat "$venv/.ready" 2>/dev/null)" != "$wanted" ]; then
    echo "==> environment $venv"
    python3.11 -m venv --clear "$venv"
    "$venv/bin/pip" install -qq --disable-pip-version-check -r "requirements/$name.in" -c "$lock"
    echo "$wanted" >"$venv/.ready"
fi
for extra in "${@:2}"; do
    wanted=$(cat "requirements/$extra.in" "$lock" | sha256sum)
    if [ "$(cat "$venv/.ready-$extra" 2>/dev/null)" != "$wanted" ]; then
        echo "==> requirements/$extra.in for $venv"
        "$venv/bin/pip" install -qq --disable-pip-version-check -r "requirements/$extra.in" -c "$lock"
        echo "$wanted" >"$venv/.ready-$extra"
    fi
done
