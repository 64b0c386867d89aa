"""A grant's key: one name for what a person agreed to, and for everything it was bound to."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from .plan import _canonical

# A hash of another kind of thing can never be taken for a grant's key: the
# prefix names this use, the version changes with the mapping below.
_DOMAIN: Final = b"toolcell.grant\x00"
_VERSION: Final = 1


def grant_key(
    *,
    workspace: str,
    workspace_identity: tuple[int, int],
    agent_id: str | None,
    tool_name: str,
    spec_hash: str,
    policy_epoch: str,
    network: str,
    workspace_mode: str,
    waived: Iterable[str],
    isolation: str,
    shape: Mapping[str, object],
) -> str:
    """Return 64 hex digits that change when anything that the grant covers changes.

    `shape` is what may be done again, as plain JSON data: for a first write the
    tool and the workspace, for a command its executable, its exact words, its
    environment and its folder. `workspace_identity` is (st_dev, st_ino), so that
    another folder in the same place is another workspace. `waived` is a set;
    no agent (None) is not an agent without a name. The mode is not part of it:
    a grant holds in stricter modes too, which only its store can tell.

    Raises:
        ValueError: the shape is empty, so it would cover anything; or it has no
            JSON form: NaN, an infinity, a cycle, nesting beyond the limit.
        TypeError: the shape is not JSON data, a key in it is not a string, or
            `waived` is one word instead of a collection of them.
    """
    if not shape:
        raise ValueError("the shape is empty: a grant has to say what it covers")
    if isinstance(waived, str):
        raise TypeError("waived takes a collection of names, not one string")
    device, inode = workspace_identity
    bound = {
        "version": _VERSION,
        "workspace": workspace,
        "workspace_identity": [device, inode],
        "agent_id": agent_id,
        "tool_name": tool_name,
        "spec_hash": spec_hash,
        "policy_epoch": policy_epoch,
        "network": network,
        "workspace_mode": workspace_mode,
        "waived": sorted(set(waived)),
        "isolation": isolation,
        "shape": dict(shape),
    }
    return hashlib.sha256(_DOMAIN + _canonical(bound)).hexdigest()
