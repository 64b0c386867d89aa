"""What is remembered is found again exactly where it holds, and nowhere else."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell.grants import DENIALS_MAX, TEXT_CHARS_MAX, Grant, Grants, SessionDenials

KEY, OTHER = "a" * 64, "b" * 64
NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def grants(tmp_path: Path) -> Iterator[Grants]:
    with Grants.open(tmp_path / "state") as store:
        yield store


def add(grants: Grants, key: str = KEY, **more: Any) -> Grant:
    told: dict[str, Any] = {
        "scope": "project",
        "session": "s1",
        "mode": "build",
        "tool_name": "shell",
        "shape": "ls -l\nin /ws",
        "workspace": "/ws",
        "agent_id": None,
        "now": NOW,
    }
    return grants.add(key, **(told | more))


def found(grants: Grants, key: str = KEY, **more: Any) -> bool:
    told: dict[str, Any] = {"mode": "build", "session": "s1", "now": NOW}
    return grants.lookup(key, **(told | more)) is not None


# -- grants -------------------------------------------------------------------------------


def test_a_grant_is_found_as_it_was_given(grants: Grants) -> None:
    """Otherwise `grants list` shows a person something else than they agreed to."""
    given = add(grants, agent_id="a1", shape="rm '\x1b[2J' \udcff\x00", workspace="/ws/\udc80")
    assert grants.lookup(KEY, mode="build", session="any", now=NOW) == given
    assert grants.list(NOW) == (given,)
    assert (given.session, given.created, given.expires) == (None, NOW, NOW + 30 * DAY)
    assert len(given.id) == 8


def test_nothing_is_found_that_nobody_agreed_to(grants: Grants) -> None:
    """The near miss of every grant: an empty store, another key, and a key that is none."""
    assert not found(grants)
    add(grants)
    assert found(grants)
    for key in (OTHER, "", KEY.upper(), KEY + "a", "%", "\udcff"):
        assert not found(grants, key)


def test_a_grant_is_found_by_another_process_and_after_a_restart(tmp_path: Path) -> None:
    """A project's grant is for tomorrow too."""
    with Grants.open(tmp_path) as first:
        given = add(first)
        with Grants.open(tmp_path) as second:
            assert second.lookup(KEY, mode="build", session="s", now=NOW) == given
    with Grants.open(tmp_path) as later:
        assert later.lookup(KEY, mode="build", session="s", now=NOW) == given


MODES = ("explore", "plan", "build")


@pytest.mark.parametrize("given", MODES)
@pytest.mark.parametrize("asked", [*MODES, "BUILD", "", "yolo"])
def test_a_grant_holds_in_its_mode_and_in_stricter_ones(
    grants: Grants, given: str, asked: str
) -> None:
    """Otherwise a yes while planning would be a yes to building."""
    add(grants, mode=given)
    holds = asked in MODES and MODES.index(asked) <= MODES.index(given)
    assert found(grants, mode=asked) == holds


def test_a_stricter_grant_does_not_narrow_a_wider_one(grants: Grants) -> None:
    """Otherwise the order of two answers would decide."""
    add(grants, mode="build")
    add(grants, mode="explore", session="s2")
    assert found(grants, mode="build")


def test_a_session_s_grant_holds_in_that_session_only(grants: Grants) -> None:
    """Otherwise "for this session" would mean for ever and for everybody."""
    add(grants, scope="session")
    assert found(grants)
    assert not found(grants, session="s2")
    assert not found(grants, session="")
    add(grants, scope="project")
    assert found(grants, session="s2")


def test_a_grant_ends_when_it_said(grants: Grants) -> None:
    """Otherwise an agreement of last year would still hold."""
    add(grants)
    assert found(grants, now=NOW + 30 * DAY - 1)
    assert not found(grants, now=NOW + 30 * DAY)
    add(grants, OTHER, days=1)
    assert not found(grants, OTHER, now=NOW + DAY)
    assert [one.key for one in grants.list(NOW + DAY)] == [KEY]


def test_a_session_that_never_ended_ends_after_a_day(grants: Grants) -> None:
    """A killed process ends no session; another may have the same id next month."""
    add(grants, scope="session")
    assert found(grants, now=NOW + DAY - 1)
    assert not found(grants, now=NOW + DAY)


