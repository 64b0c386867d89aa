"""What a command says it does: its grammar, the files that it names, the programs that it runs."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolcell.tools import CommandRef, Tool
from toolcell_policies import PathVerdict, Role
from toolcell_sandbox import host

if TYPE_CHECKING:
    from toolcell._executables import Program, Programs
    from toolcell_policies.rules import RuleSegment
    from toolcell_policies.shell import Segment, ShellCommand

OPERANDS_MAX = 256
"""As many files of one command are looked at one by one; more is not understood."""

_OWN = frozenset({"proc", "sys", "dev"})
"""What a jail has of its own: what it shows there is not the host's."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandFacts:
    """A command of a call, taken apart."""

    command: ShellCommand
    cwd: str
    """The folder that it starts in, absolute."""
    paths: tuple[PathVerdict, ...]
    programs: tuple[Program | None, ...]
    """Of each segment; None where none is found."""

    def reads(self) -> tuple[tuple[str, bool], ...]:
        """Each path that it reads, absolute, and whether it is a pattern."""
        found = (
            (os.path.join(self.cwd, operand.path), operand.glob)
            for segment in self.command.segments
            for operand in segment.reads
            if operand.path is not None
        )
        return tuple(dict.fromkeys(one for one in found if not _is_the_jails_own(one[0])))

    @property
    def replaceable(self) -> tuple[tuple[str, str], ...]:
        """Each program that a tool could replace, and what it is now."""
        found = (one for one in self.programs if one is not None and one.is_replaceable)
        return tuple(dict.fromkeys((one.path, one.identity) for one in found))

    def rule_segments(self) -> tuple[RuleSegment, ...]:
        """The segments as rules see them: by the code that reads a rule's examples."""
        from toolcell_policies.rules import rule_segments

        known = [(None, None) if one is None else (one.path, one.digest) for one in self.programs]
        return rule_segments(self.command, known)


def command_facts(
    tool: Tool,
    arguments: Mapping[str, Any],
    *,
    workspace: str,
    environment: Mapping[str, str],
    programs: Programs,
    judge: Callable[[str, Role], PathVerdict],
    must_hash: bool,
    settled: Mapping[str, str],
) -> CommandFacts | None:
    """The facts of a tool that runs a command; None for one that runs none.

    `judge` says what speaks against a path. Where a file lies is not looked at here: what a jail
    does not show is not there.
    """
    if not isinstance(tool.handler, CommandRef):
        return None
    from toolcell_policies.shell import parse_command

    argv, folder, script = tool.handler.command(dict(arguments))
    text = shlex.join(argv) if script is None else script
    command = parse_command(text, env=environment, home=host.base_environment()["HOME"])
    cwd = start_folder(workspace, folder, settled)
    named: dict[tuple[str, Role], None] = {}
    for segment in command.segments:
        for role, operands in (("read", segment.reads), ("write", segment.writes)):
            for operand in operands:
                if operand.path is not None and not operand.glob:
                    path = os.path.join(cwd, operand.path)
                    if not _is_the_jails_own(path):
                        named[path, role] = None  # type: ignore[index]  # both are roles
    if len(named) > OPERANDS_MAX:
        why = f"it names more than {OPERANDS_MAX} files"
        command = dataclasses.replace(command, problem=command.problem or why)
    return CommandFacts(
        command=command,
        cwd=cwd,
        paths=tuple(judge(path, role) for path, role in list(named)[:OPERANDS_MAX]),
        programs=tuple(
            _program(segment, cwd, environment, programs, must_hash=must_hash)
            for segment in command.segments
        ),
    )


def _is_the_jails_own(path: str) -> bool:
    """Whether it surely lies in what a jail has of its own: with `..`, only a look could tell."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    return bool(names) and names[0] in _OWN and ".." not in names


def start_folder(workspace: str, folder: str, settled: Mapping[str, str]) -> str:
    """Where a command starts: where its folder leads, not what it collapses to (`link/..`)."""
    return settled.get(folder) or os.path.normpath(os.path.join(workspace, folder))


def _program(
    segment: Segment,
    cwd: str,
    environment: Mapping[str, str],
    programs: Programs,
    *,
    must_hash: bool,
) -> Program | None:
    if segment.executable is None:
        return None
    here = None if segment.cwd is None else os.path.normpath(os.path.join(cwd, segment.cwd))
    return programs.find(segment.executable, here, environment, must_hash=must_hash)
