"""What no tool may have, as only this process can tell: the sensitive list completed, and homes."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from toolcell.confinement import imported_from, own_roots
from toolcell_policies import Protection, SensitiveList, default_sensitive_list
from toolcell_sandbox import host

_NO_HOMES = frozenset(
    {"/bin", "/sbin", "/dev", "/usr/sbin", "/usr/bin", "/run", "/proc", "/nonexistent"}
)
"""What passwd(5) names as homes of system users."""
_PEOPLE = range(1000, 65534)
"""The user ids of people, by the custom of login.defs(5); root is one as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """The sensitive list of one executor, with the homes that its `~` stands for.

    `homes` is every home on this machine, as written and as it resolves; `own_homes` those of
    people: a system user's, such as /var/www, is no secret by being one.
    """

    rules: SensitiveList
    homes: tuple[str, ...]
    own_homes: tuple[str, ...]

    @classmethod
    def here(cls, state_dir: str, workspace: str) -> Protected:
        """As this machine and this process are now."""
        return cls(
            rules=_rules(state_dir, workspace),
            homes=_homes(people_only=False),
            own_homes=_homes(people_only=True),
        )


def _rules(state_dir: str, workspace: str) -> SensitiveList:
    """The sensitive paths, with what only this process knows: our state, agents, our code."""
    own = default_sensitive_list().with_paths(
        [os.path.abspath(state_dir), os.path.realpath(state_dir)],
        id="toolcell.state",
        category="toolcell's own state",
    )
    agent = os.environ.get("SSH_AUTH_SOCK")
    if agent and os.path.isabs(agent):
        own = own.with_paths([agent], id="ssh.agent", category="ssh, remote")
    running = (*host.interpreter_folders(), *own_roots(), *imported_from(workspace))
    return own.with_paths(
        running, id="toolcell.running", category="the running interpreter", kind=Protection.SEALED
    )


def _homes(*, people_only: bool) -> tuple[str, ...]:
    """Homes on this machine, as written and as they resolve."""
    written = {os.path.expanduser("~")}
    for entry in pwd.getpwall():
        if not people_only or entry.pw_uid == 0 or entry.pw_uid in _PEOPLE:
            written.add(entry.pw_dir)
    kept = {home for home in written if home.strip("/")} - _NO_HOMES
    return tuple(sorted(kept | {os.path.realpath(home) for home in kept}))