def test_a_grant_from_the_future_is_not_believed(grants: Grants) -> None:
    """Otherwise a clock that is set back would prolong every grant."""
    add(grants)
    assert found(grants, now=NOW - 30)
    assert not found(grants, now=NOW - 3600)
    assert not found(grants, now=math.nan)


def test_the_same_agreement_again_is_renewed_and_keeps_its_id(grants: Grants) -> None:
    """Otherwise the list would grow by one for each answer, and revoking one would do nothing."""
    first = add(grants, shape="old")
    again = add(grants, shape="new", now=NOW + DAY)
    assert again.id == first.id
    assert grants.list(NOW + DAY) == (again,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": "always"},
        {"mode": "yolo"},
        {"days": 0},
        {"days": 31},
        {"days": math.nan},
        {"key": ""},
        {"key": "\udcff"},
        {"shape": ""},
        {"shape": "x" * (TEXT_CHARS_MAX + 1)},
        {"scope": "session", "session": ""},
    ],
    ids=lambda wrong: f"{[*wrong]}",
)
def test_what_is_no_grant_is_refused_whole(grants: Grants, wrong: dict[str, Any]) -> None:
    """Cut or bent to fit, it would be another agreement than the one that was shown."""
    with pytest.raises(ValueError, match=r"grant|scope|remembered"):
        add(grants, **wrong)
    assert grants.list(NOW) == ()


def test_what_is_revoked_is_asked_again_everywhere_at_once(grants: Grants, tmp_path: Path) -> None:
    """A person who takes a yes back means the executor that runs now."""
    given = add(grants)
    with Grants.open(tmp_path / "state") as by_hand:
        assert by_hand.revoke(given.id) == 1
        assert by_hand.revoke(given.id) == 0
    assert not found(grants)


@pytest.mark.parametrize(
    ("what", "left"),
    [("all", []), ("/ws", [OTHER]), ("/ws-evil", [KEY]), ("/", [KEY, OTHER]), ("*", [KEY, OTHER])],
)
def test_revoking_takes_what_it_names(grants: Grants, what: str, left: list[str]) -> None:
    """Too little leaves a yes that was taken back; too much asks for what was agreed to."""
    add(grants, KEY, workspace="/ws")
    add(grants, OTHER, workspace="/ws-evil", now=NOW + 1)
    assert grants.revoke(what) == 2 - len(left)
    assert [one.key for one in grants.list(NOW)] == left


def test_a_session_that_ends_takes_its_grants_and_no_others(grants: Grants) -> None:
    """Otherwise the next session with that id would inherit them."""
    add(grants, scope="session", session="s1")
    add(grants, scope="session", session="s2")
    add(grants, OTHER, session="s1")
    assert grants.end_session("s1") == 1
    assert not found(grants)
    assert found(grants, session="s2")
    assert found(grants, OTHER)


def test_a_sweep_removes_what_nobody_finds_any_more(grants: Grants) -> None:
    """Otherwise the store grows for ever; too eager, and a used plan could be used again."""
    add(grants, days=1)
    add(grants, OTHER, days=2)
    assert grants.consume("used", NOW)
    assert grants.sweep(NOW + DAY - 1) == 0
    assert not grants.consume("used", NOW)
    assert grants.sweep(NOW + DAY) == 2
    assert [one.key for one in grants.list(NOW)] == [OTHER]


# -- plans --------------------------------------------------------------------------------


def test_a_plan_is_used_once_also_after_a_restart(tmp_path: Path) -> None:
    """Otherwise one yes would run the same plan as often as somebody sends it."""
    with Grants.open(tmp_path) as grants:
        assert grants.consume("n1", NOW)
        assert not grants.consume("n1", NOW)
        assert grants.consume("n2", NOW)
    with Grants.open(tmp_path) as grants:
        assert not grants.consume("n1", NOW + 1)


@pytest.mark.parametrize("nonce", ["", "x" * 257, "\udcff", "ü"])
def test_what_is_no_nonce_uses_up_nothing(grants: Grants, nonce: str) -> None:
    """Otherwise two plans without one would be the same plan."""
    with pytest.raises(ValueError, match="nonce"):
        grants.consume(nonce, NOW)


