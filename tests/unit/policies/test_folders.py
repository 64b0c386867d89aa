"""Folders granted besides the workspace: who may go where, and what lies right beside."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_policies import (
    HostFolders,
    PathVerdict,
    Protection,
    Role,
    check_path,
    default_sensitive_list,
    parse_sensitive_list,
)
from toolcell_policies._patterns import compile_patterns
from toolcell_policies._text import components

from .test_paths_filesystem import ENTRIES, LIST, PATHS, Fake, kernel

SHARED = HostFolders(read=("/srv/share", "/srv/out/docs"), write=("/srv/out", "/ws/out"))
LINKS = {
    "/srv/share/in": "sub/x",
    "/srv/share/ws": "/ws/a",
    "/srv/share/out": "/srv/out/a",
    "/srv/share/secret": "../share-secret",
    "/srv/share/etc": "/etc",
    "/srv/share/loop": "loop",
    "/ws/share": "/srv/share",
    "/ws/link_out": "/srv/out",
    "/ws/through": "/srv/share/secret",
    "/alias": "/srv/share",
}


def judged(text: str, role: Role, folders: HostFolders = SHARED) -> PathVerdict:
    return check_path(text, role, "/ws", ("/home/me",), LIST, Fake(LINKS), folders=folders)


def word(verdict: PathVerdict) -> str:
    if verdict.denied:
        return "denied"
    return verdict.folder or "workspace"


@pytest.mark.parametrize(
    ("text", "read", "write"),
    [
        # The folder itself, what is in it, and what is not there yet.
        ("/srv/share", "/srv/share", "denied"),
        ("/srv/share/", "/srv/share", "denied"),
        ("//srv//share/./a", "/srv/share", "denied"),
        ("/srv/share/sub/new", "/srv/share", "denied"),
        ("/srv/out/a", "/srv/out", "/srv/out"),
        ("/srv/out/docs/a", "/srv/out/docs", "/srv/out"),
        ("a", "workspace", "workspace"),
        ("out/a", "/ws/out", "/ws/out"),
        ("/ws/out", "/ws/out", "/ws/out"),
        ("../srv/out/a", "/srv/out", "/srv/out"),
        # case 24: what lies beside, above, or out of it again.
        ("/srv/share-secret", "denied", "denied"),
        ("/srv/share-secret/a", "denied", "denied"),
        ("/srv/shar", "denied", "denied"),
        ("/srv/SHARE/a", "denied", "denied"),
        ("/srv/output/a", "denied", "denied"),
        ("/ws/outer/a", "workspace", "workspace"),
        ("/srv", "denied", "denied"),
        ("/srv/share/..", "denied", "denied"),
        ("/srv/share/../share-secret/a", "denied", "denied"),
        ("/srv/share/../out/a", "/srv/out", "/srv/out"),
        ("/srv/out/../share/a", "/srv/share", "denied"),
        # Links, each way.
        ("/srv/share/in", "/srv/share", "denied"),
        ("/srv/share/ws", "workspace", "denied"),
        ("/srv/share/out", "/srv/out", "denied"),
        ("/srv/share/secret/a", "denied", "denied"),
        ("/srv/share/in/../../secret", "denied", "denied"),
        ("/srv/share/etc/passwd", "denied", "denied"),
        ("/srv/share/loop", "denied", "denied"),
        ("share/a", "/srv/share", "denied"),
        ("link_out/a", "/srv/out", "/srv/out"),
        ("through/a", "denied", "denied"),
        ("/alias/a", "denied", "denied"),
        # Protected, wherever it lies.
        ("/srv/share/.env", "denied", "denied"),
        ("/srv/out/.ENV", "denied", "denied"),
        ("/srv/out/.env/../a", "denied", "denied"),
    ],
)
def test_a_path_may_lie_in_a_granted_folder_and_nowhere_beside(
    text: str, read: str, write: str
) -> None:
    """A grant for `/srv/share` that opens `/srv/share-secret` gives away what nobody named."""
    assert (word(judged(text, "read")), word(judged(text, "write"))) == (read, write)


@pytest.mark.parametrize("role", ["read", "write"])
@pytest.mark.parametrize("text", ["/srv/share/a", "/srv/out/a", "../srv/share", "share/a"])
def test_without_a_grant_nothing_outside_is_a_place(text: str, role: Role) -> None:
    """The default has to be none."""
    assert judged(text, role, HostFolders()).denied


def test_a_denial_says_that_the_folder_is_for_reading_only() -> None:
    """ "Outside" would send a model looking for another name of the same folder."""
    (reason,) = judged("/srv/share/a", "write").reasons
    assert (reason.code, "for reading only" in reason.text) == ("path_outside_workspace", True)
    assert "by a link" in judged("through/a", "read").reasons[0].text


def test_a_write_to_a_w_row_in_a_granted_folder_asks() -> None:
    """A hook planted in a granted repository runs on the host as well."""
    verdict = judged("/srv/out/.git/hooks/pre-commit", "write")
    assert (verdict.denied, verdict.level_floor) == (False, 3)


def test_nothing_is_granted_where_the_workspace_itself_cannot_be_resolved() -> None:
    """Half of an answer is none: the call could not run there either."""
    fs = Fake(errors={"/ws": PermissionError(13, "no")})
    verdict = check_path("/srv/share/a", "read", "/ws", (), LIST, fs, folders=SHARED)
    assert verdict.denied


def test_a_folder_swapped_for_a_link_since_is_not_followed(tmp_path: Path) -> None:
    """The name was granted for what it was; where it leads now, nobody granted."""
    top = tmp_path.resolve()
    for name in ("ws", "share", "secret"):
        (top / name).mkdir()
    folders = HostFolders(read=(f"{top}/share",))

    def verdict() -> PathVerdict:
        text = f"{top}/share/a"
        return check_path(text, "read", f"{top}/ws", (), LIST, folders=folders)

    assert not verdict().denied
    (top / "share").rmdir()
    os.symlink(top / "secret", top / "share")
    assert verdict().denied


@settings(max_examples=300, deadline=None)
@given(
    text=PATHS,
    links=st.dictionaries(ENTRIES, PATHS, max_size=8),
    read=st.lists(ENTRIES, max_size=2),
    write=st.lists(ENTRIES, max_size=2),
)
def test_what_is_let_through_ends_in_a_folder_of_its_role(
    text: str, links: dict[str, str], read: list[str], write: list[str]
) -> None:
    """Whatever the links and the grants: an end that is in none of them is an escape."""
    folders = HostFolders(read=tuple(read), write=tuple(write))
    for role in ("read", "write"):
        verdict = check_path(text, role, "/ws", ("/a",), LIST, Fake(links), folders=folders)
        if verdict.inside:
            root = kernel("/ws", links)
            end = kernel(os.path.join("/ws", text), links)
            assert root is not None
            assert end == verdict.resolved
            tops = (root.rstrip("/"), *folders.open_to(role))
            assert any(f"{end}/".startswith(f"{top}/") for top in tops)


# -- what has its place below a folder -----------------------------------------------------


@pytest.mark.parametrize(
    ("path", "role", "way"),
    [
        ("/etc", "read", ("ssh",)),
        ("/", "read", ("etc", "ssh")),
        ("/ETC", "read", ("ssh",)),
        ("/home/me/.config", "read", ("gh",)),
        ("/home/me/.local", "write", ("bin",)),
        ("/var/spool", "write", ("cron",)),
    ],
)
def test_what_the_list_protects_below_a_folder_is_named_with_the_way_there(
    path: str, role: Role, way: tuple[str, ...]
) -> None:
    """A folder that holds a secret is not harmless for having another name."""
    found = LIST.leads_below(path, role=role, homes=("/home/me",))
    assert way in [each for _, each in found]


@pytest.mark.parametrize("path", ["/srv/share", "/etc/ssh/keys", "/home/me/.ssh", "/etcetera"])
def test_nothing_leads_on_from_a_folder_beside_or_below_what_is_protected(path: str) -> None:
    """Rows that hold at any depth would refuse every folder there is."""
    found = LIST.leads_below(path, role="read", homes=("/home/me",))
    assert [rule.id for rule, _ in found if rule.forbids("read")] == []


def test_a_way_ends_where_a_pattern_is_an_expression() -> None:
    """What the next name may be is for who looks: here it can be anything."""
    ways = dict.fromkeys(
        way
        for rule, way in default_sensitive_list().leads_below("/run/user", role="read", homes=())
    )
    assert () in ways


@pytest.mark.parametrize(
    ("folder", "way"),
    [
        ("a", ("b",)),
        ("a/b", ()),
        ("a/b/x/y", ()),
        ("x", None),
        ("", ("a", "b")),
    ],
)
def test_any_number_of_names_may_hold_what_is_protected(
    folder: str, way: tuple[str, ...] | None
) -> None:
    """A row for `/a/b/**/key` speaks of every folder below `/a/b`."""
    (pattern,) = compile_patterns("/a/b/**/key")
    assert pattern.leads_below(components(folder), 0) == way


def test_a_literal_path_leads_on_from_every_folder_above_it() -> None:
    """Our own state in a granted folder is as open as if it had been named."""
    more = LIST.with_paths(["/srv/x/state"], id="s", category="c", kind=Protection.SEALED)
    found = {rule.id: way for rule, way in more.leads_below("/srv", role="write", homes=())}
    assert found["s"] == ("x", "state")
    reads = more.leads_below("/srv", role="read", homes=())
    assert "s" not in {rule.id for rule, _ in reads}


@pytest.mark.parametrize(
    ("path", "homes", "decide"),
    [
        ("/srv/ws", ("/home/me",), True),
        ("/home/me/ws", ("/home/me",), True),
        ("/home/me/.config", ("/home/me",), False),
        ("/home", ("/home/me",), False),
        ("/home/me", ("/home/me",), False),
        ("/etc", (), False),
        ("/", (), False),
    ],
)
def test_single_names_decide_where_nothing_has_a_place_of_its_own(
    path: str, homes: tuple[str, ...], decide: bool
) -> None:
    """Who looks at names alone where a whole path counts, overlooks what it names."""
    assert LIST.names_decide_below(path, role="read", homes=homes) is decide


def test_single_names_do_not_decide_where_a_row_needs_two() -> None:
    """`deploy/keys` is neither a `deploy` nor a `keys`."""
    text = '[[rule]]\nid = "two"\ncategory = "c"\nkinds = ["RW"]\npatterns = ["deploy/keys"]\n'
    assert not parse_sensitive_list(text).names_decide_below("/srv", role="read", homes=())
