#!/usr/bin/env bash
# Write requirements/<name>.lock anew: what pip chooses today for <name>.in and what its checks need, in a fresh
# environment.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:?usage: scripts/lock.sh tasks|airflow}
inputs=(-r "requirements/$name.in" -r requirements/dev.in)
case $name in
    tasks) inputs+=(-r requirements/benchmarks.in) ;;
    airflow) inputs+=(-r requirements/schemas.in) ;;
esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3.11 -m venv "$scratch"
"$scratch/bin/pip" install -qq "${inputs[@]}"
{
    echo "# Written by scripts/lock.sh $name. A constraints file: what is pinned is installed only where it is needed."
    "$scratch/bin/pip" freeze --all | grep -v '^pip==' | sed 's/+cpu$//' | LC_ALL=C sort -f
} >"requirements/$name.lock"
