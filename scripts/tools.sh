#!/usr/bin/env bash
# Make .venv/tools, which holds uv, ruff and import-linter, and run a command in it.
# usage: scripts/tools.sh [COMMAND [ARG...]]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv/tools
wanted=$(cat scripts/tools.sh requirements/uv.lock requirements/tools.lock | sha256sum)

make_tools() {
    echo "==> environment $venv" >&2
    python3.11 -m venv --clear "$venv"
    "$venv/bin/pip" install -qq --disable-pip-version-check --require-hashes --no-deps -r requirements/uv.lock
    scripts/uv.sh pip install --quiet --python "$venv" --require-hashes --no-deps -r requirements/tools.lock
    echo "$wanted" >"$venv/.ready"
}

mkdir -p .venv
(
    flock 8 # two make commands at once would make the same environment
    [ "$(cat "$venv/.ready" 2>/dev/null)" = "$wanted" ] || make_tools
) 8>.venv/.tools-lock
[ $# -eq 0 ] || PATH=$PWD/$venv/bin:$PATH exec "$@"