def test_the_key_that_seals_plans_is_kept_and_belongs_to_its_store(tmp_path: Path) -> None:
    """Otherwise plans would not survive a restart, or would be good in a store that forgot."""
    with Grants.open(tmp_path / "one") as one, Grants.open(tmp_path / "two") as two:
        key = one.seal_key()
        assert (len(key), one.seal_key()) == (32, key)
        assert two.seal_key() != key
    with Grants.open(tmp_path / "one") as again:
        assert again.seal_key() == key


# -- policy files -------------------------------------------------------------------------


def test_a_policy_file_is_trusted_by_its_content(grants: Grants) -> None:
    """A repository that changes its file has not been looked at again."""
    given = grants.trust(KEY, "/ws/policy.toml", NOW)
    assert grants.is_trusted(KEY)
    assert not grants.is_trusted(OTHER)
    assert not grants.is_trusted("/ws/policy.toml")
    assert grants.trusted() == (given,)
    assert grants.trusted_digests() == {KEY}


@pytest.mark.parametrize("by", [KEY, "/ws/policy.toml"])
def test_trust_is_taken_back_by_digest_or_by_path(grants: Grants, by: str) -> None:
    """Whoever changes their mind may have only one of the two."""
    grants.trust(KEY, "/ws/policy.toml", NOW)
    grants.trust(OTHER, "/ws/policy.toml2", NOW)
    assert grants.distrust(by) == 1
    assert grants.distrust(by) == 0
    assert grants.trusted_digests() == {OTHER}


@pytest.mark.parametrize(
    ("digest", "path"), [("", "/p"), ("A" * 64, "/p"), (KEY[1:], "/p"), (KEY, "")]
)
def test_only_a_digest_can_be_trusted(grants: Grants, digest: str, path: str) -> None:
    """Otherwise an empty name would be trusted, and every file that has none with it."""
    with pytest.raises(ValueError, match=r"digest|path"):
        grants.trust(digest, path, NOW)
    assert grants.trusted() == ()


# -- the rest -----------------------------------------------------------------------------


def test_a_no_is_remembered_with_its_reason_and_only_for_what_it_was(grants: Grants) -> None:
    """Otherwise a person is asked the same until they are tired."""
    denials = SessionDenials()
    denials.add(KEY, "not on a Friday")
    denials.add(OTHER)
    assert denials.denied(KEY) == "not on a Friday"
    assert denials.denied(OTHER) == ""
    assert denials.denied("c" * 64) is None


def test_the_oldest_no_of_very_many_is_asked_again() -> None:
    """Otherwise a session without end would fill our memory."""
    denials = SessionDenials()
    for number in range(DENIALS_MAX + 1):
        denials.add(str(number))
    assert denials.denied("0") is None
    assert denials.denied("1") == ""


def test_threads_share_a_store(grants: Grants) -> None:
    """An executor may write from a thread while its loop looks something up."""
    won: list[int] = []

    def work(number: int) -> None:
        add(grants, f"{number:064x}")
        won.extend(nonce for nonce in range(5) if grants.consume(str(nonce), NOW))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [0, 1, 2, 3, 4]
    assert len(grants.list(NOW)) == 4


def test_a_closed_store_remembers_nothing(tmp_path: Path) -> None:
    """After its end an executor must not say yes by an old connection."""
    grants = Grants.open(tmp_path)
    add(grants)
    grants.close()
    grants.close()
    assert not found(grants)
    assert grants.end_session("s1") == 0
    with pytest.raises(OSError, match="closed"):
        grants.consume("n", NOW)


def test_the_store_is_an_ordinary_database_of_which_nothing_else_is_open(tmp_path: Path) -> None:
    """A mode with shared memory could crash us by a file that somebody cuts short."""
    with Grants.open(tmp_path) as grants:
        add(grants)
        assert {path.name for path in tmp_path.iterdir()} <= {
            "grants.sqlite",
            "grants.sqlite-journal",
        }
        other = sqlite3.connect(tmp_path / "grants.sqlite")
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        other.close()
