"""From the text of a rule file to values; whatever is not understood points at its place."""

import hashlib
import math
import re
from typing import Final

from ._rules_globs import ALTERNATIVES_MAX, compile_path
from ._rules_model import (
    EVERY_TOOL,
    Ceilings,
    Executable,
    Extends,
    PolicyFile,
    Rule,
    Scalar,
    Scope,
    When,
)
from ._rules_table import Table
from ._rules_toml import Document, Place, PolicyError, one_of, quoted
from .decision import Outcome
from .sensitive import Role
from .vocabulary import LEVEL_ALWAYS, LEVEL_FIRST_USE, TIER_NEVER, AccessMode, CostTier, Mode

# What comes with a repository is read on every call there: it has to be quick to refuse.
CHARACTERS_MAX: Final = {
    Scope.USER: 8 * 1024 * 1024,
    Scope.PROJECT: 128 * 1024,
    Scope.BUILTIN: 8 * 1024 * 1024,
}

_FILE_KEYS: Final = ("extends", "ceilings", "rule")
_CEILING_KEYS: Final = ("max_cost", "mode", "tier")
_RULE_KEYS: Final = (
    *("id", "outcome", "tool", "action", "when", "reason", "remedy", "level"),
    *("match", "not_match"),
)
_WHEN_KEYS: Final = (
    *("path", "role", "command", "flags", "not_flags", "only_flags", "executable"),
    *("host", "arguments", "access"),
)
_EXTENDS: Final[tuple[Extends, ...]] = ("standard", "coding", "ci", "strict")
_ROLES: Final[tuple[Role, ...]] = ("read", "write")
# What only the person at the machine says, and never in a file that a repository brings.
_NEVER_IN_A_PROJECT: Final = {
    **dict.fromkeys(("waive", "waivers"), "waivers"),
    **dict.fromkeys(("server", "servers", "mcp", "mcp_servers"), "servers"),
    **dict.fromkeys(
        ("policy", "policies", "policy_path", "policy_paths", "include"), "policy paths"
    ),
}

