"""Where a symlink leads, name by name, without a file system: each link on the way is told."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ._text import absolute, collapse, components, lies_within

# path_resolution(7): the kernel follows no more.
_LINKS_MAX: Final = 40
_STEPS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Where a link leads: every absolute path that it stands for on the way, the last one the end.

    Each is without `..`. `is_inside` only where it was followed to its end without ever leaving
    the workspace; the folders above it do not count as having left. `outside` is where it left
    to, and None also where it was not followed to any end.
    """

    paths: tuple[str, ...]
    is_inside: bool
    outside: str | None = None


def follow_link(
    path: str, target: str, *, workspace: str, link_at: Callable[[str], str | None]
) -> Trail:
    """Follow a symlink at a path of the workspace, by what `link_at` says of each other path.

    `link_at` is asked about paths in the workspace only: where the link of that name points, or
    None where it is none. An absolute target counts as inside where it names the workspace as
    `workspace` does. What lies outside is not looked at. Not inside is a loop, a way of over 40
    links or 1,000 names, and a target with `..` behind a name: it leads elsewhere as soon as that
    name is made a link, and then nobody judges this one again. Never raises.
    """
    if _turns_back(target):
        return Trail(paths=(), is_inside=False)
    root = components(workspace)
    here: list[str] = [*root, *components(path)[:-1]]
    ahead: list[str] = []
    paths: list[str] = []
    links = steps = 0
    found: str | None = target
    while found is not None or ahead:
        if found is not None:
            links += 1
            if found.startswith("/"):
                here.clear()
            ahead.extend(reversed(components(found)))
            if links > _LINKS_MAX or steps + len(ahead) > _STEPS_MAX:
                return Trail(paths=tuple(paths), is_inside=False)
            paths.append(absolute(collapse([*here, *reversed(ahead)])))
            found = None
            continue
        steps += 1
        name = ahead.pop()
        if name == "..":
            del here[-1:]
        else:
            here.append(name)
        if not (lies_within(here, root) or lies_within(root, here)):
            break
        if name != ".." and len(here) > len(root):
            found = link_at("/".join(here[len(root) :]))
            if found is not None:
                here.pop()
    is_inside = lies_within(here, root)
    return Trail(paths=tuple(paths), is_inside=is_inside, outside=None if is_inside else paths[-1])


def _turns_back(target: str) -> bool:
    names = components(target)
    return any(one != ".." and two == ".." for one, two in itertools.pairwise(names))
