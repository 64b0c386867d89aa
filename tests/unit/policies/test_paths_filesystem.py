"""Path checks on a file system made up for the purpose: what no real tree can show."""

import errno
import os
import stat
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_policies import FileFacts, PathVerdict, Role, check_path, default_sensitive_list

LIST = default_sensitive_list()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    st_mode: int
    st_nlink: int = 1


FILE, FOLDER, LINK = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777


@dataclass(slots=True)
class Fake:
    """Links and errors by path; every other path is a folder. Remembers what it was asked."""

    links: dict[str, str] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def lstat(self, path: str) -> FileFacts:
        self.asked.append(path)
        if path in self.errors:
            raise self.errors[path]
        return Entry(st_mode=LINK if path in self.links else FOLDER)

    def readlink(self, path: str) -> str:
        return self.links[path]


def check(text: str, fs: Fake, role: Role = "read") -> PathVerdict:
    return check_path(text, role, "/ws", ("/home/me",), LIST, fs)


def codes(verdict: PathVerdict) -> set[str]:
    return {reason.code for reason in verdict.reasons}


@pytest.mark.parametrize(
    "number", [errno.EACCES, errno.ENAMETOOLONG, errno.EIO, errno.EPERM, errno.ESTALE, 0]
)
def test_what_the_kernel_will_not_show_is_denied(number: int) -> None:
    """A path that cannot be followed by us may be followed by somebody else."""
    fs = Fake(errors={"/ws/a": OSError(number, "no")})
    verdict = check("a/b", fs)
    assert codes(verdict) == {"path_unresolvable"}
    assert not verdict.inside


def test_the_kernels_own_loop_is_a_loop() -> None:
    """ELOOP can also come from a link that was swapped while it was read."""
    fs = Fake(errors={"/ws/a": OSError(errno.ELOOP, "loop")})
    assert codes(check("a", fs)) == {"path_link_loop"}


@pytest.mark.parametrize("target", ["x\x00y", "\ud800", "a" * 5000, "b/" * 3000])
def test_a_link_that_no_kernel_would_give_is_denied(target: str) -> None:
    """A file system in user space can answer anything."""
    assert check("a", Fake(links={"/ws/a": target})).denied


def test_a_resolved_path_longer_than_the_kernel_takes_is_denied() -> None:
    """`os.path.realpath` gave 4,253 characters with a live link still in them."""
    links = {"/ws/a": "b/" * 60 + "a"}
    grown = "/ws"
    for _ in range(40):
        grown += "/b" * 60
        links[f"{grown}/a"] = "b/" * 60 + "a"
    verdict = check("a", Fake(links=links))
    assert codes(verdict) == {"path_unresolvable"}
    assert "ENAMETOOLONG" in verdict.reasons[0].text


def test_a_path_that_grows_too_long_without_a_link_is_denied() -> None:
    """A long workspace and a long argument may each be fine, and not be together."""
    workspace = "/" + "/".join(["w" * 250] * 13)
    verdict = check_path("a" * 900, "read", workspace, (), LIST, Fake())
    assert codes(verdict) == {"path_unresolvable"}


def test_a_link_swapped_for_a_file_while_it_is_read_is_denied() -> None:
    """Between the two questions somebody may act: the answer is no, not a crash."""
    fs = Fake(links={"/ws/a": "x"})
    del fs.links["/ws/a"]

    class Racing(Fake):
        def lstat(self, path: str) -> FileFacts:
            return Entry(st_mode=LINK) if path == "/ws/a" else Entry(st_mode=FOLDER)

        def readlink(self, path: str) -> str:
            raise OSError(errno.EINVAL, "not a link")

    assert codes(check("a", Racing())) == {"path_unresolvable"}


@pytest.mark.parametrize(
    "text",
    ["/etc/passwd", "../x", "a/../../x", "~/x", "a\x00", "/proc/self/root/x", "/dev/fd/0", ""],
)
def test_nothing_is_looked_up_for_a_path_that_is_denied_as_it_stands(text: str) -> None:
    """A look-up can wake an automount, block on a dead server, or tell what exists."""
    fs = Fake()
    assert check(text, fs).denied
    assert set(fs.asked) <= {"/ws"}


@pytest.mark.parametrize(
    "target", ["/out", "../out", "/proc/self/root", "/proc/self/fd/3", "/dev/fd", "/home/me/.ssh"]
)
def test_nothing_is_looked_up_behind_a_link_that_leaves(target: str) -> None:
    """A magic link followed once by the checker is already a door opened."""
    fs = Fake(links={"/ws/a": target})
    assert check("a/b/c", fs).denied
    assert set(fs.asked) <= {"/ws", "/ws/a"}


