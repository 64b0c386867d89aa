"""What a program's own error means in a jail, as data: the words that it says, the way out."""

from __future__ import annotations

from typing import Final

TEXT_CHARS_MAX: Final = 64 << 10

_HINTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("failed to copy file", "failed to create link", "hardlink different from source"),
        "a plain local clone makes hard links, which this workspace cannot keep: use "
        "`git clone --no-hardlinks`, clone by file://, or clone into /tmp",
    ),
    (
        ("Invalid cross-device link", "EXDEV", "cross-device link not permitted"),
        "a folder that was here before the call cannot be renamed in one step (EXDEV): use `mv`, "
        "or copy and delete; for git, `mv OLD NEW` and then `git add -A`",
    ),
    (
        ("Value too large for defined data type", "EOVERFLOW"),
        "a file of another owner or group can be read, deleted or replaced, not changed in place: "
        "write a new file over it; the person can `chgrp -R` the workspace to their own group",
    ),
)


def hints(text: str) -> list[str]:
    """Every hint that fits what was said."""
    said = text[-TEXT_CHARS_MAX:]
    return [hint for words, hint in _HINTS if any(word in said for word in words)]
