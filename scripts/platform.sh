#!/usr/bin/env bash
# The platform of docker-compose.yaml: start it and wait until it is healthy, or ask compose for anything else.
# usage: scripts/platform.sh up [--experiment NAME ...] | down [--volumes] | COMPOSE_COMMAND [ARG...]
set -euo pipefail
cd "$(dirname "$0")/.."

# Containers run as the caller, who then owns what they make; where that is root, as 1000.
SPARK_BERT_UID=$(id -u) SPARK_BERT_GID=$(id -g)
[ "$SPARK_BERT_UID" != 0 ] || SPARK_BERT_UID=1000 SPARK_BERT_GID=1000
SPARK_BERT_HOME=$(realpath -m "${SPARK_BERT_HOME:-work}")
SPARK_BERT_CACHE=$(realpath -m "${SPARK_BERT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spark-bert}")
platform=$SPARK_BERT_HOME/platform
# The data folder of the last `make up` stays until another one is named.
SPARK_BERT_DATA=$(realpath -m "${SPARK_BERT_DATA:-$(cat "$platform/data" 2>/dev/null || echo data)}")
SPARK_BERT_SECRETS=$(realpath -m "${SPARK_BERT_SECRETS:-$SPARK_BERT_HOME/platform/tokens}")
SPARK_BERT_IMAGES=${SPARK_BERT_IMAGES:-spark-bert} SPARK_BERT_TAG=${SPARK_BERT_TAG:-latest}
SPARK_BERT_PORT=${SPARK_BERT_PORT:-8080} SPARK_BERT_SERVE_PORT=${SPARK_BERT_SERVE_PORT:-8000}
SPARK_BERT_WORKER_CORES=${SPARK_BERT_WORKER_CORES:-$((($(nproc) + 1) / 2))}
SPARK_BERT_DOCKER_SOCKET=${SPARK_BERT_DOCKER_SOCKET:-/var/run/docker.sock}
SPARK_BERT_DOCKER_GID=$(stat -L -c %g "$SPARK_BERT_DOCKER_SOCKET")
COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-spark-bert}
SPARK_BERT_NETWORK=$COMPOSE_PROJECT_NAME-stages
SPARK_BERT_DEPLOYMENT=$COMPOSE_PROJECT_NAME
SPARK_BERT_POLICY=$(cat compose/proxy/* | sha256sum | cut -c1-16)
SPARK_BERT_MONITORING=$(cat compose/prometheus/* | sha256sum | cut -c1-16)
export "${!SPARK_BERT_@}" COMPOSE_PROJECT_NAME

compose() {
    if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi
}

random() { head -c "${1:-32}" /dev/urandom | base64 --wrap 0 | tr '+/' '-_'; }
database_url() { printf %s "postgresql+psycopg2://airflow:$(cat "$platform/secrets/database_password")@postgres/airflow"; }
login() { printf '{"admin": "%s"}' "$(random)"; }

# A secret's file, made by a command unless it is there: what an earlier one has encrypted must be readable again.
secret() {
    [ -s "$platform/secrets/$1" ] || "${@:2}" >"$platform/secrets/$1"
}

prepare() {
    case $platform/ in
        "$SPARK_BERT_DATA"/* | "$SPARK_BERT_CACHE"/*)
            echo "$platform holds secrets, and would lie in a folder that stages may read: choose another SPARK_BERT_DATA" \
                "($SPARK_BERT_DATA), SPARK_BERT_CACHE ($SPARK_BERT_CACHE) or SPARK_BERT_HOME" >&2
            return 2
            ;;
    esac
    scripts/home.sh "$SPARK_BERT_HOME"
    mkdir -p "$SPARK_BERT_CACHE" "$SPARK_BERT_DATA" "$SPARK_BERT_SECRETS"/{service,stream} \
        "$SPARK_BERT_HOME"/{artifacts/stream,checkpoints,datasets,runs,searches,streams} "$platform"/{logs,mlflow,monitoring,postgres,prometheus,secrets}
    chmod 700 "$platform"
    printf %s "$SPARK_BERT_DATA" >"$platform/data"
    (
        umask 077
        for name in database_password fernet_key web_key; do secret $name random; done
        secret jwt_secret random 64
        secret database_url database_url
        secret login.json login
    )
    if [ "$(id -u)" = 0 ]; then
        chown -R "$SPARK_BERT_UID:$SPARK_BERT_GID" "$platform" "$SPARK_BERT_HOME"/{artifacts,checkpoints,datasets,runs,searches,streams} "$SPARK_BERT_CACHE"
    fi
}

# What of the platform is not healthy, and how it is.
unhealthy() {
    local services
    services=$(docker ps --all --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --format '{{.Label "com.docker.compose.service"}}: {{.Status}}') || services="the engine does not answer"
    grep -v -e '(healthy)$' -e ': Exited (0)' <<<"$services"
}

await() {
    local waiting
    for _ in $(seq 150); do
        waiting=$(unhealthy) || return 0
        grep -q -e '^airflow-init: Exited' -e '^gpu: Exited' <<<"$waiting" && break # these are not started again
        sleep 2
    done
    printf '%s\nThe platform has not become healthy: look at scripts/platform.sh logs SERVICE\n' "$waiting" >&2
    return 1
}

up() {
    prepare
    compose run --rm fetch fetch "$@"
    echo "==> starting" >&2
    compose up --detach --remove-orphans
    await
    echo
    echo "Airflow   http://localhost:$SPARK_BERT_PORT"
    echo "Service   http://localhost:$SPARK_BERT_SERVE_PORT/docs, when there is a champion"
    echo "login     admin, $(sed 's/.*: "\(.*\)".*/\1/' "$platform/secrets/login.json") ($platform/secrets/login.json)"
}

# The stages as well: a training that is stopped continues from its checkpoint when the platform is up again.
down() {
    docker ps --quiet --filter "label=spark-bert.deployment=$SPARK_BERT_DEPLOYMENT" |
        xargs --no-run-if-empty docker stop --time 60 >/dev/null
    COMPOSE_PROFILES=fetch,gpu,monitoring,stream compose down "$@"
}

case $1 in
    up | down) "$@" ;;
    *) compose "$@" ;;
esac
