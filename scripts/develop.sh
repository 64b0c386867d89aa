#!/bin/sh
# scripts/develop.sh run|dev [VENV]: installs this checkout, editable, into VENV (.venv), once.
# The stamp says what was installed, and where: a checkout that was copied or moved, or whose
# pyproject.toml changed, is installed anew (an editable install holds absolute paths).
set -eu

cd "$(dirname "$0")/.."
want=$1
venv=${2:-.venv}

stamp="$(pwd -P) $(cat pyproject.toml executor/toolcell/_version.py | cksum)"
holds() { [ "$(cat "$venv/.toolcell-$1" 2>/dev/null)" = "$stamp" ]; }
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null; }

# Whoever installed for development can also run.
if holds dev || { [ "$want" = run ] && holds run; }; then
    found=$(version "$venv/bin/python" || true)
    if [ -n "$found" ] && [ "$found" = "$(version "${PYTHON:-$venv/bin/python}")" ]; then
        exit 0
    fi
fi

if [ "$want" = dev ]; then spec='.[dev]'; else spec=.; fi
echo "installing $spec into $venv"
rm -f "$venv/.toolcell-run" "$venv/.toolcell-dev"
scripts/venv.sh "$venv" -e "$spec"
echo "$stamp" > "$venv/.toolcell-$want"
