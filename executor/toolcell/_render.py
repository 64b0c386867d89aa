"""What a person or a program is shown: results, decisions, tables. Nothing here decides.

To a program it is plain text or one JSON object. To a terminal, text that a tool made is
escaped, and colour and tables come from rich, which is imported only then.
"""

from __future__ import annotations

import errno
import json
import os
import select
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolcell._exits import OUR_FAILURE, Refused
from toolcell._visible import source_of, visible

if TYPE_CHECKING:
    from toolcell.results import ToolResult
    from toolcell_policies import Decision, Reason

_SHORT_CHARS: Final = 20
_WIDTH: Final = 100
REASONS_SHOWN: Final = 12
"""As many reasons as leave a decision on one screen."""
_ASIDE_SHOWN: Final = 4
_LINES: Final = "\n\t"
"""What stays as it is in text of several lines."""


def _colours(fd: int) -> bool:
    return os.isatty(fd) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, *, good: bool, fd: int = 1) -> str:
    """Our own words in green or red, where that is a terminal which wants colour."""
    return f"\x1b[{'32' if good else '1;31'}m{text}\x1b[0m" if _colours(fd) else text


def say(message: str, *, kind: str | None = None, lines: Sequence[str] = ()) -> None:
    """One line on stderr, from us, and `lines` below it. Lost in silence when nobody can read it.

    A line of the message never becomes two: what a caller wrote cannot pass for a line of ours.
    """
    name = "" if kind is None else painted(f"{kind}: ", good=False, fd=2)
    below = "".join(f"  {visible(line)}\n" for line in lines)
    _write(2, f"toolcell: {name}{visible(message)}\n{below}")


def print_json(value: Any) -> None:
    """One JSON object on stdout, in ASCII: nothing in it can act on a terminal."""
    write_out(json.dumps(value, allow_nan=False) + "\n")


def write_out(text: str) -> None:
    """Text on stdout. A reader that went away is no failure of ours.

    Raises:
        Refused: it could not be written, so nobody has the result.
    """
    error = _write(1, text)
    if error is not None and error.errno != errno.EPIPE:
        raise Refused(f"cannot write the result: {error.strerror}", OUR_FAILURE)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, also where whoever shares the descriptor made it non-blocking.

    Raises:
        OSError: it could not be written.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.poll()


