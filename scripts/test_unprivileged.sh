#!/bin/bash
# The test suite once more, as a user without any privilege: most guarantees are built by other
# means when the supervisor is not root. Run as root. Makes the user toolcell-ci (once) and
# a temporary folder of its own, which it removes.
#
# Environment: ARGS, for pytest.
set -euo pipefail

user=toolcell-ci
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "$0 runs as root: it makes a user and becomes that user." >&2
    exit 1
fi

install_missing() {
    echo "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

id -u "$user" >/dev/null 2>&1 ||
    useradd --system --user-group --no-create-home --home-dir /nonexistent \
        --shell /usr/sbin/nologin "$user"
uid=$(id -u "$user")

work=$(mktemp -d /tmp/toolcell-ci.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"
mkdir "$work/home" "$work/tmp"
scripts/copy_checkout.sh "$work/checkout"
chown -R "$user:" "$work/checkout" "$work/home" "$work/tmp"

# Root's own folders (a Python under root's home, root's caches) are closed to this user: the
# system's PATH, a home and a TMPDIR of its own, and nothing that points back at root's.
as_user() {
    runuser -u "$user" -- env \
        --unset=VIRTUAL_ENV --unset=PYTHONPATH --unset=PYTHONHOME --unset=PIP_CACHE_DIR \
        --unset=UV_CACHE_DIR --unset=XDG_CACHE_HOME --unset=XDG_CONFIG_HOME \
        --unset=XDG_DATA_HOME --unset=XDG_STATE_HOME --unset=XDG_RUNTIME_DIR \
        --unset=SUDO_UID --unset=SUDO_GID --unset=SUDO_USER --unset=MAKEFLAGS --unset=MAKELEVEL \
        HOME="$work/home" TMPDIR="$work/tmp" USER="$user" LOGNAME="$user" \
        PATH=/usr/local/bin:/usr/bin:/bin PYTHON="${python:-}" "$@" </dev/null
}
find_python() { python='' as_user sh "$work/checkout/scripts/find_python.sh" 2>/dev/null; }

cd "$work/checkout"
python=$(find_python) || { install_missing python3 python3-venv; python=$(find_python); }
as_user "$python" -c 'import ensurepip, venv' 2>/dev/null || install_missing python3-venv
as_user "$python" -c 'import ensurepip, venv'
echo "as $user (uid $uid), with $(as_user "$python" --version) at $(as_user sh -c "command -v $python")"

as_user make test ARGS="${ARGS:-}"
[ -n "${ARGS:-}" ] || as_user make external

# Whatever the suite started has to be gone with it.
mine() { grep -l "^Uid:[[:space:]]*${uid}[[:space:]]" /proc/[0-9]*/status 2>/dev/null || true; }
for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=$(mine)
    [ -n "$left" ] || break
    sleep 0.5
done
if [ -n "$left" ]; then
    echo "processes of $user outlived the test suite:" >&2
    for status in $left; do
        tr '\0' ' ' < "${status%/status}/cmdline" >&2 || true
        echo >&2
    done
    exit 1
fi
