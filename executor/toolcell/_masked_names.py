"""Which names in a folder are absent for a jail: the sensitive list, and what only content tells.

The index (`toolcell_sandbox.mask_index`) walks and watches; this says of each name that it meets.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Final

from toolcell._protected import Protected
from toolcell._sensitive_files import Eye

KEY_BYTES: Final = 64 << 10
_KEY_MARK: Final = b"PRIVATE KEY-----"
_LINKED_MAX: Final = 10_000
_DEPTH_MAX: Final = 6


class MaskedNames:
    """The judge of one folder's index.

    `inodes` are protected files in the homes of this host that have more than one name: another
    name of theirs may lie in the folder, and would give them away.
    """

    def __init__(self, top: str, protected: Protected) -> None:
        self._eye = Eye(top, protected)
        self._top = top
        self.inodes = frozenset(_linked(protected))

    def forbids(self, inner: str, name: str) -> bool:
        """Whether a name in the folder `inner` may not be read, by the list alone."""
        return self._eye.forbids(inner, name)

    def asks_content(self, inner: str, name: str) -> bool:
        """Whether what a file holds decides: a *.pem may be a certificate or a private key."""
        return name.lower().endswith(".pem")

    def forbids_content(self, fd: int) -> bool:
        """Whether it is a private key, by its first 64 KiB."""
        return _KEY_MARK in os.pread(fd, KEY_BYTES, 0)


def _linked(protected: Protected) -> Iterator[tuple[int, int]]:
    """Protected files in people's homes that have another name somewhere, a bounded number."""
    left = _LINKED_MAX
    for home in protected.own_homes:
        waiting = [(home, 0)]
        while waiting and left > 0:
            folder, depth = waiting.pop()
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if not _is_protected(entry.path, protected):
                        continue
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and depth < _DEPTH_MAX:
                        waiting.append((entry.path, depth + 1))
                    elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                        yield found.st_dev, found.st_ino


def _is_protected(path: str, protected: Protected) -> bool:
    rules = protected.rules.match(path, role="read", homes=protected.homes)
    return any(rule.forbids("read") for rule in rules)
