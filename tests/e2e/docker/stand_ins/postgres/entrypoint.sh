#!/usr/bin/env bash
# Make the database at the first start, as the original's entry point does, then run the server.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" --auth scram-sha-256 >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
    export PGPASSWORD
    pg_ctl --wait start --options="-c listen_addresses=" >/dev/null
    [ "$POSTGRES_DB" = postgres ] || createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --wait --mode fast stop >/dev/null
fi
exec "$@" -c "listen_addresses=*"
