#!/usr/bin/env bash
# Java 17 or newer runs Spark; a C++ compiler and CMake 3 build Horovod. Install what is missing where apt and
# root allow it, else say what to install.
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

missing=()
has_java || missing+=(openjdk-17-jre-headless)
command -v g++ >/dev/null || missing+=(g++)
has_cmake || missing+=(cmake)
has_venv || missing+=(python3.11-venv)
has_headers || missing+=(python3.11-dev)
[ ${#missing[@]} -eq 0 ] && exit

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "==> apt-get install ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "Missing: Java 17 or newer, a C++ compiler, CMake 3, or Python 3.11 with venv and headers." >&2
    echo "On Debian 12: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
has_java && has_cmake && has_venv && has_headers && command -v g++ >/dev/null && exit
echo "Still missing after the install: Java 17+, g++, CMake 3 (not 4) or Python 3.11 with venv and headers." >&2
exit 1
