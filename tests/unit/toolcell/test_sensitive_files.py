"""The walk that looks for what no tool may read: what it sees, leaves out, and refuses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcell import _sensitive_files as module
from toolcell._protected import Protected
from toolcell._sensitive_files import Budget, Eye, Found, NotTold, walk
from toolcell_policies import default_sensitive_list, parse_sensitive_list


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "ws"
    folder.mkdir()
    return folder


def make(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")


def looked(top: Path) -> Found:
    protected = Protected.here(str(top.parent / "state"), str(top))
    return walk(Eye(str(top), protected), Budget())


def test_a_clean_folder_is_clean(top: Path) -> None:
    """A look that finds what is not there refuses every call."""
    make(top, "a.py", "src/b.py", ".env.example", "environment", "certs/a.pem", ".gitignore")
    assert looked(top) == Found()


@pytest.mark.parametrize(
    "name", [".env", ".ENV", "sub/.env.local", "a/b/c/d/tls.key", "id_rsa", "secrets.json/x"]
)
def test_a_protected_name_is_found_at_any_depth(top: Path, name: str) -> None:
    """The one that is missed is the one that leaks."""
    make(top, "a.py", name)
    assert looked(top) == Found(count=1, first=name.removesuffix("/x"))


def test_all_are_counted_and_the_first_in_their_order_is_named(top: Path) -> None:
    """The same folder has to give the same words each time."""
    make(top, "z/.env", "b/.env", "b/a.key", ".env.d/one", ".env.d/two")
    assert looked(top) == Found(count=4, first=".env.d")


def test_no_link_is_followed(top: Path) -> None:
    """What a link leads to is not in the folder, and is not there in a jail either."""
    make(top.parent, "out/.env")
    (top / "link").symlink_to(top.parent / "out")
    (top / "round").symlink_to(top)
    assert looked(top) == Found()
    (top / ".env").symlink_to(top / "nowhere")
    assert looked(top) == Found(count=1, first=".env")


def test_what_tools_made_is_left_out_and_what_only_looks_like_it_is_not(top: Path) -> None:
    """A rule of thumb about names is a hiding place, unless it is a narrow one."""
    make(
        top,
        "node_modules/a/.env",
        "app/node_modules/b/x.key",
        ".git/objects/aa/id_rsa",
        "venv/pyvenv.cfg",
        "venv/lib/python3.11/site-packages/p/secrets.json",
    )
    assert looked(top) == Found()
    make(top, "site-packages/.env", "objects/.env", "venv/lib/.env", ".git/hooks/.env")
    make(top, "node_modules2/.env")
    assert looked(top).count == 5


def test_a_workspace_that_lies_under_a_row_that_yields_is_looked_at_all_the_same(
    top: Path,
) -> None:
    """Whoever put a workspace into shared memory meant it; a key in it is still a key."""
    pattern = f"{top.parent}/**"
    text = f'[[rule]]\nid = "shm"\ncategory = "c"\nkinds = ["RW"]\npatterns = ["{pattern}"]\n'
    keys = '[[rule]]\nid = "keys"\ncategory = "c"\nkinds = ["RW"]\npatterns = ["*.key"]\n'
    make(top, "a", "b/c.key")
    for yields, expected in (
        ("", Found(count=2, first="a")),
        ("yields = true\n", Found(count=1, first="b/c.key")),
    ):
        rules = parse_sensitive_list(text + yields + keys)
        protected = Protected(rules=rules, homes=(), own_homes=())
        assert walk(Eye(str(top), protected), Budget()) == expected


@pytest.mark.parametrize("home", ["{top}", "{top}/b", "/elsewhere", None])
def test_names_alone_are_trusted_only_where_they_decide(top: Path, home: str | None) -> None:
    """A short cut that sees less than the whole rule is a hole in it."""
    make(top, "b/.ssh/config", "b/x.key", "b/deep/y.key", ".netrc", "b/.netrc", "plain/.ssh/a")
    homes = () if home is None else (home.format(top=top),)
    protected = Protected(rules=default_sensitive_list(), homes=homes, own_homes=())
    found = walk(Eye(str(top), protected), Budget())

    def protected_path(path: Path) -> bool:
        rules = protected.rules.match(str(path), role="read", homes=homes)
        return any(rule.forbids("read") for rule in rules)

    paths = [path for path in top.rglob("*") if protected_path(path)]
    tops = [path for path in paths if path.parent not in paths]
    assert found.count == len(tops)
    assert found.first in {str(path.relative_to(top)) for path in tops}


def test_many_names_are_not_all_remembered(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jail that makes up names must not grow the supervisor."""
    make(top, *(f"f{number}" for number in range(30)), "z.key")
    monkeypatch.setattr(module, "ENTRIES_MAX", 40)
    eye = Eye(str(top), Protected(rules=default_sensitive_list(), homes=(), own_homes=()))
    monkeypatch.setattr(eye, "_known", {str(number): False for number in range(39)})
    assert walk(eye, Budget()) == Found(count=1, first="z.key")
    assert len(eye._known) <= 40


def test_too_many_entries_and_too_much_time_are_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bounds nothing is known, so nothing runs."""
    make(top, *(f"f{number}" for number in range(20)))
    monkeypatch.setattr(module, "ENTRIES_MAX", 20)
    assert looked(top) == Found()
    monkeypatch.setattr(module, "ENTRIES_MAX", 19)
    with pytest.raises(NotTold, match="more than 19 entries"):
        looked(top)
    monkeypatch.setattr(module, "ENTRIES_MAX", 100)
    monkeypatch.setattr(module, "CPU_S", -1.0)
    with pytest.raises(NotTold, match="too long"):
        looked(top)


def test_a_tree_that_is_too_deep_is_refused_and_leaves_no_descriptor(top: Path) -> None:
    """Each level is a descriptor: a jail that nests folders must not use up the supervisor's."""
    before = len(os.listdir("/proc/self/fd"))
    (top / "/".join(["d"] * module.DEPTH_MAX)).mkdir(parents=True)
    with pytest.raises(NotTold, match="folders deep"):
        looked(top)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_that_cannot_be_read_is_refused_unless_no_jail_can_either(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jail of the same user opens its own folder again with one chmod."""
    make(top, "shut/.env", "a")
    real = os.open

    def shut(path, flags, mode=0o777, *, dir_fd=None):
        if path == "shut":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", shut)
    with pytest.raises(NotTold, match="'shut' cannot be read"):
        looked(top)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(top).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    with pytest.raises(NotTold, match="'shut' cannot be read"):
        looked(top)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert looked(top) == Found()


def test_a_folder_that_goes_away_meanwhile_is_no_failure(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds make and remove folders all the time."""
    make(top, "gone/x", "swapped/x", "z.key")
    real = os.open

    def racing(path, flags, mode=0o777, *, dir_fd=None):
        if path in ("gone", "swapped"):
            raise OSError({"gone": 2, "swapped": 40}[path], "no")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", racing)
    assert looked(top) == Found(count=1, first="z.key")


def test_a_top_that_is_no_folder_any_more_is_refused(top: Path) -> None:
    """Nothing is known of what is not there."""
    top.rmdir()
    with pytest.raises(NotTold, match="cannot be read"):
        looked(top)


def test_names_that_are_no_text_are_looked_at(top: Path) -> None:
    """A file system holds any bytes; one odd name must not end the look."""
    os.mkdir(os.fsencode(top) + b"/\xff\xfe")
    make(top, os.fsdecode(b"\xff\xfe/.env"))
    found = looked(top)
    assert found.count == 1
    assert module.shown(found.first).isprintable()
