#!/usr/bin/env bash
# Run a command in Airflow's environment, on this checkout's Dags, plugins and database (work/airflow).
# usage: scripts/airflow.sh ui | COMMAND [ARG...]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

export SPARK_BERT_HOME=${SPARK_BERT_HOME:-$root/work}
export SPARK_BERT_TASKS_PYTHON=${SPARK_BERT_TASKS_PYTHON:-$root/.venv/tasks/bin/python}
export AIRFLOW_HOME=${AIRFLOW_HOME:-$SPARK_BERT_HOME/airflow}
"$root/scripts/home.sh" "$SPARK_BERT_HOME"
mkdir -p "$AIRFLOW_HOME"
if [ -O "$AIRFLOW_HOME" ]; then chmod go-rwx "$AIRFLOW_HOME"; fi
# On a busy machine, one of Airflow's processes may write for longer than the 5 seconds that SQLite waits by itself. The
# API server would then answer 500. It must not wait for minutes either: where two of its requests wait for each other,
# only the end of this wait lets them go on.
if [ -z "${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD:-}${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_SECRET:-}" ]; then
    database=sqlite:///$AIRFLOW_HOME/airflow.db?timeout=30
    export AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=${AIRFLOW__DATABASE__SQL_ALCHEMY_CONN:-$database}
fi
export AIRFLOW__CORE__DAGS_FOLDER=$root/dags AIRFLOW__CORE__PLUGINS_FOLDER=$root/plugins
export AIRFLOW__CORE__LOAD_EXAMPLES=False AIRFLOW__CORE__EXECUTOR=LocalExecutor
export AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=False
export AIRFLOW__API__HOST=${AIRFLOW__API__HOST:-127.0.0.1} AIRFLOW__API__PORT=${AIRFLOW__API__PORT:-8080}
export AIRFLOW__CORE__EXECUTION_API_SERVER_URL=http://localhost:$AIRFLOW__API__PORT/execution/
export AIRFLOW__API__BASE_URL=${AIRFLOW__API__BASE_URL:-http://localhost:$AIRFLOW__API__PORT} # of links in notices
# Airflow reads .airflowignore with a class of pathspec that is deprecated, which each task's log would begin with.
export PYTHONWARNINGS=${PYTHONWARNINGS:+$PYTHONWARNINGS,}ignore:GitWildMatchPattern:DeprecationWarning
export PYTHONPATH=$root:$root/plugins PATH=$root/.venv/airflow/bin:$PATH

# The database is made once; the stamp, not the file, says that it was made to the end.
if [ "$(cat "$AIRFLOW_HOME/.migrated" 2>/dev/null)" != "$(sha256sum <"$root/requirements/airflow.lock")" ]; then
    echo "==> Airflow's database" >&2
    airflow db migrate >"$AIRFLOW_HOME/migrate.log" 2>&1 || { tail -20 "$AIRFLOW_HOME/migrate.log" >&2; exit 1; }
    sha256sum <"$root/requirements/airflow.lock" >"$AIRFLOW_HOME/.migrated"
fi
if [ "$1" = ui ]; then
    stopped=0 code=0
    # Standalone would leave its processes behind on a SIGTERM, or wait for a training to end. So each signal ends its
    # whole group: a stage stops with its worker, and continues from its checkpoint later.
    set -m # which gives it a group of its own
    trap stopped=1 TERM HUP INT
    airflow standalone &
    wait $! || code=$?
    kill -- -$! 2>/dev/null || true
    for _ in $(seq 300); do
        kill -0 -- -$! 2>/dev/null || exit $((stopped ? 0 : code))
        sleep 0.2
    done
    kill -KILL -- -$!
    exit 1
fi
# Quiet, but for what the stages say.
export AIRFLOW__LOGGING__NAMESPACE_LEVELS="airflow=ERROR airflow.sdk.definitions.dag=ERROR alembic=ERROR task=ERROR py.warnings=ERROR airflow.task.operators=INFO"
export AIRFLOW__LOGGING__LOG_FORMAT="%(asctime)s %(levelname)s %(message)s"
exec "$@"