@pytest.mark.parametrize("workspace", ["/", "/proc", "/proc/self"])
def test_a_magic_link_is_not_looked_up_even_inside_a_workspace(workspace: str) -> None:
    """A workspace of `/` is refused elsewhere; this must not be what it hangs on."""
    fs = Fake()
    verdict = check_path("/proc/self/root/etc", "read", workspace, (), LIST, fs)
    assert "path_magic_link" in codes(verdict)
    assert not verdict.inside
    assert all("root" not in path for path in fs.asked)


def test_a_file_with_more_than_one_name_asks_before_it_is_written() -> None:
    """The other name may lie anywhere, and changes with it."""

    class Linked(Fake):
        def lstat(self, path: str) -> FileFacts:
            return Entry(st_mode=FOLDER if path in ("/ws", "/ws/d") else FILE, st_nlink=2)

    verdict = check("f", Linked(), "write")
    assert (codes(verdict), verdict.level_floor, verdict.denied) == ({"path_many_links"}, 3, False)
    assert check("f", Linked(), "read").reasons == ()
    assert check("d", Linked(), "write").reasons == ()
    assert check("d/..", Linked(), "write").reasons == ()


def test_a_path_verdict_in_an_invalid_state_cannot_be_built() -> None:
    """A denial without a reason, or an outside that is allowed, must not exist."""
    plain = check("a", Fake())
    values = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    for broken in ({"denied": True}, {"level_floor": 3}, {"inside": False}):
        with pytest.raises(ValueError, match=r"reason|outside"):
            PathVerdict(**(values | broken))


def test_a_protected_path_of_the_executor_is_named_by_its_rule() -> None:
    """The interpreter that runs us may lie in the workspace: it is read, not written."""
    from toolcell_policies import Protection

    more = LIST.with_paths(["/ws/venv"], id="python", category="our own", kind=Protection.SEALED)
    verdict = check_path("venv/bin/python", "write", "/ws", (), more, Fake())
    assert codes(verdict) == {"path_sealed"}
    assert verdict.denied
    assert check_path("venv/bin/python", "read", "/ws", (), more, Fake()).reasons == ()
    assert check_path("venv2/bin/python", "write", "/ws", (), more, Fake()).reasons == ()


NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "..",
        ".",
        "",
        ".env",
        "ws",
        "ws-evil",
        "out",
        "\uff0e\uff0e",
        "\u2025",
        "x\x00",
    ]
)
PATHS = st.builds(
    lambda lead, names: lead + "/".join(names),
    st.sampled_from(["", "/", "/ws/", "//ws/", "~", "$", "/ws-evil/"]),
    st.lists(NAMES, max_size=8),
)
ENTRIES = st.builds(
    lambda names: "/" + "/".join(names),
    st.lists(st.sampled_from(["ws", "a", "b", "c", "out"]), min_size=1, max_size=4),
)
ERRORS = st.sampled_from([errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EIO])


def kernel(path: str, links: dict[str, str]) -> str | None:
    """Resolve as path_resolution(7) says, in the simplest way there is."""
    here: list[str] = []
    ahead = path.split("/")[::-1]
    followed = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del here[-1:]
            continue
        entry = "/" + "/".join([*here, name])
        if entry not in links:
            here.append(name)
            continue
        followed += 1
        if followed > 40:
            return None
        if links[entry].startswith("/"):
            here = []
        ahead.extend(links[entry].split("/")[::-1])
    return "/" + "/".join(here)


@settings(max_examples=400, deadline=None)
@given(
    text=PATHS | st.text(max_size=60),
    role=st.sampled_from(["read", "write"]),
    workspace=st.sampled_from(["/ws", "/", "/a/ws", "", "x", "/ws/../ws", "/ws/"]),
    links=st.dictionaries(ENTRIES, PATHS, max_size=8),
    errors=st.dictionaries(ENTRIES, ERRORS, max_size=2),
)
def test_inside_is_only_what_the_kernel_finds_inside(
    text: str, role: Role, workspace: str, links: dict[str, str], errors: dict[str, int]
) -> None:
    """Whatever the links: a path that ends outside and is called inside is an escape."""
    failures: dict[str, BaseException] = {
        path: OSError(number, os.strerror(number)) for path, number in errors.items()
    }
    verdict = check_path(text, role, workspace, ("/a",), LIST, Fake(links, failures))
    assert verdict.inside or verdict.denied
    if verdict.inside:
        links = {path: target for path, target in links.items() if path not in errors}
        root = kernel(workspace, links)
        end = kernel(os.path.join(workspace, text), links)
        assert root is not None
        assert end is not None
        assert end == verdict.resolved
        assert (end + "/").startswith(root.rstrip("/") + "/")


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=[]), max_size=1100))
def test_no_text_makes_a_check_raise(text: str) -> None:
    """A model that finds the one string which crashes the check has switched it off."""
    for role in ("read", "write"):
        verdict = check_path(text, role, "/ws", ("/home/me",), LIST, Fake())
        assert all(reason.text.isprintable() for reason in verdict.reasons)
