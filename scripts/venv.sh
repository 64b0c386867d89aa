#!/bin/sh
# scripts/venv.sh DIR SPEC...: makes a venv at DIR unless a usable one is there, and installs SPEC
# into it, with uv when it is found, else with pip.
set -eu

dir=$1
shift
here=$(dirname "$0")

python=$("$here/find_python.sh")
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' </dev/null 2>/dev/null; }

# uv never fetches an interpreter here: the one found above is the one used.
export UV_PYTHON_DOWNLOADS=never
if command -v uv >/dev/null 2>&1; then with=uv; else with=pip; fi

usable() {
    found=$(version "$dir/bin/python") || return 1
    # Somebody who names a Python means it; otherwise any Python that is new enough will do.
    [ -z "${PYTHON:-}" ] || [ "$found" = "$(version "$python")" ] || return 1
    [ $with = uv ] || "$dir/bin/python" -m pip --version </dev/null >/dev/null 2>&1
}

if ! usable; then
    rm -rf "$dir"
    if [ $with = uv ]; then
        uv venv --quiet --python "$python" "$dir"
    elif ! "$python" -m venv "$dir"; then
        rm -rf "$dir"
        echo "$python cannot make a virtual environment. On Debian and Ubuntu its package" >&2
        echo "python3-venv is missing; or install uv." >&2
        exit 1
    fi
fi
if [ $with = uv ]; then
    uv pip install --quiet --python "$dir/bin/python" "$@"
else
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
fi
