#!/bin/bash
# `make run` and `make test` as on a machine that has Python, make and the usual small tools, and
# nothing else; then again with uv present. PATH holds only what is named here.
#
# Environment: ARGS, for pytest; PYTHON, the interpreter that the machine is to have.
set -euo pipefail

cd "$(dirname "$0")/.."
python=$(scripts/find_python.sh)
# The interpreter itself: not a version manager's shim, not the python of a venv.
python=$("$python" -c 'import os, sys; print(os.path.realpath(sys._base_executable))')

work=$(mktemp -d "${TMPDIR:-/tmp}/toolcell-bare.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PYTHON PYTHONPATH VIRTUAL_ENV MAKEFLAGS MAKELEVEL
mkdir "$work/bin" "$work/home"

for tool in make sh bash env cat chmod cksum cp cut date dirname basename echo false find grep \
    head id kill ln ls mkdir mktemp mv printf pwd readlink realpath rm rmdir sed seq sleep sort \
    stat tail tee touch tr true tty uname wc xargs yes; do
    if path=$(type -P "$tool"); then ln -s "$path" "$work/bin/$tool"; fi
done
# A wrapper, since a link would move the interpreter's own prefix.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" > "$work/bin/python3"
chmod +x "$work/bin/python3"

try() {
    scripts/copy_checkout.sh "$work/$1"
    for target in run test; do
        echo "-- bare machine, $1: make $target"
        (
            cd "$work/$1"
            HOME=$work/home PATH=$work/bin make "$target" ARGS="${ARGS:-}" </dev/null
        )
    done
    rm -rf "${work:?}/$1"
}

try pip

"$python" -m venv "$work/uv-venv"
"$work/uv-venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
ln -s "$work/uv-venv/bin/uv" "$work/bin/uv"
try uv
