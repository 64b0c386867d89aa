#!/bin/sh
# Prints the Python to use: $PYTHON if set, else python3 if it is new enough, else the newest of
# python3.13, 3.12, 3.11. Each is run before it is believed: a version manager's shim may be there
# without a Python behind it.
set -eu

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if ! new_enough "$PYTHON"; then
        echo "toolcell needs Python 3.11 or newer; PYTHON=$PYTHON is not one." >&2
        exit 1
    fi
    echo "$PYTHON"
    exit 0
fi
for candidate in python3 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then
        echo "$candidate"
        exit 0
    fi
done
echo "toolcell needs Python 3.11 or newer: tried python3, python3.13, python3.12, python3.11." >&2
echo "Install one, or name it: make PYTHON=/path/to/python" >&2
exit 1
