"""Which forbidden names are which files, so that a hard link of one is no way around it.

A file is *told* forbidden by a name of its own, or by what it holds. Each other name of it is
hidden too, as long as one that tells is left: then it is looked at by itself again.
"""

from __future__ import annotations

import os
import stat

from ._mask_folder import Folder

Inode = tuple[int, int]
_Name = tuple[Folder, str]


def inode_of(found: os.stat_result) -> Inode:
    """(st_dev, st_ino)."""
    return found.st_dev, found.st_ino


class Links:
    """The files behind forbidden names. Bounded by the number of masks."""

    def __init__(self) -> None:
        # Files that have names which nobody has looked for yet: all folders are to be searched.
        self.sought: set[Inode] = set()
        # Names that were hidden for another name's sake, which is gone.
        self.released: set[_Name] = set()
        self._told: dict[Inode, set[_Name]] = {}
        self._others: dict[Inode, set[_Name]] = {}
        # Of each name its file, and whether the name tells.
        self._files: dict[_Name, tuple[Inode, bool]] = {}

    def tells(self, folder: Folder, name: str, found: os.stat_result) -> None:
        """A name that is forbidden by itself is this file."""
        inode = inode_of(found)
        if not stat.S_ISREG(found.st_mode):
            self.forget(folder, name)
            return
        is_new = inode not in self._told
        self._keep(folder, name, inode, tells=True)
        if is_new and found.st_nlink > 1:
            self.sought.add(inode)

    def is_other_name(self, folder: Folder, name: str, found: os.stat_result) -> bool:
        """Whether a name is another one of a file that is told forbidden; it is then kept."""
        inode = inode_of(found)
        # Where its own name told, it does no longer: the last to tell must not hide itself.
        if self._files.get((folder, name)) == (inode, True):
            self.forget(folder, name)
        if found.st_nlink < 2 or inode not in self._told:
            return False
        self._keep(folder, name, inode, tells=False)
        return True

    def told(self) -> list[tuple[Folder, str, Inode]]:
        """One name of each file."""
        return [(*next(iter(names)), inode) for inode, names in self._told.items()]

    def forget(self, folder: Folder, name: str) -> None:
        """A name is not forbidden, or not there."""
        known = self._files.pop((folder, name), None)
        self.released.discard((folder, name))
        if known is None:
            return
        inode, tells = known
        index = self._told if tells else self._others
        index[inode].discard((folder, name))
        if not index[inode]:
            del index[inode]
            if tells:
                self.sought.discard(inode)
                self.released |= self._others.get(inode, set())

    def _keep(self, folder: Folder, name: str, inode: Inode, *, tells: bool) -> None:
        if self._files.get((folder, name)) == (inode, tells):
            return
        self.forget(folder, name)
        self._files[folder, name] = inode, tells
        index = self._told if tells else self._others
        index.setdefault(inode, set()).add((folder, name))
