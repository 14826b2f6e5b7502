#!/usr/bin/env bash
# Run uv with the package indexes and certificates that pip is configured for, since uv does not read pip's settings.
# usage: scripts/uv.sh ARG...
set -euo pipefail
tools=$(dirname "$0")/../.venv/tools/bin
settings=$("$tools/pip" config list)

# The value of a setting, its parts separated by $2. Environment variables come first in pip's list, and win.
setting() {
    sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" <<<"$settings" | head -1 | sed "s/\\\\n/ /g; s/^ *//; s/ *\$//; s/  */$2/g"
}

export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX-$(setting index-url ' ')}
export UV_INDEX=${UV_INDEX-$(setting extra-index-url ' ')}
export UV_FIND_LINKS=${UV_FIND_LINKS-$(setting find-links ,)}
export SSL_CERT_FILE=${SSL_CERT_FILE-$(setting cert ' ')}
for name in UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS SSL_CERT_FILE; do [ -n "${!name}" ] || unset "$name"; done
# As pip does, uv takes a version from whichever index has it. The hashes in the lock files rule out a wrong package.
export UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120} UV_PYTHON_DOWNLOADS=never
exec "$tools/uv" "$@"
