"""The policy of one executor: a name or a file of the user's, and the project's own file.

All of it is read once, when the executor is made; what cannot be read whole is not read at all.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolcell_policies import POLICIES, Policy

if TYPE_CHECKING:
    from toolcell_policies.rules import PolicyFile

_log = logging.getLogger("toolcell")

FILE_BYTES_MAX: Final = 4 << 20
USER_FILE: Final = "policy.toml"
PROJECT_FILE: Final = ".toolcell/policy.toml"


def policy_of(
    given: str | os.PathLike[str] | Policy | None,
    *,
    workspace: str,
    is_trusted: Callable[[str], bool],
) -> Policy:
    """The policy that was chosen: a `Policy`, a name, a file, or TOOLCELL_POLICY; else standard.

    A `Policy` is taken as it is. Else the user's own file has its say where there is one, and the
    workspace's file, which may only tighten until it is trusted by its content.

    Raises:
        ValueError: a name is not offered, or a file cannot be read, does not parse, or fails its
            own examples: nothing runs with fewer rules than somebody wrote.
    """
    if isinstance(given, Policy):
        return given
    chosen = os.fspath(given) if given is not None else os.environ.get("TOOLCELL_POLICY") or None
    what = "policy" if given is not None else "TOOLCELL_POLICY"
    files: list[PolicyFile] = []
    named_file: str | None = None
    if chosen is not None and chosen not in POLICIES:
        if os.sep not in chosen and not chosen.endswith(".toml"):
            offered = ", ".join(POLICIES)
            raise ValueError(
                f"{what} {chosen!r:.100} is not offered; "
                f"choose one of: {offered}, or a file (.toml)"
            )
        files.append(_read(chosen, "user", must_exist=True))  # type: ignore[arg-type]  # it exists
        chosen, named_file = None, chosen
    else:
        import platformdirs

        own = _read(os.path.join(platformdirs.user_config_dir("toolcell"), USER_FILE), "user")
        files += [] if own is None else [own]
    project = _read(os.path.join(workspace, PROJECT_FILE), "project")
    files += [] if project is None else [project]
    if not files:
        return POLICIES[chosen or "standard"]
    from toolcell_policies.rules import RuleSet

    rules = RuleSet(files, trusted=[one.digest for one in files if is_trusted(one.digest)])
    for reason in rules.ignored:
        _log.warning("%s: %s", reason.source, reason.text)
    # What a file says may tighten what was chosen, never loosen it.
    name = "strict" if rules.extends == "strict" else chosen or rules.extends or "standard"
    policy, most = POLICIES[name], rules.ceilings
    return dataclasses.replace(
        policy,
        mode=policy.mode if most.mode is None else most.mode,
        max_tier=policy.max_tier if most.tier is None else most.tier,
        max_cost=policy.max_cost if most.max_cost is None else most.max_cost,
        file=named_file,
        rules=rules,
    )


def _read(path: str, scope: str, *, must_exist: bool = False) -> PolicyFile | None:
    try:
        text = policy_text(path)
    except FileNotFoundError:
        if must_exist:
            raise ValueError(f"the policy {path!r} does not exist") from None
        return None
    except OSError as error:
        raise ValueError(f"the policy {path!r} cannot be read: {error.strerror}") from None
    from toolcell_policies.rules import PolicyError, Scope, parse_policy

    try:
        return parse_policy(text, file=path, scope=Scope(scope))
    except PolicyError as error:
        # The cause tells whoever shows it that its lines are the file's, with a caret.
        raise ValueError(str(error)) from error


def policy_text(path: str) -> str:
    """The text of a policy file, read once; a link in the place of a file is not followed.

    Raises:
        OSError: it cannot be read, is no file, or is too large.
        ValueError: it is not UTF-8.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            why = "it is a link; name the file that it leads to"
            raise OSError(errno.ELOOP, why) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(fd, "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is larger than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the policy {path!r} is not UTF-8 (byte {error.start})") from None
