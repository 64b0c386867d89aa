#!/bin/bash
# scripts/try_wheel.sh WHEEL: installs the wheel into an empty venv, far from this checkout, and
# tries it as somebody would who has only just installed it.
set -euo pipefail

wheel=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)

work=$(mktemp -d "${TMPDIR:-/tmp}/toolcell-wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH VIRTUAL_ENV
mkdir "$work/home" "$work/empty"

"$here/venv.sh" "$work/venv" "$wheel"
bin=$work/venv/bin
cd "$work/empty"
export HOME=$work/home TOOLCELL_STATE_DIR=$work/state

"$bin/python" -I - "$wheel" <<'PYTHON'
import importlib.util
import sys
import zipfile
from importlib.metadata import metadata
from pathlib import Path

packages = {"toolcell", "toolcell_policies", "toolcell_sandbox"}
names = zipfile.ZipFile(sys.argv[1]).namelist()
tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
assert tops == packages, f"the wheel holds {sorted(tops)}"
for package in packages:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is not installed"
    assert spec.origin.startswith(sys.prefix), f"{package} comes from {spec.origin}"
    assert Path(spec.origin).with_name("py.typed").is_file(), f"{package} has no py.typed"
assert metadata("toolcell")["License-Expression"] == "Apache-2.0"
assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel has no LICENSE"
PYTHON

version=$("$bin/toolcell" --version)
echo "toolcell --version: $version"
case $version in
    *"$("$bin/python" -I -c 'from importlib.metadata import version; print(version("toolcell"))')"*) ;;
    *) echo "toolcell --version does not name the version of the wheel" >&2; exit 1 ;;
esac

"$bin/toolcell" run list_directory --json > "$work/result.json"
"$bin/python" -I - "$work/result.json" <<'PYTHON'
import json
import sys

text = open(sys.argv[1], encoding="utf-8").read()
result = json.loads(text)
assert result["schema"] == 1 and result["error"] is None, text
PYTHON
echo "toolcell run list_directory --json: fine, in an empty folder"
