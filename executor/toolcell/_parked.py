"""Refused change sets that were kept aside: each under a handle, for a person to decide later.

They lie in our state folder, which no jail sees. What is parked is bound to the hash of its
changes and of every content; what was changed in it since is no longer what was judged.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from toolcell_sandbox.changeset import Change, ChangeSet
from toolcell_sandbox.commit import Place, copy_content
from toolcell_sandbox.upper import Layer, Marker, content_hashes, open_file

_HANDLE: Final = re.compile(r"[0-9a-f]{16}")


class NotParked(LookupError):
    """There is no such handle, or what it names is damaged; says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """One parked change set."""

    handle: str
    changes: ChangeSet
    place: Place
    digest: str
    parked_s: float
    """Seconds since the epoch."""


class Parking:
    """The parked change sets of one state folder."""

    def __init__(self, state_dir: str) -> None:
        self._folder = os.path.join(state_dir, "parked")
        self._state_dir = state_dir

    def park(
        self,
        changes: ChangeSet,
        layer: Layer,
        place: Place,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> str:
        """Copy what `changes` need of the layer; returns the handle. `check` may raise to cancel.

        Raises:
            OSError: it cannot be written; nothing of it is left.
        """
        handle = os.urandom(8).hex()
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        folder = os.path.join(self._folder, handle)
        os.mkdir(folder, 0o700)
        try:
            os.mkdir(os.path.join(folder, "layer"), 0o700)
            for change in changes.changes:
                check()
                self._copy(change, layer, folder, check)
            told = {
                "changes": changes.to_json(),
                "digest": changes.digest(content_hashes(layer, changes, check=check)),
                "workspace": place.workspace,
                "identity": list(place.identity),
                "parked_s": time.time(),
            }
            # Last, so that what has one is whole.
            with open(os.path.join(folder, "manifest.json"), "x") as file:
                json.dump(told, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return handle

    def _copy(self, change: Change, layer: Layer, folder: str, check: Callable[[], None]) -> None:
        """The content that one change needs, in a tree like the layer; holes stay holes."""
        after, place = change.after, os.path.join(folder, "layer", change.path)
        if after is None or after.kind not in ("folder", "file"):
            return
        if after.kind == "folder":
            os.makedirs(place, mode=0o700, exist_ok=True)
            return
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        first = os.path.join(folder, "layer", change.linked_to or "")
        if change.linked_to is not None and os.path.isfile(first):
            os.link(first, place)
            return
        source = open_file(layer.fd, change.path)
        try:
            target = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                copy_content(source, target, after.size_bytes, check)
            finally:
                os.close(target)
            for name in os.listxattr(source):
                if name.startswith("user.") and not name.startswith("user.overlay."):
                    os.setxattr(place, name, os.getxattr(source, name))
        finally:
            os.close(source)

    def handles(self) -> list[str]:
        """Every handle, the oldest first."""
        with contextlib.suppress(FileNotFoundError):
            found = [name for name in os.listdir(self._folder) if _HANDLE.fullmatch(name)]
            whole = [
                name
                for name in found
                if os.path.exists(os.path.join(self._folder, name, "manifest.json"))
            ]
            return sorted(
                whole, key=lambda name: os.stat(os.path.join(self._folder, name)).st_mtime
            )
        return []

    def get(self, handle: str) -> Parked:
        """What is parked under a handle.

        Raises:
            NotParked: nothing is, or it is damaged.
        """
        if not _HANDLE.fullmatch(handle):
            raise NotParked(f"{handle!r} is no handle: it has 16 hexadecimal digits")
        try:
            with open(os.path.join(self._folder, handle, "manifest.json")) as file:
                told = json.load(file)
            first, second = told["identity"]
            changes = ChangeSet.from_json(told["changes"])
            if changes.workspace != told["workspace"]:
                raise ValueError("it names two workspaces")
            return Parked(
                handle=handle,
                changes=changes,
                place=Place(
                    workspace=told["workspace"],
                    identity=(int(first), int(second)),
                    state_dir=self._state_dir,
                ),
                digest=str(told["digest"]),
                parked_s=float(told["parked_s"]),
            )
        except FileNotFoundError:
            raise NotParked(f"nothing is parked as {handle}") from None
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise NotParked(f"what is parked as {handle} is damaged: {error}") from error

    @contextlib.contextmanager
    def opened(self, parked: Parked) -> Iterator[int]:
        """A descriptor of the parked contents, once they are proven to be what was judged.

        Raises:
            NotParked: they are not.
        """
        fd = os.open(
            os.path.join(self._folder, parked.handle, "layer"),
            os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
        )
        try:
            layer = Layer(
                fd=fd,
                uids={},
                gids={},
                owner=(os.geteuid(), os.getegid()),
                marker=Marker(realtime_ns=0, boottime_ns=0),
                masks=frozenset(),
            )
            try:
                digest = parked.changes.digest(content_hashes(layer, parked.changes))
            except OSError as error:
                raise NotParked(f"what is parked as {parked.handle} is damaged: {error}") from error
            if digest != parked.digest:
                raise NotParked(f"what is parked as {parked.handle} is not what was judged")
            yield fd
        finally:
            os.close(fd)

    def drop(self, handle: str) -> None:
        """Remove a parked set.

        Raises:
            NotParked: there is none.
        """
        folder = os.path.join(self._folder, handle)
        if not _HANDLE.fullmatch(handle) or not stat.S_ISDIR(_mode(folder)):
            raise NotParked(f"nothing is parked as {handle}")
        # Without its manifest it is nothing, whatever ends us now.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "manifest.json"))
        shutil.rmtree(folder)


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0
