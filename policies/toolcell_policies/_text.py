"""A path as text: what is refused on sight, and the forms in which it is compared.

No file system here. A path is taken apart at `/` only: a backslash is an
ordinary character of a name, as POSIX has it.
"""

import re
from collections.abc import Sequence
from typing import Final
from unicodedata import normalize

PATH_CHARACTERS_MAX: Final = 1024
PATH_COMPONENTS_MAX: Final = 64
_SHOWN_CHARACTERS_MAX: Final = 160

# C0, DEL, C1, and the two separators that end a line for a reader only.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

# What has no width or turns the direction round: Unicode's Default_Ignorable
# and format characters, without the emoji variation selectors of real names.
_HIDDEN: Final = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_VARIATION: Final = re.compile("[\ufe00-\ufe0f]")


def components(path: str) -> tuple[str, ...]:
    """Return the names in a path, `..` included, without empty ones and `.`."""
    return tuple(name for name in path.split("/") if name not in ("", "."))


def collapse(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of an absolute path with each `..` taken literally.

    What is above the root is the root, as the kernel has it.
    """
    kept: list[str] = []
    for name in names:
        if name != "..":
            kept.append(name)
        elif kept:
            kept.pop()
    return tuple(kept)


def absolute(names: Sequence[str]) -> str:
    """Return the names as one absolute path."""
    return "/" + "/".join(names)


def lies_within(names: Sequence[str], root: Sequence[str]) -> bool:
    """Whether a path is a folder or below it, by whole components.

    `/ws-evil` is not within `/ws`. Neither side may hold `..`.
    """
    return tuple(names[: len(root)]) == tuple(root)


def size_refusals(text: str) -> list[str]:
    """Return the codes of what is wrong with a path argument's size."""
    if not text:
        return ["path_empty"]
    if len(text) > PATH_CHARACTERS_MAX:
        return ["path_too_long"]
    if sum(1 for name in text.split("/") if name) > PATH_COMPONENTS_MAX:
        return ["path_too_deep"]
    return []


def expansion_refusals(text: str) -> list[str]:
    """Return the code for a leading `~` or `$`, a disguised one included."""
    return ["path_expansion"] if normalize("NFKC", text[:1])[:1] in ("~", "$") else []


def character_refusals(text: str) -> list[str]:
    """Return the codes of what is wrong with the characters of a path or a link."""
    codes = []
    if _CONTROL.search(text):
        codes.append("path_control_character")
    if text.isascii():
        return codes
    if _HIDDEN.search(text):
        codes.append("path_hidden_character")
    if any(map(_disguises_a_separator, text.split("/"))):
        codes.append("path_disguised_separator")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        codes.append("path_not_text")
    return codes


def _disguises_a_separator(name: str) -> bool:
    if name.isascii():
        return False
    folded = normalize("NFKC", _VARIATION.sub("", name))
    return "/" in folded or folded in (".", "..") or folded.count("\\") > name.count("\\")


def comparison_forms(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return every form of a path in which a sensitive name could hide.

    Casefolded in NFC and in NFKC, with and without characters of no width,
    with and without the dots and spaces that some file systems drop from the
    end of a name. A usual path has one form. One form that matches is a match:
    an exception that holds in another form does not excuse it.
    """
    joined = "/".join(names)
    if joined.isascii():
        forms = {tuple(name.lower() for name in names)}
    else:
        bare = _VARIATION.sub("", _HIDDEN.sub("", joined))
        forms = {
            tuple(_fold(text, form).split("/")) for text in (joined, bare) for form in _NORMAL_FORMS
        }
    if any(name.endswith((".", " ")) for form in forms for name in form):
        forms |= {tuple(_without_tail(name) for name in form) for form in forms}
    return tuple(forms)


_NORMAL_FORMS: Final = ("NFC", "NFKC")


def _fold(text: str, form: str) -> str:
    # Folding case can undo a normal form, hence twice; see Unicode's D146.
    if form == "NFC":
        return normalize("NFC", normalize("NFC", text).casefold())
    return normalize("NFKC", normalize("NFKC", text).casefold())


def _without_tail(name: str) -> str:
    return name if name == ".." else name.rstrip(". ") or name


def shown(text: str) -> str:
    """Return a path in quotes, safe to print: one line, bounded, nothing invisible."""
    cut = text[:_SHOWN_CHARACTERS_MAX]
    safe = "".join(char if char.isprintable() else _escaped(char) for char in cut)
    return f"'{safe}'" if len(cut) == len(text) else f"'{safe}' (cut)"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
