"""The examples of a rule, run by the code that matches calls.

An example is about one condition of its rule; the others are taken as given, so that a rule for
`write_file` need not say so in each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ._rules_match import CompiledRule, fits_arguments, path_starts
from ._rules_model import Example, Match, PolicyFile, Rule, RulePath, RuleSegment
from ._rules_segments import rule_segments
from ._rules_toml import Document, PolicyError, printable
from .decision import Outcome
from .sensitive import Role

# Where the relative and the `~` paths of examples are thought to lie.
WORKSPACE: Final = "/workspace"
HOME: Final = "/home/user"
ROLES: Final[tuple[Role, ...]] = ("read", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleResult:
    """What became of one example."""

    rule: str
    # As written, on one line.
    example: str
    # Whether the rule has to be about it, and whether it is.
    expected: bool
    got: bool
    # `file:line`
    source: str

    @property
    def holds(self) -> bool:
        """Whether the rule does what its author says."""
        return self.expected is self.got


def run_examples(policy: PolicyFile) -> tuple[ExampleResult, ...]:
    """Run every example of a file, in the order of the file."""
    return tuple(
        ExampleResult(
            rule=rule.id,
            example=printable(example.text),
            expected=expected,
            got=got,
            source=f"{policy.file}:{example.line}",
        )
        for rule in policy.rules
        for _, _, example, expected, got in _run(rule)
    )


def check_examples(policy: PolicyFile, document: Document) -> None:
    """Run every example, and see that a rule that allows has both kinds.

    Raises:
        PolicyError: one does not hold, is of the wrong kind, or is missing.
    """
    for number, rule in enumerate(policy.rules):
        place = ("rule", number)
        wanted = _wanted(rule)
        for key in ("match", "not_match"):
            for at, example in enumerate(getattr(rule, key)):
                if (example.arguments is not None) is not (wanted == "a table of arguments"):
                    message = f"an example of this rule is {wanted}"
                    raise document.error((*place, key, at), message)
        for key, at, _, expected, got in _run(rule):
            if expected is not got:
                said = "should match, and does not" if expected else "should not match, and does"
                raise document.error((*place, key, at), f"this example {said}")
        if rule.outcome is Outcome.ALLOW:
            if not rule.match:
                raise _missing(document, number, "match", f"shows {wanted} that it is for")
            if not rule.not_match and _can_miss(rule):
                text = f"shows {wanted} that it only just is not for"
                raise _missing(document, number, "not_match", text)


def _missing(document: Document, number: int, key: str, shows: str) -> PolicyError:
    message = f"a rule that allows needs an example in `{key}` that {shows}"
    return document.error(("rule", number), message)


def _can_miss(rule: Rule) -> bool:
    compiled = CompiledRule(rule)
    if _wanted(rule) == "the name of a tool":
        return not compiled.tools.matches_all
    return _wanted(rule) != "the name of an action" or not compiled.actions.matches_all


def _wanted(rule: Rule) -> str:
    """The kind of an example: that of the first condition in this order."""
    when = rule.when
    if when.about_commands:
        return "a command"
    if when.about_paths:
        return "a path"
    if when.about_hosts:
        return "a host"
    if when.arguments:
        return "a table of arguments"
    return "the name of an action" if rule.actions else "the name of a tool"


def _run(rule: Rule) -> Iterator[tuple[str, int, Example, bool, bool]]:
    compiled = CompiledRule(rule) if rule.match or rule.not_match else None
    if compiled is None:
        return
    for key, expected in (("match", True), ("not_match", False)):
        for at, example in enumerate(getattr(rule, key)):
            yield key, at, example, expected, _fits(compiled, example)


def _fits(compiled: CompiledRule, example: Example) -> bool:
    rule, text = compiled.rule, example.text
    match _wanted(rule):
        case "a command":
            return _fits_command(compiled, text)
        case "a path":
            return _fits_path(compiled, text)
        case "a host":
            return compiled.fits_host(text)
        case "a table of arguments":
            return fits_arguments(rule.when.arguments, example.arguments or {})
        case "the name of an action":
            return compiled.actions.match(text)
        case _:
            return compiled.tools.match(text)


def _fits_path(compiled: CompiledRule, text: str) -> bool:
    real = text
    if text.startswith("~/"):
        real = HOME + text[1:]
    elif not text.startswith("/"):
        real = f"{WORKSPACE}/{text}"
    starts = path_starts(real, WORKSPACE, (HOME,), strict=compiled.strict)
    roles = ROLES if compiled.rule.when.role is None else (compiled.rule.when.role,)
    return all(compiled.fits_path(RulePath(real=real, role=role), starts) for role in roles)


def _fits_command(compiled: CompiledRule, text: str) -> bool:
    from .shell import parse_command  # late: the grammar is slow to load, and rarely needed

    command = parse_command(text, home=HOME)
    segments = [_with_program(compiled.rule, one) for one in rule_segments(command)]
    found = [compiled.fits_segment(one) is not Match.NO for one in segments]
    return any(found) if compiled.strict else bool(found) and all(found)


def _with_program(rule: Rule, segment: RuleSegment) -> RuleSegment:
    """Take a program of the right name as the one that the rule names."""
    wanted = rule.when.executable
    if wanted is None or not segment.argv or segment.argv[0] is None:
        return segment
    name = segment.argv[0].rsplit("/", 1)[-1]
    is_it = wanted.path is None or wanted.path.rsplit("/", 1)[-1] == name
    return RuleSegment(
        argv=segment.argv,
        executable=segment.executable,
        executable_path=wanted.path if is_it else f"/another/{name}",
        executable_sha256=wanted.sha256 if is_it else "another",
        understood=segment.understood,
        opaque=segment.opaque,
        env=segment.env,
    )
