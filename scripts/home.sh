#!/usr/bin/env bash
# Make the folder of a deployment's runs, models and databases, and refuse one that was copied or moved from elsewhere.
# usage: scripts/home.sh FOLDER
set -euo pipefail
mkdir -p "$1"
made=$(cat "$1/.path" 2>/dev/null || true)
made=${made:-$(realpath "$1")}
if ! [ "$made" -ef "$1" ]; then
    echo "error: $1 was made as $made and then copied or moved: its records, MLflow's database and airflow.cfg name that" \
        "path, and runs would write there. Name another SPARK_BERT_HOME, move the folder back, or, if $made is gone," \
        "write ln -s $(realpath "$1") $made" >&2
    exit 2
fi
if ! [ -s "$1/.path" ]; then
    # Other users of this machine may not read databases, passwords and logs, nor the rows that reports quote. A container
    # whose stage runs as another user is given folders below this one, and does not pass through it. Who opens the home
    # to others later finds it open.
    if [ -O "$1" ]; then chmod go-rwx "$1"; fi
    printf %s "$made" >"$1/.path.$$" # whole or not at all: another start may read it in this moment
    mv "$1/.path.$$" "$1/.path"
fi
