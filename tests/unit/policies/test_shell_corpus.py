"""Every command of the corpus, read as it has to be: half of it everyday, half hostile."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from toolcell_policies.shell import CommandKind, ShellCommand, parse_command

CORPUS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "shell_corpus.toml").read_text(encoding="utf-8")
)
KINDS = {0: {"read"}, 2: {"read", "write"}}


def kinds_of(command: ShellCommand) -> set[str]:
    return {kind.value for segment in command.segments for kind in segment.kinds}


def reads_of(command: ShellCommand) -> list[str]:
    return [one.path for each in command.segments for one in each.reads if one.path is not None]


def writes_of(command: ShellCommand) -> list[str]:
    return [one.path for each in command.segments for one in each.writes if one.path is not None]


def rows(half: str) -> list[Any]:
    return [pytest.param(row, id=row["text"][:60] or "nothing") for row in CORPUS[half]]


def test_the_corpus_has_its_two_halves() -> None:
    """A corpus that shrinks unseen proves less every time."""
    assert len(CORPUS["benign"]) >= 100
    assert len(CORPUS["hostile"]) >= 100


@pytest.mark.parametrize("row", rows("benign"))
def test_everyday_work_is_read_for_what_it_is(row: dict[str, Any]) -> None:
    """Otherwise a person is asked about `ls`, and learns to say yes."""
    check(row)


@pytest.mark.parametrize("row", rows("hostile"))
def test_what_hides_is_found(row: dict[str, Any]) -> None:
    """Otherwise a harmless first word carries the rest past a person."""
    check(row)


def check(row: dict[str, Any]) -> None:
    command = parse_command(row["text"], home="/home/user")
    assert command.level == row["level"], command
    assert (command.problem is not None) == row.get("problem", False), command.problem
    kinds = kinds_of(command)
    assert (CommandKind.REMOVAL_CRITICAL in kinds) == row.get("deny", False)
    if row.get("deny") or row.get("problem") or not command.segments:
        return
    if "kinds" in row:
        assert kinds == set(row["kinds"])
    else:
        assert kinds <= KINDS[row["level"]]
    if "reads" in row:
        assert reads_of(command) == row["reads"]
    if "writes" in row or row["level"] < 3:
        assert writes_of(command) == row.get("writes", [])


@pytest.mark.parametrize("half", ["benign", "hostile"])
def test_what_is_not_a_read_says_why_in_one_clean_line(half: str) -> None:
    """A reason with a control character in it could rewrite the screen it is shown on."""
    for row in CORPUS[half]:
        for segment in parse_command(row["text"]).segments:
            assert bool(segment.reasons) == (segment.level > 0), segment
            for reason in segment.reasons:
                assert reason.text.isprintable()
                assert reason.text.endswith(".")
                assert reason.code.replace("_", "").isalpha()
