"""Which policy an executor has: what was chosen, the user's file, and the project's."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from toolcell import _policies
from toolcell._policies import FILE_BYTES_MAX, policy_of
from toolcell_policies import POLICIES, CostTier, Mode, Policy

DENY = """
[[rule]]
id = "no-deploy"
tool = "shell"
outcome = "deny"
when = { command = ["deploy"] }
reason = "deployments are for people"
match = ["deploy now"]
not_match = ["echo deploy"]
"""
ALLOW = """
[[rule]]
id = "notes"
tool = "write_file"
outcome = "allow"
when = { path = ["notes/**"] }
reason = "notes are free"
match = ["notes/a.md"]
not_match = ["src/a.py"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a policy, and a workspace."""
    (tmp_path / "ws" / ".toolcell").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOOLCELL_POLICY", raising=False)
    return tmp_path


def found(place: Path, given: Any = None, trusted: tuple[str, ...] = ()) -> Policy:
    digests = {hashlib.sha256(text.encode()).hexdigest() for text in trusted}
    return policy_of(given, workspace=str(place / "ws"), is_trusted=digests.__contains__)


def user(place: Path, text: str) -> None:
    file = place / "config" / "toolcell" / "policy.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def project(place: Path, text: str) -> None:
    (place / "ws" / ".toolcell" / "policy.toml").write_text(text)


def rule_ids(policy: Policy) -> list[str]:
    return [] if policy.rules is None else [rule.id for rule in policy.rules.rules]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_name_is_its_policy(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to read a table to know what `--policy ci` gives."""
    assert found(place, name) == POLICIES[name]
    monkeypatch.setenv("TOOLCELL_POLICY", name)
    assert found(place) == POLICIES[name]
    assert found(place, "strict") == POLICIES["strict"], "what is said comes before the default"


def test_nothing_chosen_is_standard_and_a_policy_is_taken_as_it_is(place: Path) -> None:
    """A program that made its policy itself does not want a file of the user's in it."""
    user(place, DENY)
    own = Policy(name="mine", trust_the_jail=True)
    assert found(place, own) is own
    assert found(place).name == "standard"
    assert rule_ids(found(place)) == ["no-deploy"]


@pytest.mark.parametrize("given", ["yolo", "", "coding "])
def test_a_name_that_is_none_is_refused(place: Path, given: str) -> None:
    """It must never slide to the one that there is."""
    if given == "":
        assert found(place, None).name == "standard", "an empty variable is none"
        return
    with pytest.raises(ValueError, match="choose one of: standard, coding, ci, strict, or a file"):
        found(place, given)


def test_a_file_is_the_users_word_in_place_of_the_usual_one(place: Path) -> None:
    """Whoever names a file means that file."""
    user(place, DENY)
    mine = place / "mine.toml"
    mine.write_text('extends = "coding"\n' + ALLOW)
    policy = found(place, mine)
    assert (policy.name, rule_ids(policy)) == ("coding", ["notes"])
    with pytest.raises(ValueError, match="does not exist"):
        found(place, place / "none.toml")


def test_a_project_may_tighten_and_loosens_nothing_until_it_is_trusted(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever clones a repository must not get its author's permissions with it."""
    text = 'extends = "coding"\n' + DENY + ALLOW
    project(place, text)
    with caplog.at_level(logging.WARNING, "toolcell"):
        policy = found(place)
    assert (policy.name, rule_ids(policy)) == ("standard", ["no-deploy"])
    assert "toolcell trust" in caplog.text
    trusted = found(place, trusted=(text,))
    assert (trusted.name, rule_ids(trusted)) == ("coding", ["no-deploy", "notes"])
    assert trusted.epoch != policy.epoch
    project(place, text + "\n# changed\n")
    assert rule_ids(found(place, trusted=(text,))) == ["no-deploy"]


def test_a_project_that_is_strict_makes_all_strict(place: Path) -> None:
    """To tighten needs nobody's trust, whatever was chosen."""
    project(place, 'extends = "strict"\n')
    assert found(place).name == "strict"
    assert found(place, "coding").name == "strict"


def test_ceilings_of_all_files_are_in_force_the_lower_of_each(place: Path) -> None:
    """A ceiling that another file could lift would be none."""
    user(place, '[ceilings]\nmax_cost = "medium"\nmode = "build"\n')
    project(place, '[ceilings]\nmax_cost = "low"\nmode = "plan"\ntier = 1\n')
    policy = found(place)
    assert (policy.max_cost, policy.mode, policy.max_tier) == (CostTier.LOW, Mode.PLAN, 1)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[[rule]]\nid = "x"\noutcome = "alow"\n', ":3:11: "),
        ("[[rule]\n", ":1:"),
        (DENY.replace('match = ["deploy now"]', 'match = ["echo no"]'), ":8:10: "),
    ],
)
@pytest.mark.parametrize("write", [user, project])
def test_a_file_that_does_not_hold_stops_everything(
    place: Path, text: str, where: str, write: Any
) -> None:
    """Fewer rules than somebody wrote is worse than none that runs."""
    write(place, text)
    with pytest.raises(ValueError, match=r"policy\.toml") as raised:
        found(place)
    assert where in str(raised.value)
    assert "^" in str(raised.value)


def test_what_is_no_readable_file_stops_everything_as_well(place: Path) -> None:
    """A link could be turned after it was trusted, and a FIFO would hang whoever reads it."""
    file = place / "ws" / ".toolcell" / "policy.toml"
    elsewhere = place / "elsewhere.toml"
    elsewhere.write_text(DENY)
    file.symlink_to(elsewhere)
    with pytest.raises(ValueError, match="cannot be read"):
        found(place)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="no regular file"):
        found(place)
    file.unlink()
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="not UTF-8"):
        found(place)
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="larger than"):
        found(place)
    file.write_text(DENY)
    assert rule_ids(found(place)) == ["no-deploy"], "the control"
    assert _policies.PROJECT_FILE == ".toolcell/policy.toml"
