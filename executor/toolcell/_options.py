"""The flags of the command line: what each says, and what it becomes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from toolcell._exits import Refused

if TYPE_CHECKING:
    from toolcell.approval import Answer, ApprovalRequest, Approver
    from toolcell_sandbox.spec import Isolation, Limits, Network, WorkspaceMode

_FLAG_OF = {
    "wall_s": "--wall",
    "cpu_s": "--cpu",
    "memory_bytes": "--memory",
    "processes": "--processes",
    "file_size_bytes": "--file-size",
    "disk_bytes": "--disk",
}


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Refused(f"--processes {text[:40]!r}: write a whole number")
    return int(text)


def _flag(text: str, *names: str) -> Parameter:
    return Parameter(name=names or None, help=text, negative=(), show_default=False)


ISOLATION = _flag(
    "The guarantees that every jail must hold: standard, hardened or container "
    "(default: TOOLCELL_ISOLATION, else standard)."
)


def level_of(given: str | None) -> Isolation:
    """An isolation level as --isolation names it.

    Raises:
        Refused: it is not offered.
    """
    from toolcell._choices import chosen_isolation

    try:
        return chosen_isolation(given)
    except ValueError as error:
        raise Refused(_flagged(error, "isolation")) from None


def _flagged(error: ValueError, name: str) -> str:
    """What is wrong with an option, by the name that the person typed."""
    flag = f"--{name.replace('_', '-')}"
    words = str(error)
    return f"{flag}{words.removeprefix(name)}" if words.startswith(f"{name} ") else words


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """What every command takes."""

    json: Annotated[bool, _flag("Print one JSON object.")] = False
    verbose: Annotated[bool, _flag("Say more on stderr.", "--verbose", "-v")] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Packs:
    """What makes tools known, in jails of which level."""

    tools: Annotated[
        tuple[str, ...], _flag("A Python file of tools, described inside a jail. Repeatable.")
    ] = ()
    isolation: Annotated[str | None, ISOLATION] = None

    def level(self) -> Isolation:
        """The isolation level that was named, here or by TOOLCELL_ISOLATION.

        Raises:
            Refused: it is not offered.
        """
        return level_of(self.isolation)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags(Output, Packs):
    """What every command takes that runs a call, or says how it would be judged."""

    workspace: Annotated[str, _flag("The folder that tools work in (default: this one).")] = "."
    policy: Annotated[
        str | None,
        _flag(
            "What needs a person: standard, coding (the jail is trusted: what a call changes is "
            "judged before it is kept), ci (likewise, with nobody to ask), strict, or a policy "
            "file (default: TOOLCELL_POLICY, else standard)."
        ),
    ] = None
    mode: Annotated[
        Literal["explore", "plan", "build"],
        _flag(
            "How far a call may go at all: explore (writes to a scratch workspace only), plan "
            "(reads only) or build (default)."
        ),
    ] = "build"
    approve: Annotated[
        Literal["ask", "always", "never"] | None,
        _flag("Who agrees to what needs a person (default: ask on a terminal, else never)."),
    ] = None
    yes: Annotated[bool, _flag("The same as --approve always.")] = False
    wall: Annotated[float | None, _flag("Seconds until the call is ended.")] = None
    cpu: Annotated[float | None, _flag("Seconds of processor time.")] = None
    memory: Annotated[str | None, _flag("Memory of all its processes, such as 512M.")] = None
    processes: Annotated[str | None, _flag("Processes and threads at once.")] = None
    file_size: Annotated[str | None, _flag("The largest file it may write.")] = None
    disk: Annotated[str | None, _flag("Its private scratch space.")] = None
    capture: Annotated[
        str | None, _flag("What is kept of each of stdout and stderr: half head, half tail.")
    ] = None
    workspace_mode: Annotated[
        str | None,
        _flag(
            "What a tool gets of the workspace: transaction (what it changes is judged before it "
            "is kept), read_only, scratch (an empty one of its own) or direct (changed in place). "
            "Default: transaction (direct at level container); read_only for a tool that only "
            "reads."
        ),
    ] = None
    review: Annotated[
        bool, _flag("Show a person on the terminal what a call changed, before it is kept.")
    ] = False
    on_refused: Annotated[
        Literal["all", "park"],
        _flag("What becomes of refused changes: all are dropped, or park keeps them aside."),
    ] = "all"
    network: Annotated[
        Literal["none", "loopback", "host"],
        _flag("What a tool can reach (default: none). host asks a person each time."),
    ] = "none"
    read: Annotated[
        tuple[str, ...],
        _flag("A folder besides the workspace that tools may read. Repeatable."),
    ] = ()
    write: Annotated[
        tuple[str, ...],
        _flag("A folder besides the workspace that tools may change in place. Repeatable."),
    ] = ()
    waive: Annotated[
        tuple[str, ...],
        _flag("A guarantee that a call may do without; it then asks each time. Repeatable."),
    ] = ()
    env: Annotated[
        tuple[str, ...],
        _flag("NAME=VALUE for the tool; NAME alone takes it from here. Repeatable."),
    ] = ()

    def limits(self) -> Limits:
        """The limits that were asked for, on top of the defaults.

        Raises:
            Refused: a value is none that a limit can have.
        """
        from toolcell_sandbox.spec import Limits, parse_size

        asked: dict[str, object] = {
            "wall_s": self.wall,
            "cpu_s": self.cpu,
            "memory_bytes": self.memory,
            "processes": None if self.processes is None else _whole(self.processes),
            "file_size_bytes": self.file_size,
            "disk_bytes": self.disk,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        if self.capture is not None:
            try:
                kept_bytes = parse_size(self.capture)
            except (ValueError, OverflowError) as error:
                raise Refused(f"--capture: {error}") from None
            asked["tail_bytes"] = kept_bytes // 2
            asked["head_bytes"] = kept_bytes - kept_bytes // 2
        try:
            return Limits(**asked)  # type: ignore[arg-type]  # Limits checks each value itself
        except (ValueError, OverflowError) as error:
            message = str(error)
            for name, flag in _FLAG_OF.items():
                message = message.replace(name, flag)
            raise Refused(message) from None

    def chosen_workspace_mode(self) -> WorkspaceMode | None:
        """The workspace mode that was named.

        Raises:
            Refused: it is not offered.
        """
        from toolcell._choices import chosen_mode

        try:
            return chosen_mode(self.workspace_mode)
        except ValueError as error:
            raise Refused(_flagged(error, "workspace_mode")) from None

    def reach(self) -> Network:
        """The network that was named."""
        from toolcell_sandbox.spec import Network

        return Network(self.network)

    def waivers(self) -> tuple[str, ...]:
        """The guarantees that were waived by name.

        Raises:
            Refused: one is none, or is never waived.
        """
        from toolcell_sandbox.spec import check_waivers

        try:
            check_waivers(self.waive)
        except ValueError as error:
            raise Refused(f"--waive: {error}") from None
        return tuple(dict.fromkeys(self.waive))

    def environment(self) -> dict[str, str]:
        """The variables that the tool gets besides the jail's own.

        Raises:
            Refused: one has no name, or is to be taken from here and is not set.
        """
        found: dict[str, str] = {}
        for word in self.env:
            name, equals, value = word.partition("=")
            if not name:
                raise Refused(f"--env {word[:200]!r}: write NAME=VALUE, or NAME")
            if not equals and name not in os.environ:
                raise Refused(f"--env {name[:200]!r}: it is not set here; write NAME=VALUE")
            found[name] = value if equals else os.environ[name]
        return found

    def approver(self) -> Approver:
        """Who is asked.

        Raises:
            Refused: two flags contradict each other.
        """
        from toolcell.approval import ask_terminal, deny_all, unsafe_approve_all

        if self.yes and self.approve in ("ask", "never"):
            raise Refused(f"--yes and --approve {self.approve} contradict each other")
        who = "always" if self.yes else self.approve
        if who is None:
            # Not by the mere existence of a terminal: a program that reads us through pipes
            # would wait for a question that nobody expects.
            who = "ask" if os.isatty(0) or os.isatty(2) else "never"
        before: Approver = {
            "ask": ask_terminal,
            "always": unsafe_approve_all,
            "never": deny_all,
        }[who]
        if not self.review:
            return before

        async def approver(request: ApprovalRequest) -> Answer:
            # What was changed is shown to a person, whatever was agreed to before.
            chosen: Any = ask_terminal if request.stage == "after" else before
            return await chosen(request)  # type: ignore[no-any-return]  # all three are async

        return approver
