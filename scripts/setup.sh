#!/usr/bin/env bash
# Everything that a run needs and does not find: system packages, environments, Horovod, corpus and encoder.
# usage: scripts/setup.sh [one-rank]  (one-rank: without Horovod, which only trainings of several ranks need)
set -euo pipefail
cd "$(dirname "$0")/.."

# One at a time: two make commands at once would make the same environment.
mkdir -p .venv
exec 9>.venv/.lock
flock 9

scope=${1:-all}
scripts/system_packages.sh "$scope"
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