def _write(fd: int, text: str) -> OSError | None:
    try:
        write_all(fd, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        return error
    return None


# -- results ------------------------------------------------------------------------------


def show_result(result: ToolResult, *, verbose: bool) -> None:
    """A result for a person: what the tool said on stdout, why it failed on stderr."""
    on_terminal = os.isatty(1)
    if result.error is None:
        text = _pretty(result) if on_terminal else result.content
        whole = isinstance(result.output, str) and not on_terminal
        _tell(1, text, escape=on_terminal, whole=whole)
    else:
        for fd, stream in ((1, result.stdout), (2, result.stderr)):
            if stream is not None and stream.seen_bytes:
                _tell(fd, stream.text(), escape=os.isatty(fd), whole=False)
        show_failure(result.error)
    if verbose:
        show_facts(result)


def show_failure(failure: Any) -> None:
    """A failure for a person: one line, then the evidence that somebody can act on."""
    reasons = getattr(failure, "reasons", ())
    # The message of these has every reason, for a model; here each has a line of its own.
    said = failure.message.partition(": ")[0] if reasons else failure.message
    say(said, kind=failure.kind)
    details = [visible(line) for line in getattr(failure, "traceback", "").splitlines()]
    details += [visible(line.strip()) for line in _grounds(reasons, "deny")]
    if failure.kind == "effects_refused":
        details += [f"{visible(one['path'])}: {visible(one['text'])}" for one in failure.paths]
    for word, text in (("hint", getattr(failure, "hint", None)), ("fix", failure.remedy)):
        details += [f"{word}: {visible(text)}"] if text else []
    for line in details:
        _write(2, f"  {line}\n")


def _pretty(result: ToolResult) -> str:
    """Data as a person reads it; text as it is."""
    if not isinstance(result.output, dict | list):
        return result.content
    try:
        if json.loads(result.content) != result.output:
            return result.content
    except ValueError:
        return result.content
    return json.dumps(result.output, indent=2, ensure_ascii=False)


def _tell(fd: int, text: str, *, escape: bool, whole: bool) -> None:
    if escape:
        text = visible(text, keep=_LINES)
    if text and not whole and not text.endswith("\n"):
        text += "\n"
    if fd == 1:
        write_out(text)
    else:
        _write(fd, text)


def show_facts(result: ToolResult) -> None:
    """What `-v` adds, on stderr: the decision, what was used, what held."""
    facts = [f"call {result.call_id}"]
    if result.decision is not None:
        facts += [f"decided {result.decision.outcome}, level {result.decision.level}"]
        facts += [f"because {reason.text}" for reason in result.decision.reasons]
    facts += [f"repaired {repair.get('path')}: {repair.get('why')}" for repair in result.repairs]
    if result.usage is not None:
        used = ", ".join(f"{k} {v}" for k, v in result.usage.to_json().items() if v is not None)
        facts.append(f"used {used}")
    if result.receipt is not None:
        held = ", ".join(f"{name} ({how})" for name, how in result.receipt.held.items())
        facts.append(f"isolation {result.receipt.isolation}: {held or 'nothing held'}")
        facts += [f"given up by name: {', '.join(result.receipt.waived)}"] * bool(
            result.receipt.waived
        )
    if result.effects is not None:
        for sort in ("created", "modified", "deleted"):
            facts += [f"{sort} {path}" for path in getattr(result.effects, sort)]
        facts += [f"left out {one['path']}: {one['text']}" for one in result.effects.refused]
    detail = getattr(result.error, "operator_detail", "")
    facts += detail.splitlines()
    for line in facts:
        _write(2, f"  {visible(line)}\n")


def show_decision(
    decision: Decision, jail: Mapping[str, Any], not_counted: Sequence[Mapping[str, Any]] = ()
) -> None:
    """A decision, its level and every reason, and the jail that it is about, on stdout.

    `not_counted` is what a policy file says in vain, as the reasons for that.
    """
    lines = [f"{decision.outcome.value} (level {decision.level}): {_happens(decision, jail)}"]
    lines += _grounds(decision.reasons, decision.outcome.value)
    if decision.remedy:
        lines.append(f"  what would help: {decision.remedy}")
    facts = ((key.replace("_", " "), value) for key, value in jail.items() if value)
    said = (f"{key} {', '.join(v) if isinstance(v, list) else v}" for key, v in facts)
    lines.append(f"  in a jail: {'; '.join(said)}")
    for one in not_counted[:1]:
        more = f" (and {len(not_counted) - 1} more)" if len(not_counted) > 1 else ""
        place = source_of(one["rule"], one["source"]) if one["rule"] else ""
        lines.append(f"  note: {one['text']}{place}{more}")
    write_out("".join(f"{line}\n" for line in _wrapped(map(visible, lines))))


def _wrapped(lines: Iterable[str]) -> list[str]:
    """As a terminal shows them, what goes on below its line set in; to a program as they are."""
    if not os.isatty(1):
        return list(lines)
    width = min(os.get_terminal_size(1).columns or _WIDTH, _WIDTH)
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, max(width, 40), subsequent_indent=" " * 6, **options)
    ]


