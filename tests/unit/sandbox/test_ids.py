"""The id maps of a jail's namespace and of its mounts, as text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcell_sandbox._child import ids


def parsed(text: str) -> list[tuple[int, int, int]]:
    """The lines of a uid_map (user_namespaces(7)): inside, outside, count."""
    assert text.endswith("\n")
    rows = [tuple(map(int, line.split())) for line in text.splitlines()]
    return [(inside, outside, count) for inside, outside, count in rows]


def assert_one_to_one(rows: list[tuple[int, int, int]]) -> None:
    """No id twice on either side: the kernel refuses such a map, and two users would be one."""
    for side in (0, 1):
        taken = [row[side] + place for row in rows for place in range(row[2])]
        assert len(taken) == len(set(taken))


def test_an_unprivileged_jail_has_one_id_and_it_is_not_root() -> None:
    """tar and npm chown as soon as they think that they are root."""
    jail = ids.Ids(None, 501, 20)
    assert not jail.is_ranged
    assert jail.namespace_map(501) == "1000 501 1\n"
    assert jail.namespace_map(20) == "1000 20 1\n"


def test_a_root_supervisors_jail_never_maps_the_hosts_root() -> None:
    """A worker whose host id is 0 owns the machine the moment one wall falls."""
    jail = ids.Ids(60_000, 0, 0)
    assert jail.is_ranged
    rows = parsed(jail.namespace_map(0))
    assert_one_to_one(rows)
    outside = {row[1] + place for row in rows for place in range(row[2])}
    assert outside == set(range(60_000, 60_000 + ids.RANGE))
    inside = {row[0]: row[1] for row in rows}
    assert inside[ids.INIT_ID] == 60_000
    assert inside[ids.WORKER_ID] == 60_001
    assert inside[ids.OWNER_IDS.start] == 60_002


def test_the_workspaces_owner_is_the_worker_and_others_are_apart() -> None:
    """What the worker writes belongs to the owner; what is another's does not become his."""
    rows = parsed(ids.owners_map(60_000, 501, {501, 0, 7}))
    assert rows == [(501, 60_001, 1), (0, 60_002, 1), (7, 60_003, 1)]
    assert ids.owners_map(60_000, 501, set()) == "501 60001 1\n"


def test_more_owners_than_ids_stay_within_the_range() -> None:
    """One past the range is an id of somebody else on the host."""
    rows = parsed(ids.owners_map(60_000, 3, set(range(100))))
    assert_one_to_one(rows)
    assert len(rows) == 1 + len(ids.OWNER_IDS)
    assert max(outside for _, outside, _ in rows) == 60_000 + ids.RANGE - 1


@pytest.mark.parametrize("ranged", [True, False])
def test_who_maps_only_its_own_group_gives_up_setgroups_before(
    monkeypatch: pytest.MonkeyPatch, ranged: bool
) -> None:
    """The kernel takes its gid_map only then: a jail that drops groups could else gain files."""
    written: list[tuple[str, str]] = []
    monkeypatch.setattr(ids, "_write", lambda path, text: written.append((path, text)))
    ids.write_maps(7, "u", "g", ranged=ranged)
    maps = [("/proc/7/uid_map", "u"), ("/proc/7/gid_map", "g")]
    assert written == maps if ranged else [("/proc/7/setgroups", "deny"), *maps]


def test_a_mapping_namespace_is_made_once_for_the_same_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each costs a process; mixed up, one workspace's owner would write as another's."""
    made: list[tuple[str, str]] = []

    def fake(uid_map: str, gid_map: str) -> int:
        made.append((uid_map, gid_map))
        return len(made)

    monkeypatch.setattr(ids, "_mapping_namespaces", {})
    monkeypatch.setattr(ids, "_new_namespace", fake)
    assert [ids.mapping_namespace(*pair) for pair in ("ab", "ab", "ba", "ab")] == [1, 1, 2, 1]
    assert made == [("a", "b"), ("b", "a")]


def test_the_mapping_namespaces_are_bounded_and_the_least_recently_used_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each jail's ids are others: a zygote that keeps all runs out of descriptors."""
    opened = iter([os.open(os.devnull, os.O_RDONLY) for _ in range(4)])
    monkeypatch.setattr(ids, "_mapping_namespaces", {})
    monkeypatch.setattr(ids, "_MAPPINGS_MAX", 2)
    monkeypatch.setattr(ids, "_new_namespace", lambda *_: next(opened))
    a, b = ids.mapping_namespace("a", "a"), ids.mapping_namespace("b", "b")
    assert ids.mapping_namespace("a", "a") == a
    c = ids.mapping_namespace("c", "c")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(b)
    assert [ids.mapping_namespace(name, name) for name in "ac"] == [a, c]
    assert ids.mapping_namespace("b", "b") not in (a, b, c)
    for kept in ids._mapping_namespaces.values():
        os.close(kept)
    assert len(ids._mapping_namespaces) == 2


def test_owners_are_those_of_the_folder_and_what_lies_in_it(tmp_path: Path) -> None:
    """A file of another owner that is not mapped cannot be read by the worker."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to("nowhere")
    own = tmp_path.stat()
    for path in (tmp_path, tmp_path / "file"):
        fd = os.open(path, os.O_PATH)
        try:
            assert ids.owners_of(fd) == ({own.st_uid}, {own.st_gid})
        finally:
            os.close(fd)
