"""`toolcell grants` and `toolcell trust`: what people agreed to for longer, to see and to end."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from toolcell._exits import USAGE, Refused
from toolcell._options import Output
from toolcell._render import print_json, say, show_table, write_all, write_out
from toolcell._visible import visible

if TYPE_CHECKING:
    from toolcell.grants import Grant, Grants, Trusted
    from toolcell_policies.rules import PolicyFile

__all__ = ["GRANTS", "trust"]

SHOWN_MAX: Final = 20
"""How many of the rules that may loosen are named."""

_OUTPUT: Final = Output()
_LIST: Final = "`toolcell grants list` shows what there is"


def _switch(text: str, *names: str) -> Parameter:
    return Parameter(name=names or None, help=text, negative=(), show_default=False)


async def list_(*, output: Output = _OUTPUT) -> int:
    """List what may run without asking again, for whom, and until when (UTC)."""
    with _opened() as grants:
        found = grants.list(time.time())
    if output.json:
        print_json({"schema": 1, "grants": list(map(_as_json, found))})
    elif found:
        head = ["id", "scope", "tool", "mode", "expires", "workspace", "what"]
        show_table("", head, list(map(_row, found)))
    else:
        write_out("nothing is remembered: whatever needs a person is asked\n")
    return 0


async def revoke(
    grant: str = "",
    /,
    *,
    every: Annotated[bool, _switch("Every grant there is.", "--all")] = False,
    workspace: Annotated[str | None, _switch("Every grant for calls in this folder.")] = None,
    output: Output = _OUTPUT,
) -> int:
    """Revoke a grant by its id, all of a workspace, or all; running executors ask from now on.

    Parameters
    ----------
    grant
        The id, as `toolcell grants list` shows it.
    """
    if (bool(grant), every, workspace is not None).count(True) != 1:
        raise Refused(f"name one id, or --workspace DIR, or --all; {_LIST}")
    what = "all" if every else grant
    if workspace is not None:
        if not workspace:
            raise Refused("--workspace is empty; name a folder")
        what = _real(workspace)
    elif not every and not _is_id(grant):
        raise Refused(f"there is no grant {grant[:40]!r}; {_LIST}")
    with _opened() as grants:
        count = grants.revoke(what)
    if grant and not count:
        raise Refused(f"there is no grant {grant}; {_LIST}")
    if output.json:
        print_json({"schema": 1, "revoked": count})
    else:
        write_out(f"revoked {count} grant{'' if count == 1 else 's'}\n" if count else _NONE)
    return 0


async def trust(
    file: str = "",
    /,
    *,
    revoke: Annotated[bool, _switch("Trust it no longer.")] = False,
    listed: Annotated[bool, _switch("List what is trusted.", "--list")] = False,
    output: Output = _OUTPUT,
) -> int:
    """Trust a project's policy file: exactly this content may loosen, not only tighten.

    Parameters
    ----------
    file
        The file; with --revoke also the digest, or where it lay.
    """
    if listed:
        if file or revoke:
            raise Refused("--list stands alone: `toolcell trust --list`")
        return _list_trusted(output)
    if not file:
        raise Refused("name a policy file; `toolcell trust --list` shows what is trusted")
    if revoke:
        return _distrust(file, output)
    policy = _parsed(file, _read(file))
    if policy is None:
        return USAGE
    path = _real(file)
    with _opened() as grants:
        trusted = grants.trust(policy.digest, path, time.time())
    outcomes = Counter(rule.outcome.value for rule in policy.rules)
    if output.json:
        told = {"kind": "policy", "extends": policy.extends, "rules": dict(outcomes)}
        print_json({"schema": 1, **_trusted_json(trusted), **told})
    else:
        _show_trusted(path, policy, outcomes)
    return 0


GRANTS: Final[dict[str, Callable[..., Awaitable[int]]]] = {"list": list_, "revoke": revoke}

_NONE: Final = "there was nothing to revoke\n"


# -- grants -------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened() -> Iterator[Grants]:
    """The store of our state folder; what was wrong with it is said.

    Raises:
        Refused: it cannot be used.
    """
    from toolcell._choices import default_state_dir
    from toolcell.grants import Grants

    where = default_state_dir()
    try:
        with Grants.open(where) as grants:
            yield grants
            if grants.notice is not None:
                say(grants.notice)
    except OSError as error:
        why = error.strerror or str(error)
        raise Refused(
            f"the state folder {where!r} cannot be used: {why}; "
            "name another with TOOLCELL_STATE_DIR"
        ) from None


def _is_id(text: str) -> bool:
    return len(text) == 8 and not set(text) - set("0123456789abcdef")


def _row(grant: Grant) -> tuple[str, ...]:
    scope = grant.scope if grant.agent_id is None else f"{grant.scope}, agent {grant.agent_id}"
    what = grant.shape.partition("\n")[0]
    expires = _utc(grant.expires)
    return grant.id, scope, grant.tool_name, grant.mode, expires, _text(grant.workspace), what


def _as_json(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "key": grant.key,
        "scope": grant.scope,
        "session": grant.session,
        "mode": grant.mode,
        "tool_name": grant.tool_name,
        "shape": grant.shape,
        "workspace": _text(grant.workspace),
        "agent_id": grant.agent_id,
        "created": _utc(grant.created),
        "expires": _utc(grant.expires),
    }


def _utc(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:
        raise Refused(f"{path!r} is no path") from None


def _text(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


# -- policy files -------------------------------------------------------------------------


def _list_trusted(output: Output) -> int:
    with _opened() as grants:
        found = grants.trusted()
    if output.json:
        print_json({"schema": 1, "trusted": [_trusted_json(one) for one in found]})
    elif found:
        rows = [[one.digest, _utc(one.since), _text(one.path)] for one in found]
        show_table("", ["sha256", "since", "where it lay"], rows)
    else:
        write_out("no policy file is trusted: a project's may tighten, and no more\n")
    return 0


def _distrust(file: str, output: Output) -> int:
    """By digest, by where it lay, and by what lies there now."""
    names = {_real(file), os.path.abspath(file), file}
    with contextlib.suppress(Refused):
        names.add(hashlib.sha256(_read(file).encode()).hexdigest())
    with _opened() as grants:
        count = sum(map(grants.distrust, sorted(names)))
    if not count:
        raise Refused(f"{file!r} is not trusted; `toolcell trust --list` shows what is")
    if output.json:
        print_json({"schema": 1, "revoked": count})
    else:
        write_out(f"no longer trusted: {visible(file)}\n")
    return 0


def _read(file: str) -> str:
    """What the file holds: read once, so that what is shown, parsed and trusted is the same.

    Raises:
        Refused: it is no plain file, or a link, which could lead elsewhere the next time.
    """
    from toolcell._policies import policy_text

    try:
        return policy_text(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{file!r} is a link; name the file that it leads to") from None
        raise Refused(f"{file!r} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise Refused(f"{file!r} is no policy file: {error}") from None


def _parsed(file: str, text: str) -> PolicyFile | None:
    """The policy that this text is; None once it was said why they are none."""
    from toolcell_policies.rules import PolicyError, Scope, parse_policy

    try:
        return parse_policy(text, file=file, scope=Scope.PROJECT)
    except PolicyError as error:
        first, *more = str(error).splitlines()
        say(f"not trusted: {first}")
        with contextlib.suppress(OSError):
            write_all(
                2, "".join(f"  {visible(line)}\n" for line in more).encode("utf-8", "replace")
            )
        return None


def _show_trusted(path: str, policy: PolicyFile, outcomes: Counter[str]) -> None:
    """What was trusted, and what it may do from now on that it could not before."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    rules = f"{len(policy.rules)} rule{'' if len(policy.rules) == 1 else 's'}"
    looser = [] if policy.extends is None else [f"the policy {policy.extends}"]
    looser += [f"{one.id} ({one.source})" for one in policy.rules if one.outcome.value == "allow"]
    lines = [
        f"trusted: {_text(path)}",
        f"  a policy file with {rules}{f' ({counts})' if counts else ''}",
        f"  sha256 {policy.digest}",
        *(f"  may now loosen: {one}" for one in looser[:SHOWN_MAX]),
        *([f"  and {len(looser) - SHOWN_MAX} more"] if len(looser) > SHOWN_MAX else []),
        "  a change to it ends that, and so does `toolcell trust --revoke`",
    ]
    write_out("".join(f"{visible(line)}\n" for line in lines))


def _trusted_json(trusted: Trusted) -> dict[str, Any]:
    since = _utc(trusted.since)
    return {"digest": trusted.digest, "path": _text(trusted.path), "since": since}
