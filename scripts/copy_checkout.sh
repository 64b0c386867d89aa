#!/bin/bash
# scripts/copy_checkout.sh DIR: copies this checkout's own files (tracked, or new and not ignored)
# into DIR, as a clone would; without git, everything but what the Makefile makes.
set -euo pipefail

to=$1
cd "$(dirname "$0")/.."
mkdir -p "$to"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' name; do
            # A tracked file may be deleted here and not yet in the index.
            if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\0' "$name"; fi
        done |
        tar --create --null --no-recursion --files-from=- | tar --extract --directory="$to"
else
    tar --create --exclude=./.git --exclude=./.venv --exclude=./dist --exclude=./site --exclude='.*_cache' \
        --exclude=__pycache__ . | tar --extract --directory="$to"
fi