_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/*?-]{1,128}")
_FLAG: Final = re.compile(r"--?[A-Za-z0-9?#@][^\s=]*")
_HOST: Final = re.compile(r"\*|(?:\*\.)?[a-z0-9_:-]+(?:\.[a-z0-9_:-]+)*")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def read_policy(text: str, *, file: str, scope: Scope) -> tuple[PolicyFile, Document]:
    """Read a rule file without running its examples; the document knows each place of it.

    Raises:
        PolicyError: something in it is not understood.
    """
    if len(text) > CHARACTERS_MAX[scope]:
        message = f"more than {CHARACTERS_MAX[scope]:,} characters"
        raise PolicyError(file, 1, 1, message, "\n    ^")
    top = Table(Document(text, file), (), "a rule file")
    if scope is Scope.PROJECT:
        for key in top.data:
            if key in _NEVER_IN_A_PROJECT:
                message = f"a project's file may not hold {_NEVER_IN_A_PROJECT[key]}"
                raise top.error(key, message, at_key=True)
    top.only(_FILE_KEYS)
    last_lines = top.document.last_lines(2)
    rules: list[Rule] = []
    places: dict[str, Place] = {}
    for place in top.tables("rule"):
        rule = _rule(top.document, place, scope, last_lines[place])
        if rule.id in places:
            line = top.document.line_of(places[rule.id])
            message = f"another rule, on line {line}, has the id {quoted(rule.id)}"
            raise top.document.error((*place, "id"), message)
        places[rule.id] = place
        rules.append(rule)
    policy = PolicyFile(
        file=file,
        scope=scope,
        extends=top.choice("extends", _EXTENDS),
        rules=tuple(rules),
        ceilings=_ceilings(top),
        digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    return policy, top.document


def _ceilings(top: Table) -> Ceilings:
    table = top.table("ceilings", _CEILING_KEYS)
    if table is None:
        return Ceilings()
    tier = table.integer("tier", range(TIER_NEVER + 1))
    cost = table.enum("max_cost", CostTier)
    return Ceilings(max_cost=cost, mode=table.enum("mode", Mode), tier=tier)


def _rule(document: Document, place: Place, scope: Scope, last_line: int) -> Rule:
    table = Table(document, place, "a rule")
    table.only(_RULE_KEYS)
    name = table.text("id", required=True)
    if not _ID.fullmatch(name):
        raise table.error("id", "an id is lower-case letters, digits, `.`, `_` and `-`, up to 64")
    outcome = Outcome(str(table.choice("outcome", tuple(Outcome), required=True)))
    tools = table.words("tool", _name)
    actions = table.words("action", _name)
    if not (tools or actions):
        raise document.error(place, "a rule names a tool or an action; every tool is `*`")
    allows = outcome is Outcome.ALLOW
    level = table.integer("level", range(LEVEL_FIRST_USE, LEVEL_ALWAYS + 1))
    if level is not None and outcome is not Outcome.ASK:
        raise table.error("level", "only a rule that asks has a level", at_key=True)
    remedy = table.text("remedy")
    line = document.line_of(place)
    rule = Rule(
        id=name,
        outcome=outcome,
        tools=tools or EVERY_TOOL,
        actions=actions,
        when=_when(table, allows),
        reason=table.text("reason", required=not allows),
        remedy=remedy or None,
        level=LEVEL_ALWAYS if level is None else level,
        scope=scope,
        source=f"{document.file}:{line}",
        lines=(line, max(line, last_line)),
        match=table.examples("match"),
        not_match=table.examples("not_match"),
    )
    _check_flags(rule, table)
    return rule


def _when(rule: Table, allows: bool) -> When:
    table = rule.table("when", _WHEN_KEYS)
    if table is None:
        return When()
    if "only_flags" in table.data and not allows:
        message = "`only_flags` is for a rule that allows; a rule that denies or asks has `flags`"
        raise table.error("only_flags", message, at_key=True)

    def path(text: str) -> str:
        compile_path(text, strict=not allows)
        return text

    only_flags = table.words("only_flags", _flag, may_be_empty=True)
    return When(
        path=table.words("path", path),
        role=table.choice("role", _ROLES),
        command=_command(table),
        flags=table.words("flags", _flag),
        not_flags=table.words("not_flags", _flag),
        only_flags=only_flags if "only_flags" in table.data else None,
        executable=_executable(table),
        host=table.words("host", _host),
        arguments=_arguments(table),
        access=table.words("access", _access),
    )


def _check_flags(rule: Rule, table: Table) -> None:
    only = rule.when.only_flags
    if only is not None and not set(rule.when.flags) <= set(only):
        place = (*table.place, "when", "flags")
        message = "`only_flags` leaves out what `flags` demands: nothing could match"
        raise table.document.error(place, message, at_key=True)


def _command(table: Table) -> tuple[tuple[str, ...], ...]:
    words = table.items("command", may_be_empty=False)
    command: list[tuple[str, ...]] = []
    for number, word in enumerate(words):
        alternatives = word if isinstance(word, list) else [word]
        place = (*table.place, "command", number)
        if not alternatives or not all(isinstance(one, str) and one for one in alternatives):
            raise table.document.error(place, "a word is a string, or a list of alternatives")
        command.append(tuple(alternatives))
    if math.prod(map(len, command)) > ALTERNATIVES_MAX:
        raise table.error("command", f"more than {ALTERNATIVES_MAX} different commands in one rule")
    return tuple(command)


def _executable(rule: Table) -> Executable | None:
    table = rule.table("executable", ("path", "sha256"))
    if table is None:
        return None
    path, digest = table.text("path"), table.text("sha256")
    if path and not path.startswith("/"):
        raise table.error("path", "the path of a program starts at the root, with `/`")
    if digest and not _DIGEST.fullmatch(digest):
        raise table.error("sha256", "a digest is 64 hexadecimal digits, in lower case")
    if not (path or digest):
        raise rule.error("executable", "give a `path`, a `sha256`, or both")
    return Executable(path=path or None, sha256=digest or None)


def _arguments(rule: Table) -> tuple[tuple[str, tuple[Scalar, ...]], ...]:
    table = rule.table("arguments", None)
    if table is None:
        return ()
    found: list[tuple[str, tuple[Scalar, ...]]] = []
    for name, value in table.data.items():
        alternatives = value if isinstance(value, list) else [value]
        if not alternatives or not all(_is_scalar(one) for one in alternatives):
            message = (
                "an argument is compared with a string, a number, a boolean, or a list of them"
            )
            raise table.error(name, message)
        found.append((name, tuple(alternatives)))
    if not found:
        raise rule.error("arguments", "name an argument, or leave `arguments` out")
    return tuple(found)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("a name is letters, digits, `_`, `.`, `:`, `/`, `-`, and `*` or `?`")
    return text


def _flag(text: str) -> str:
    if not _FLAG.fullmatch(text):
        raise ValueError("a flag is its name alone: `-f` or `--force`, without a value")
    return text


def _host(text: str) -> str:
    host = text.rstrip(".").lower()
    if not _HOST.fullmatch(host):
        raise ValueError(
            "a host is a name, `*.name` for all below it, or `*`; other scripts as `xn--`"
        )
    return host


def _access(text: str) -> str:
    words = tuple(AccessMode)
    if text not in words:
        raise ValueError(f"unknown access {quoted(text)}; choose {one_of(words)}")
    return text
