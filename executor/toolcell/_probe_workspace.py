"""Probes of a workspace that a jail is given: what is masked in it, and what it does to it."""

from __future__ import annotations

import os
import sys

from toolcell._probes import Attempt, append, attempt, own, read, seen, works, write


def masked(path: str) -> list[Attempt]:
    """paths_masked: a name that is there outside, by every road to it."""
    folder, name = os.path.split(path)
    listed = name in os.listdir(folder)
    return [
        attempt("read a masked file", lambda: read(path)),
        seen("list its folder", "it is there" if listed else "it is not there", broke=listed),
        attempt("read it by the working folder", lambda: read(f"/proc/self/cwd/{name}")),
        attempt("hard link it", lambda: os.link(path, f"{folder}/linked")),
        attempt("rename it", lambda: os.rename(path, f"{folder}/renamed")),
        attempt("delete it", lambda: os.unlink(path)),
        attempt("change its mode", lambda: os.chmod(path, 0o666)),
        attempt("read it through a link", lambda: read(_link(path))),
        *_replaced(path),
    ]


def _link(path: str) -> str:
    link = own("to-masked")
    os.symlink(path, link)
    return link


def _replaced(path: str) -> list[Attempt]:
    """Let somebody outside replace the file, then look again."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return [attempt("read it after it was replaced outside", lambda: read(path))]


def work(path: str) -> list[Attempt]:
    """writes_transactional: everything a tool does to a workspace; all of it has to work here."""
    folder = os.path.dirname(path)
    return [
        works("append to a file of the workspace", lambda: append(path)),
        works("change its mode", lambda: os.chmod(path, 0o600)),
        works("make a file beside it", lambda: write(f"{folder}/made")),
        works("replace it", lambda: os.replace(write(f"{folder}/new"), path)),
        works("delete it", lambda: os.unlink(path)),
        works("make a folder in its place", lambda: os.mkdir(path)),
    ]
