"""The person's name for git, given to jails by environment: nothing else of their files is."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import Final

FILE_BYTES_MAX: Final = 64 << 10
VALUE_CHARS_MAX: Final = 200
_KEYS: Final = ("user.name", "user.email", "init.defaultbranch")


def git_environment() -> Mapping[str, str]:
    """`user.name`, `user.email` and `init.defaultBranch` as GIT_CONFIG_COUNT has them.

    Read from the user's own file, without what it includes (git-config(1), ENVIRONMENT).
    """
    found: dict[str, str] = {}
    home = os.path.expanduser("~")
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for path in (os.path.join(own, "git", "config"), os.path.join(home, ".gitconfig")):
        found |= _values(path)
    told = {"GIT_CONFIG_COUNT": str(len(found))} if found else {}
    for number, (key, value) in enumerate(sorted(found.items())):
        told[f"GIT_CONFIG_KEY_{number}"] = key
        told[f"GIT_CONFIG_VALUE_{number}"] = value
    return told


def git_settings() -> Mapping[str, str]:
    """`git_environment`, and that git should know a file by its size and time alone.

    A file that is kept has another inode and ctime on disk than it had in its jail, and as root
    another owner. By these git would take it for changed in the next call, until it looked into
    it; some commands refuse instead, `git merge --abort` for one (core.checkStat in git-config(1)).
    """
    told = dict(git_environment())
    count = int(told.get("GIT_CONFIG_COUNT", "0"))
    told["GIT_CONFIG_COUNT"] = str(count + 1)
    told[f"GIT_CONFIG_KEY_{count}"] = "core.checkstat"
    told[f"GIT_CONFIG_VALUE_{count}"] = "minimal"
    return told


def _values(path: str) -> dict[str, str]:
    content = b""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                content = os.read(fd, FILE_BYTES_MAX)
        finally:
            os.close(fd)
    found: dict[str, str] = {}
    section = ""
    for line in content.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line[1:].partition("]")[0].strip().lower()
            continue
        name, equals, value = line.partition("=")
        key = f"{section}.{name.strip().lower()}"
        value = value.strip()
        if value.startswith('"') and value.endswith('"') and len(value) > 1:
            value = value[1:-1]
        plain = value.isprintable() and not set(value) & {'"', "\\", "#", ";"}
        if equals and key in _KEYS and value and plain and len(value) <= VALUE_CHARS_MAX:
            found[key] = value
    return found
