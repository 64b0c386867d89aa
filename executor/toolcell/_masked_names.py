"""Which names in a folder are absent for a jail: the sensitive list, and what only content tells.

The index (`toolcell_sandbox.mask_index`) walks and watches; this says of each name that it meets.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from typing import Final

from toolcell._protected import Protected
from toolcell._sensitive_files import Eye

KEY_BYTES: Final = 64 << 10
_KEY_MARK: Final = b"PRIVATE KEY-----"
_LOOKED_AT_MAX: Final = 20_000
"""Names looked at in one home."""
_DEPTH_MAX: Final = 6


class MaskedNames:
    """The judge of one folder's index.

    Protected files in the homes of this host may have another name in the folder, by hard link,
    and would be given away by it: `inodes` are those with several names, `later_inodes` those
    that have one as yet. Both are of the moment when this was made.
    """

    def __init__(self, top: str, protected: Protected) -> None:
        self._eye = Eye(top, protected)
        self._top = top
        found = dict(_protected_files(protected))
        self.inodes = frozenset(inode for inode, links in found.items() if links > 1)
        self.later_inodes = frozenset(found) - self.inodes

    def forbids(self, inner: str, name: str) -> bool:
        """Whether a name in the folder `inner` may not be read, by the list alone."""
        return self._eye.forbids(inner, name)

    def asks_content(self, inner: str, name: str) -> bool:
        """Whether what a file holds decides: a *.pem may be a certificate or a private key."""
        return name.lower().endswith(".pem")

    def forbids_content(self, fd: int) -> bool:
        """Whether it is a private key, by its first 64 KiB."""
        return _KEY_MARK in os.pread(fd, KEY_BYTES, 0)


def _protected_files(protected: Protected) -> Iterator[tuple[tuple[int, int], int]]:
    """(st_dev, st_ino) and number of names of protected files in people's homes.

    Those that have a place there: `~/.ssh/id_rsa`, not `**/.env`. A bounded number, and the ones
    nearest to the top first: a browser's profile may hold more than all the rest.
    """
    for home in protected.own_homes:
        ways = _ways(home, protected)
        left = _LOOKED_AT_MAX
        waiting = deque([(home, 0)])
        while waiting and left > 0:
            folder, depth = waiting.popleft()
            # One that cannot be listed is none whose files could have been linked by us.
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    is_folder = entry.is_dir(follow_symlinks=False)
                    is_on_way = is_folder and _inner(home, entry.path) in ways
                    if not is_on_way and not _is_protected(entry.path, protected):
                        continue
                    if is_folder:
                        if depth < _DEPTH_MAX:
                            waiting.append((entry.path, depth + 1))
                    elif entry.is_file(follow_symlinks=False):
                        found = entry.stat(follow_symlinks=False)
                        yield (found.st_dev, found.st_ino), found.st_nlink


def _ways(home: str, protected: Protected) -> frozenset[tuple[str, ...]]:
    """The folders below a home that lead to protected places, by their names in lower case."""
    found: set[tuple[str, ...]] = set()
    for rule, way in protected.rules.leads_below(home, role="read", homes=protected.homes):
        if rule.forbids("read"):
            found |= {way[:length] for length in range(1, len(way) + 1)}
    return frozenset(found)


def _inner(home: str, path: str) -> tuple[str, ...]:
    return tuple(path[len(home) :].strip("/").casefold().split("/"))


def _is_protected(path: str, protected: Protected) -> bool:
    rules = protected.rules.match(path, role="read", homes=protected.homes)
    return any(rule.forbids("read") for rule in rules)
