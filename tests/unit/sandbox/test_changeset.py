"""A change set as plain data: it cannot point out of a workspace, and reads back what it wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from toolcell_sandbox.changeset import Change, ChangeSet, Entry, Problem, path_json


def entry(**given: Any) -> Entry:
    plain: dict[str, Any] = {
        "kind": "file",
        "mode": 0o644,
        "uid": 1,
        "gid": 2,
        "size_bytes": 3,
        "mtime_ns": 4,
        "ctime_ns": 5,
        "links": 1,
        "inode": (6, 7),
    }
    return Entry(**(plain | given))


def change(path: str, before: Entry | None = None, after: Entry | None = None) -> Change:
    return Change(path=path, before=before, after=entry() if before is after is None else after)


WHOLE = ChangeSet(
    workspace="/ws",
    changes=(
        replace(change("a", entry(), entry(size_bytes=9)), attributes=("user.x", "user.y")),
        change("d\udcff\n", before=entry(kind="folder")),
        replace(change("l", after=entry(kind="symlink", target="\udcfe")), masked=True),
        replace(change("z"), linked_to="a", content_changed=False),
    ),
    conflicts=("a", "d\udcff\n"),
    problems=(Problem(path="s", code="socket", text="a socket"),),
)


@pytest.mark.parametrize(
    "path", ["", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a/.", "a//b"]
)
def test_a_path_that_leads_out_makes_no_change(path: str) -> None:
    """Otherwise whoever commits it would have to be the one to notice."""
    with pytest.raises(ValueError, match="no path inside a workspace"):
        change(path)


@pytest.mark.parametrize("path", ["a/", "a\0b", "/a"])
def test_a_path_that_names_something_else_than_it_says_makes_no_change(path: str) -> None:
    """Otherwise two spellings of one name would pass as two names."""
    with pytest.raises(ValueError, match="no path inside a workspace"):
        change(path)


@pytest.mark.parametrize("path", ["...", "..a", "a..", "a/..b/.c", " ", "a\nb", "\udcff", "~", "-"])
def test_odd_names_are_names(path: str) -> None:
    """Otherwise a file that only looks strange could not be kept: the near miss."""
    assert change(path).path == path


def test_a_change_of_nothing_to_nothing_is_none() -> None:
    """Otherwise there would be a fourth sort that nobody handles."""
    with pytest.raises(ValueError, match="nothing was there"):
        Change(path="a", before=None, after=None)


def test_the_sort_follows_from_the_sides() -> None:
    """Otherwise a deletion could be told as a change."""
    sides = (change("a", after=entry()), change("b", before=entry()), change("c", entry(), entry()))
    assert [one.sort for one in sides] == ["created", "deleted", "modified"]
    found = ChangeSet(workspace="/ws", changes=sides)
    assert [one.path for one in found.of_sort("deleted")] == ["b"]


def test_a_set_is_empty_only_without_changes_and_problems() -> None:
    """Otherwise a call whose only trace cannot be kept would seem to have done nothing."""
    assert not ChangeSet(workspace="/ws")
    assert not ChangeSet(workspace="/ws", conflicts=("a",))
    assert ChangeSet(workspace="/ws", changes=(change("a"),))
    assert ChangeSet(workspace="/ws", problems=(Problem(path="a", code="device", text="d"),))


def test_leaving_a_name_out_takes_what_it_would_have_held_and_no_near_miss() -> None:
    """Otherwise what lies in a refused folder would be kept, or its neighbour dropped."""
    paths = ("a", "a/x", "a/x/y", "a.b", "ab", "b/a", "c")
    found = ChangeSet(workspace="/ws", changes=tuple(change(path) for path in paths))
    kept = found.without(frozenset({"a", "c"}))
    assert [one.path for one in kept.changes] == ["a.b", "ab", "b/a"]
    assert found.without(frozenset()) == found


def test_json_brings_everything_back() -> None:
    """Otherwise a parked set would be committed as something else than was judged."""
    text = json.dumps(WHOLE.to_json())
    assert ChangeSet.from_json(json.loads(text)) == WHOLE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("problems"),
        lambda data: data["changes"][0].pop("path"),
        lambda data: data["changes"][0].update(path="../x"),
        lambda data: data["changes"][0].update(more=1),
        lambda data: data["changes"][0].update(before=None, after=None),
        lambda data: data["changes"][0]["after"].pop("mode"),
        lambda data: data["problems"][0].update(more=1),
        lambda data: data.update(changes=[1]),
    ],
)
def test_json_that_was_damaged_is_refused(spoil: Any) -> None:
    """Otherwise a damaged file would be taken for a smaller set."""
    data = json.loads(json.dumps(WHOLE.to_json()))
    spoil(data)
    with pytest.raises((ValueError, TypeError, KeyError)):
        ChangeSet.from_json(data)


def test_the_digest_names_exactly_these_changes() -> None:
    """Otherwise an approval for one set would do for another."""
    told = WHOLE.digest({"a": "00"})
    assert told == WHOLE.digest({"a": "00"})
    first, *rest = WHOLE.changes
    assert first.before is not None
    others = [
        WHOLE.digest({"a": "01"}),
        WHOLE.digest({}),
        replace(WHOLE, workspace="/ws2").digest({"a": "00"}),
        replace(WHOLE, changes=WHOLE.changes[1:]).digest({"a": "00"}),
        replace(WHOLE, conflicts=()).digest({"a": "00"}),
        replace(WHOLE, problems=()).digest({"a": "00"}),
        *(
            replace(WHOLE, changes=(replace(first, **one), *rest)).digest({"a": "00"})
            for one in (
                {"path": "A"},
                {"masked": True},
                {"before": replace(first.before, mtime_ns=0)},
                {"after": entry(size_bytes=9, mode=0o755)},
                {"linked_to": "b"},
                {"attributes": ()},
            )
        ),
    ]
    assert len({told, *others}) == len(others) + 1


def test_the_digest_leaves_out_what_a_look_or_a_copy_changes() -> None:
    """Otherwise a set that was parked, and read again, would be another one."""
    first, *rest = WHOLE.changes
    moved = replace(first, after=entry(size_bytes=9, ctime_ns=99, inode=(1, 1)))
    assert replace(WHOLE, changes=(moved, *rest)).digest({}) == WHOLE.digest({})


def test_a_path_of_any_bytes_can_be_told_in_json() -> None:
    """Otherwise one odd name would make the record of a call unwritable."""
    assert path_json("a/ü\n") == {"path": "a/ü\n"}
    assert path_json("a/\udcff") == {"path_base64": "YS//"}
