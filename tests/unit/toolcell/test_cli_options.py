"""The flags, and what they become."""

from __future__ import annotations

from typing import Any

import pytest

from toolcell import approval
from toolcell._exits import Refused
from toolcell._options import Flags
from toolcell_sandbox.spec import Limits, Network


def test_no_flag_is_the_default() -> None:
    """The command line must not have limits of its own."""
    assert Flags().limits() == Limits()


def test_each_limit_has_its_flag() -> None:
    """A flag that is read and not applied is worse than none."""
    flags = Flags(
        wall=3, cpu=2, memory="64M", processes="9", file_size="1KiB", disk="2g", capture="101"
    )
    expected = Limits(
        wall_s=3,
        cpu_s=2,
        memory_bytes=64 << 20,
        processes=9,
        file_size_bytes=1 << 10,
        disk_bytes=2 << 30,
        head_bytes=51,
        tail_bytes=50,
    )
    assert flags.limits() == expected


@pytest.mark.parametrize(("size", "head", "tail"), [("0", 0, 0), ("1", 1, 0), ("2", 1, 1)])
def test_the_odd_byte_of_capture_is_the_heads(size: str, head: int, tail: int) -> None:
    """Kept is exactly what was asked for."""
    limits = Flags(capture=size).limits()
    assert (limits.head_bytes, limits.tail_bytes) == (head, tail)


@pytest.mark.parametrize(
    "given",
    [
        {"memory": "lots"},
        {"memory": "-1"},
        {"memory": "9" * 400},
        {"memory": "1"},
        {"memory": ""},
        {"capture": "64 M B"},
        {"capture": "9" * 400},
        {"wall": float("nan")},
        {"wall": float("inf")},
        {"wall": 0},
        {"cpu": -1},
        {"processes": "0"},
        {"processes": "1.5"},
        {"disk": "1e9"},
        {"file_size": "0x10"},
    ],
)
def test_a_limit_that_is_none_names_its_flag(given: dict[str, Any]) -> None:
    """`wall_s` is our word; the person typed `--wall`."""
    with pytest.raises(Refused) as refused:
        Flags(**given).limits()
    (name,) = given
    assert f"--{name.replace('_', '-')}" in str(refused.value)


def test_the_environment_is_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAME alone takes it from here; nothing else of ours crosses."""
    monkeypatch.setenv("FROM_HERE", "x=y")
    flags = Flags(env=("A=1", "B=", "FROM_HERE", "A=2=3"))
    assert flags.environment() == {"A": "2=3", "B": "", "FROM_HERE": "x=y"}


@pytest.mark.parametrize("word", ["", "=x", "NOT_SET_ANYWHERE"])
def test_a_variable_that_is_none_is_refused(word: str) -> None:
    """A misspelt name must not be an empty variable."""
    with pytest.raises(Refused):
        Flags(env=(word,)).environment()


def test_the_jail_is_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that is read and not applied gives a jail that nobody asked for."""
    monkeypatch.delenv("TOOLCELL_ISOLATION", raising=False)
    plain = Flags()
    assert (plain.level(), plain.chosen_workspace_mode(), plain.reach(), plain.waivers()) == (
        *("standard", None),
        *(Network.none(), ()),
    )
    flags = Flags(
        isolation="container",
        workspace_mode="scratch",
        network="host",
        waive=("paths_masked", "paths_masked", "cpu_limited"),
    )
    assert (flags.level(), flags.chosen_workspace_mode(), flags.reach()) == (
        *("container", "scratch"),
        Network.host(),
    )
    assert flags.waivers() == ("paths_masked", "cpu_limited")
    monkeypatch.setenv("TOOLCELL_ISOLATION", "hardened")
    assert (plain.level(), flags.level()) == ("hardened", "container")


@pytest.mark.parametrize(
    ("given", "read", "words"),
    [
        ({"isolation": "none"}, "level", "--isolation 'none' is not offered; choose one of: st"),
        ({"isolation": ""}, "level", "--isolation '' is not offered"),
        (
            {"workspace_mode": "rw"},
            "chosen_workspace_mode",
            "--workspace-mode 'rw' is not offered; choose",
        ),
        ({"waive": ("nets",)}, "waivers", "--waive: 'nets' is no guarantee"),
        ({"waive": ("tree_killed",)}, "waivers", "--waive: tree_killed is never waived"),
    ],
)
def test_a_choice_that_is_none_names_its_flag(given: dict[str, Any], read: str, words: str) -> None:
    """A person looks for the word that was typed, not for our name of it."""
    with pytest.raises(Refused) as refused:
        getattr(Flags(**given), read)()
    assert str(refused.value).startswith(words)


def test_a_level_of_the_environment_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody typed --isolation: looking for it would lead nowhere."""
    monkeypatch.setenv("TOOLCELL_ISOLATION", "strong")
    with pytest.raises(Refused, match=r"^TOOLCELL_ISOLATION 'strong' is not offered"):
        Flags().level()


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES 35: without a terminal nobody is asked, so nothing can hang."""
    monkeypatch.setattr("os.isatty", lambda fd: False)
    assert Flags().approver() is approval.deny_all
    monkeypatch.setattr("os.isatty", lambda fd: True)
    assert Flags().approver() is approval.ask_terminal
    assert Flags(yes=True).approver() is approval.unsafe_approve_all
    assert Flags(approve="always").approver() is approval.unsafe_approve_all
    assert Flags(approve="never").approver() is approval.deny_all


@pytest.mark.parametrize("approve", ["ask", "never"])
def test_a_contradiction_is_refused(approve: Any) -> None:
    """Whichever won, somebody would have meant the other."""
    with pytest.raises(Refused):
        Flags(yes=True, approve=approve).approver()
