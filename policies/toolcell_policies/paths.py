"""Judging one path argument: where it leads, and whether it may be read or written.

    as given ─► lexically normal ─► each hop of a link ─► as finally resolved

Each of these forms is judged alone. One that is protected denies; one that
leaves the workspace and the folders granted besides it denies; only when all
are inside may the path be used. A form that denies for leaving, or that is a
magic link, ends the look-ups: what lies outside is not ours to look at.

This is a courtesy that explains itself early, not the fence. A link can be
swapped after the check; the jail holds all the same.

Codes of the reasons given here (D denies, A asks at level 3):

| code | | when |
|---|---|---|
| `path_empty` | D | the argument is empty |
| `path_too_long` | D | over 1,024 characters |
| `path_too_many` | D | of a call that names more than anybody looks at |
| `path_too_deep` | D | over 64 components |
| `path_control_character` | D | NUL, a control character or a line separator |
| `path_hidden_character` | D | a bidi or zero-width character |
| `path_disguised_separator` | D | NFKC would make a separator or a `..` of it |
| `path_not_text` | D | an unpaired surrogate: no file can have that name |
| `path_expansion` | D | it begins with `~` or `$` |
| `path_outside_workspace` | D | one of its forms is in no folder that this role may use |
| `path_link_loop` | D | more than 40 links |
| `path_unresolvable` | D | EACCES, ENAMETOOLONG (also links that make too much of it) or the like |
| `path_workspace_unresolvable` | D | the workspace itself cannot be resolved |
| `path_magic_link` | D | `/proc/*/root`, `cwd`, `fd`, `exe`, `/dev/fd` and their like |
| `path_protected` | D | an RW row: neither read nor written |
| `path_sealed` | D | a write to what the supervisor runs from |
| `path_write_asks` | A | a write to a W row |
| `path_read_asks` | A | a read of an A row |
| `path_many_links` | A | a write to a file that has more than one name |
"""

from typing import Final

from ._judge import REFUSAL_TEXTS, Judge, PathVerdict
from ._text import (
    PATH_CHARACTERS_MAX,
    character_refusals,
    expansion_refusals,
    shown,
    size_refusals,
)
from ._walk import FileFacts, Filesystem, RealFilesystem, StillFilesystem, walk
from .folders import HostFolders
from .sensitive import Role, SensitiveList

__all__ = [
    "FileFacts",
    "Filesystem",
    "PathVerdict",
    "RealFilesystem",
    "StillFilesystem",
    "check_path",
]

_REAL: Final = RealFilesystem()
_NO_FOLDERS: Final = HostFolders()


def check_path(
    text: str,
    role: Role,
    workspace: str,
    homes: tuple[str, ...],
    sensitive: SensitiveList,
    fs: Filesystem = _REAL,
    folders: HostFolders = _NO_FOLDERS,
) -> PathVerdict:
    """Judge a path argument against the workspace, granted folders and the sensitive list.

    A relative path is taken from the workspace, which is absolute; both it and
    an absolute argument may lead through links above the workspace, as long as
    they name it in the same way. `folders` are granted besides it, and the same
    rules hold inside: a read may lie in any of them, a write in those granted
    for writing. `homes` is every home on this machine, as
    given and as resolved. Reads the file system by `fs` only, with `lstat` and
    `readlink`, a bounded number of times, and only inside those folders and on
    the way to them. Who judges one path in two roles passes one `StillFilesystem`.

    Never raises, whatever the text and whatever the file system does: what
    cannot be resolved is denied.
    """
    judge = Judge(text=text, role=role, homes=homes, sensitive=sensitive, folders=folders)
    refusals = size_refusals(text)
    if not refusals:
        refusals = expansion_refusals(text) + character_refusals(text)
    for code in refusals:
        judge.deny(code, REFUSAL_TEXTS[code].format(path=shown(text)))
    if text == "" or len(text) > PATH_CHARACTERS_MAX:
        return judge.verdict()  # nothing to look at, or too much of it

    if not judge.find_workspace(workspace, fs):
        judge.deny("path_workspace_unresolvable", "the workspace itself cannot be resolved")
    as_given = text if text.startswith("/") else f"{workspace}/{text}"
    if not judge.admit(as_given):
        return judge.verdict()
    found = walk(as_given, fs, judge.admit_link)
    if found.failure is not None:
        judge.deny_failure(found.failure)
    elif found.resolved is not None:
        judge.admit_end(found.resolved, found.facts, followed=bool(found.hops))
    return judge.verdict(found)