def _grounds(reasons: Sequence[Reason], outcome: str) -> list[str]:
    """Why, each on a line of its own; what did not decide it in one line below."""
    lowered = any(one.code in _LOWERS for one in reasons)
    nobody = any(one.code in _NOBODY for one in reasons)
    aside: list[Reason] = []
    if outcome == "allow" and lowered:
        aside = [one for one in reasons if _is_of_the_words(one)]
    elif lowered or (outcome == "deny" and not nobody):
        aside = [one for one in reasons if one.code in _LOWERS or _is_of_the_words(one)]
    aside += [one for one in reasons if one.code == _HIDDEN and one not in aside]
    decided = [one for one in reasons if one not in aside]
    if not decided:
        decided, aside = list(reasons), []
    told = decided[:REASONS_SHOWN]
    lines = [f"  because {one.text}{source_of(one.rule, one.source)}" for one in told]
    if len(decided) > len(told):
        lines.append(f"  and {len(decided) - len(told)} more reasons: --json has them all")
    if aside:
        word = "although" if outcome == "allow" else "besides"
        said = [f"{one.text}{source_of(one.rule, one.source)}" for one in aside[:_ASIDE_SHOWN]]
        said += [f"and {len(aside) - len(said)} more"] if len(aside) > len(said) else []
        lines.append(f"  {word} {'; '.join(said)}")
    return lines


_LOWERS: Final = frozenset({"jail_trusted", "rule_allow", "granted_first_use"})
_NOBODY: Final = frozenset({"nobody_to_ask", "prompts_exhausted"})
_JUDGED_AFTER: Final = "path_write_judged"
_HIDDEN: Final = "path_hidden"


def _is_of_the_words(reason: Reason) -> bool:
    """Whether it is about what the tool says of itself, which trust or a rule may lower."""
    return reason.code.startswith(("access_", "danger_")) or reason.code in (
        "command_read",
        "level_required",
        "tier_required",
    )


def _happens(decision: Decision, jail: Mapping[str, Any]) -> str:
    if decision.outcome.value == "deny":
        return "it would not run"
    shown_after = any(one.code == _JUDGED_AFTER for one in decision.reasons)
    if decision.outcome.value == "ask":
        scopes = " or ".join(decision.remember_options)
        often = f"once, if the answer is for the {scopes}" if scopes else "each time"
        again = ", and again before what it wrote is kept" if shown_after else ""
        return f"a person would be asked, {often}{again}"
    kept = {
        "transaction": ", and what it changes would be judged before it is kept",
        "scratch": ", in an empty workspace of its own, of which nothing is kept",
    }.get(jail.get("workspace_mode", ""), "")
    if shown_after:
        kept = ", and a person would be asked before what it wrote is kept"
    return f"it would run{' and be logged' if decision.level else ''}{kept}"


# -- tables -------------------------------------------------------------------------------


def show_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], good: Sequence[bool] = ()
) -> None:
    """Rows under a head. `good` colours each row's first cell on a terminal."""
    cells = [[visible(cell) for cell in row] for row in rows]
    if os.isatty(1):
        write_out(_rich_table(title, head, cells, good))
        return
    widths = [max(len(row[n]) for row in [head, *cells]) for n in range(len(head))]
    lines = [title] if title else []
    for row in [head, *cells]:
        lines.append("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
    write_out("".join(f"{line}\n" for line in lines))


def _rich_table(
    title: str, head: Sequence[str], cells: list[list[str]], good: Sequence[bool]
) -> str:
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", title_style="bold")
    for number, name in enumerate(head):
        # Names and numbers stay in one piece; sentences give way.
        is_short = max((len(row[number]) for row in cells), default=0) <= _SHORT_CHARS
        table.add_column(Text(name), overflow="fold", no_wrap=is_short)
    for number, row in enumerate(cells):
        style = "" if number >= len(good) else ("green" if good[number] else "bold red")
        table.add_row(Text(row[0], style=style), *(Text(cell) for cell in row[1:]))
    # Printed by us, so that a reader that goes away is treated as everywhere.
    width = os.get_terminal_size(1).columns or 80
    console = Console(
        file=io.StringIO(), force_terminal=True, no_color=not _colours(1), width=width
    )
    with console.capture() as captured:
        console.print(table)
    return captured.get()
