"""`toolcell policy`: whether a policy file says what its author means."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from toolcell._exits import Refused, refused_policy
from toolcell._options import Output, Packs
from toolcell._render import print_json, show_table, write_out
from toolcell._session import load_tools, until_signalled
from toolcell._visible import visible

if TYPE_CHECKING:
    from toolcell_policies.rules import PolicyFile

__all__ = ["POLICY"]

_OUTPUT: Final = Output()
_PACKS: Final = Packs()

File = Annotated[str, Parameter(help="A policy file.")]


async def lint(file: File, /, *more: File, packs: Packs = _PACKS, output: Output = _OUTPUT) -> int:
    """Name rules that can never fire, catch-alls that undo others, and tools that are not there.

    With --tools, the tools of those packs are known besides the built-in ones.
    Exit code: 0 nothing was found, 1 something was, 2 a file cannot be used.
    """
    from toolcell.builtin import builtin_tools
    from toolcell_policies.rules import RuleSet
    from toolcell_policies.rules import lint as findings

    files = [_parsed(one, run=True) for one in (file, *more)]

    async def work() -> list[str]:
        known = [*builtin_tools(), *await load_tools(packs)]
        return [name for tool in known for name in (tool.name, *tool.aliases)]

    names = await until_signalled(work)
    found = findings(RuleSet(files, trusted=[one.digest for one in files]), names)
    if output.json:
        listed = [
            {
                "code": one.code,
                "rule": one.rule,
                "source": one.source,
                "text": one.text,
                "remedy": one.remedy,
            }
            for one in found
        ]
        print_json({"schema": 1, "files": [one.file for one in files], "findings": listed})
    elif found:
        rows = [[one.source, one.rule, one.code, f"{one.text}; {one.remedy}"] for one in found]
        show_table("", ["where", "rule", "what", "why, and what to do"], rows)
    else:
        count = sum(len(one.rules) for one in files)
        write_out(f"nothing to say about {count} rules\n")
    return 1 if found else 0


async def check_examples(file: File, /, *, output: Output = _OUTPUT) -> int:
    """Run the examples of a policy file, each against its own rule; -v shows those that hold.

    Exit code: 0 all hold, 1 one does not, 2 the file cannot be read as a policy.
    """
    from toolcell_policies.rules import run_examples

    policy = _parsed(file, run=False)
    found = run_examples(policy)
    if output.json:
        listed = [
            {
                "rule": one.rule,
                "example": one.example,
                "expected": one.expected,
                "got": one.got,
                "holds": one.holds,
                "source": one.source,
            }
            for one in found
        ]
        print_json({"schema": 1, "file": policy.file, "examples": listed})
    else:
        for one in found:
            if output.verbose or not one.holds:
                verb = "matches" if one.got else "does not match"
                wrong = "" if one.holds else ", and should not" if one.got else ", and should"
                said = f"{one.source}: rule {one.rule} {verb} {one.example}{wrong}"
                write_out(f"{visible(said)}\n")
        held = sum(one.holds for one in found)
        write_out(f"{held} of {len(found)} examples hold, of {len(policy.rules)} rules\n")
    return 0 if all(one.holds for one in found) else 1


POLICY: Final[dict[str, Callable[..., Awaitable[int]]]] = {"lint": lint, "test": check_examples}


def _parsed(file: str, *, run: bool) -> PolicyFile:
    from toolcell._policies import PROJECT_FILE, policy_text
    from toolcell_policies.rules import PolicyError, Scope, parse_policy

    # What a repository brings is read as such: it may not hold all that a person's own may.
    is_project = os.path.abspath(file).endswith(f"{os.sep}{PROJECT_FILE}")
    scope = Scope.PROJECT if is_project else Scope.USER
    try:
        return parse_policy(policy_text(file), file=file, scope=scope, run=run)
    except PolicyError as error:
        raise refused_policy(str(error)) from None
    except OSError as error:
        raise Refused(f"cannot read {file!r}: {error.strerror or error}") from None
    except ValueError as error:
        raise Refused(str(error)) from None
