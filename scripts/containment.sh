#!/bin/bash
# scripts/containment.sh PYTHON [ARGS...]: the whole containment matrix, every kind of handler at
# every level. As root it writes the tables of docs/containment.md, then runs the matrix once more
# as a user without any privilege. ARGS are pytest's.
set -euo pipefail

python=$1
shift
cd "$(dirname "$0")/.."
export TOOLCELL_CONTAINMENT=full
"$python" -m pytest tests/containment "$@"
if [ "$(id -u)" = 0 ]; then
    ARGS="tests/containment $*" scripts/test_unprivileged.sh
fi
