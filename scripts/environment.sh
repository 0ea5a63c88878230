#!/usr/bin/env bash
# Brings .venv to what the lock files say; does nothing when it is there already.
#   scripts/environment.sh core     what `make demo` and `make ui` need
#   scripts/environment.sh dev      the same and what `make test` needs
# PYTHON=... names the interpreter to make .venv with. An installation that was interrupted is taken up again.
set -euo pipefail
exec 9<"${BASH_SOURCE[0]}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH

say() { printf 'environment: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

case ${1:-} in
    core) locks=(requirements.lock) ;;
    dev) locks=(requirements.lock requirements-dev.lock) ;;
    *) fail "usage: scripts/environment.sh core|dev" ;;
esac

venv=.venv
origin=$venv/made-by-make   # holds the folder the environment was made in: its scripts name that folder
suitable='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'

usable() { [[ "$(cat $origin 2>/dev/null)" == "$PWD" ]] && $venv/bin/python -c "$suitable" 2>/dev/null; }

# A lock is in place when its stamp, written last, holds the checksum of everything that installation was made from.
stamp() { printf '%s' "$venv/installed-${1%.lock}"; }
wanted() { cat pyproject.toml requirements-torch.txt "$1" | cksum; }
in_place() { [[ "$(cat "$(stamp "$1")" 2>/dev/null)" == "$(wanted "$1")" ]]; }
current() {
    local lock
    usable || return 1
    for lock in "${locks[@]}"; do in_place "$lock" || return 1; done
}

# Python 3.11 comes first because it is the version that the tests run on.
choose_python() {
    local candidate
    if [[ -n ${PYTHON:-} ]]; then
        "$PYTHON" -c "$suitable" 2>/dev/null && { printf '%s' "$PYTHON"; return; }
        fail "PYTHON=$PYTHON is $("$PYTHON" -V 2>&1 | head -n 1);" \
            "Python 3.11 to 3.14 with its venv module is needed (Debian: apt-get install python3-venv)"
    fi
    for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
        "$candidate" -c "$suitable" 2>/dev/null && { printf '%s' "$candidate"; return; }
    done
    fail "no Python 3.11 to 3.14 with its venv module on PATH (python3 is $(python3 -V 2>&1 | head -n 1));" \
        "install one (Debian: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3"
}

make_venv() {
    local python
    python=$(choose_python)
    if [[ -e $venv && ! -e $origin ]]; then
        fail "$venv is there and was not made by this Makefile; move it away, then run the same command again"
    fi
    rm -rf "$venv"
    mkdir "$venv"
    printf '%s' "$PWD" >"$origin"
    say "making $venv with $("$python" -V)"
    "$python" -m venv "$venv"
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --quiet "$@" ||
        fail "pip could not install $* (its message is above); run the same command again to go on from there"
}

current && exit 0
# Two commands started at once must not install into one folder. Where flock is missing nothing is held.
if command -v flock >/dev/null; then flock 9; fi
current && exit 0

started=$SECONDS
if ! usable || ! $venv/bin/python -m pip --version >/dev/null 2>&1; then make_venv; fi
say "installing the locked packages; the first time this takes 1 to 4 minutes and 2 GB of disk"
for lock in "${locks[@]}"; do
    if in_place "$lock"; then continue; fi
    rm -f "$(stamp "$lock")"
    pip_install --no-deps --require-hashes -r "$lock"
    if [[ $lock == requirements.lock ]]; then
        # With its dependencies: torch's builds for GPUs bring libraries of their own, which no lock file here names.
        pip_install -r requirements-torch.txt
        pip_install --no-deps --no-build-isolation --editable .
    fi
    wanted "$lock" >"$(stamp "$lock")"
done
say "ready after $((SECONDS - started)) s"
