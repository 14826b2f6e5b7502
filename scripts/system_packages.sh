#!/usr/bin/env bash
# Java 17 or newer runs Spark; a C++ compiler builds the kernels and, with CMake 3 and Python's headers, Horovod. Install
# what is missing where apt and root allow it, else say what to install.
# usage: scripts/system_packages.sh all|one-rank  (one-rank: not what only Horovod needs)
set -euo pipefail

has_java() {
    local version
    version=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
    [ "${version:-0}" -ge 17 ]
}
has_cmake() { [[ $(cmake --version 2>/dev/null) == "cmake version 3."* ]]; }
has_venv() { python3.11 -c 'import ensurepip' 2>/dev/null; }
has_headers() {
    python3.11 -c 'import pathlib, sysconfig; assert pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()' 2>/dev/null
}

find_missing() {
    missing=()
    has_java || missing+=(openjdk-17-jre-headless)
    has_venv || missing+=(python3.11-venv)
    command -v g++ >/dev/null || missing+=(g++)
    [ "$1" = one-rank ] && return
    has_cmake || missing+=(cmake)
    has_headers || missing+=(python3.11-dev)
}

needed="Java 17 or newer, Python 3.11 with venv, and a C++ compiler"
[ "$1" = one-rank ] || needed+=", and to compile Horovod CMake 3 (not 4) and Python's headers"
find_missing "$1"
[ ${#missing[@]} -eq 0 ] && exit

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "==> apt-get install ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "The set-up needs $needed. On Debian 12: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
find_missing "$1"
[ ${#missing[@]} -eq 0 ] && exit
echo "The set-up needs $needed. Still missing after the install: ${missing[*]}" >&2
exit 1
