"""Git's configuration: which settings differ, read as git reads them, and which are harmless."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_policies import changed_git_keys
from toolcell_policies._git_config import (
    _parsed,
    is_harmless,
    names_a_program,
    runs_a_command,
)


def changed(before: bytes | None, after: bytes | None) -> tuple[str, ...] | None:
    return changed_git_keys(before, after, is_inside=lambda path: path.startswith("in"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, None, ()),
        (None, b"", ()),
        (b"[core]\n\tbare = false\n", b"[core]bare=false", ()),
        (b"[a]\nx=1\n", b"[a]\nx=2\n", ("a.x",)),
        (b"[a]\nx=1\n", None, ("a.x",)),
        (b"[a]\nx=1\n", b"[a]\nx=1\nx=1\n", ("a.x",)),
        (None, b"[CORE]\n HooksPath = x", ("core.hookspath",)),
        (None, b'[branch "A.b"]\nmerge = x', ("branch.*.merge",)),
        (None, b"[branch.A.b]\nmerge = x", ("branch.*.merge",)),
        (None, b'[core ""]\nhookspath = x', ("core.*.hookspath",)),
        (None, b'[a "x\\"]y"]\nz', ("a.*.z",)),
        (None, b"[a]\n# x=1\n; y=2\n\tz = 1 # w = 2", ("a.z",)),
        (None, b"[a]\nx = 1 \\\n  y=2\nz=3", ("a.x", "a.z")),
        (None, b"\xef\xbb\xbf[a]\r\nx = 1\r\n", ("a.x",)),
        (b'[a]\nx = "b c"  \n', b"[a]\nx = b c", ()),
        (b"[a]\nx = b\\tc", b'[a]\nx = "b\tc"', ()),
        (b"[a]\nx = true", b"[a]\nx", ()),
        (b'[a]\nx = "b;c"', b"[a]\nx = b;c", ("a.x",)),
        (b"[a]\nx = b \r c", b"[a]\nx = b  c", ("a.x",)),
        (None, b"[a]\nx = \\", ("a.x",)),
        (None, b'[remote "o"]\nurl = https://x/y\nfetch = +refs', ("remote.*.fetch",
        "remote.*.url")),
        (None, b'[remote "o"]\nurl = user@host:x', ("remote.*.url",)),
        (None, b'[remote "o"]\nurl = /a/b', ("remote.*.url",)),
        (None, b'[remote "o"]\nurl = ext::sh -c x', ("remote.*.url:program",)),
        (None, b'[remote "o"]\nurl = evil://x', ("remote.*.url:program",)),
        (None, b'[remote "o"]\nurl = -x', ("remote.*.url:program",)),
        (None, b'[remote "o"]\nurl =', ("remote.*.url:program",)),
        (b'[remote "o"]\nurl = /a', b'[remote "o"]\nurl = /b', ("remote.*.url:replaced",)),
        (b'[remote "o"]\nurl = /a', b"", ("remote.*.url",)),
        (None, b'[submodule "o"]\nurl = ext::x', ("submodule.*.url:program",)),
        (None, b'[branch "o"]\nremote = origin', ("branch.*.remote",)),
        (None, b'[branch "o"]\nremote = .', ("branch.*.remote",)),
        (None, b'[branch "o"]\nremote = https://x', ("branch.*.remote:address",)),
        (None, b'[branch "o"]\nremote = /x', ("branch.*.remote:address",)),
        (None, b"[core]\nworktree = in/x", ("core.worktree",)),
        (None, b"[core]\nworktree = out", ("core.worktree:outside",)),
    ],
)  # fmt: skip
def test_every_setting_that_differs_is_named(
    before: bytes | None, after: bytes | None, expected: tuple[str, ...]
) -> None:
    """Otherwise a setting that runs a program could hide behind how it is written."""
    assert changed(before, after) == expected
    assert changed(after, after) == ()


@pytest.mark.parametrize(
    "text",
    [
        b"x = 1", b"[a\nx=1", b"[]\nx=1", b"[.b]\nx=1", b"[a b]\nx=1", b'[a "b\nc"]\n',
        b'[a "b"c]\n',
        b'[a.b "c"]\n', b'[a "b', b'[a "b\\\nc"]', b"[a]\n=1", b"[a]\n1x=1", b"[a]\n-x=1",
        b"[a]\nx y", b'[a]\nx = "b\n', b"[a]\nx = \\q", b"[a]\nx = 1\0", b"[a_b]\nx=1",
        b"[a]\nx_y=1",
        b"[a]\n\xc3\xa9=1", b"[a]\n\x0cx=1",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_not_judged(text: bytes) -> None:
    """Git may read more in it than this does: it has to ask."""
    assert changed(None, text) is None
    assert changed(text, None) is None


@pytest.mark.parametrize(
    "key",
    [
        "core.bare", "core.filemode", "user.name", "user.email", "init.defaultbranch",
        "branch.*.remote", "branch.*.merge", "remote.*.fetch", "remote.*.url",
        "advice.detachedhead",
        "extensions.objectformat",
    ],
)  # fmt: skip
def test_what_git_writes_every_day_is_harmless(key: str) -> None:
    """Otherwise each clone would ask."""
    assert is_harmless(key)


@pytest.mark.parametrize(
    "key",
    [
        "core.hookspath", "core.fsmonitor", "core.pager", "core.editor", "core.sshcommand",
        "core.gitproxy", "core.askpass", "core.attributesfile", "core.excludesfile",
        "core.alternaterefscommand", "filter.*.clean", "filter.*.process", "credential.helper",
        "credential.*.helper", "alias.st", "include.path", "includeif.*.path", "url.*.insteadof",
        "url.*.pushinsteadof", "protocol.allow", "protocol.*.allow", "sequence.editor",
        "diff.external", "diff.*.textconv", "diff.*.command", "merge.*.driver", "gpg.program",
        "gpg.*.program", "gpg.ssh.defaultkeycommand", "remote.*.uploadpack", "remote.*.receivepack",
        "remote.*.vcs", "remote.*.proxy", "remote.*.pushurl", "submodule.*.update",
        "branch.*.mergeoptions", "branch.*.pushremote", "init.templatedir",
        "interactive.difffilter",
        "pager.log", "browser.*.cmd", "difftool.*.cmd", "mergetool.*.path", "man.*.cmd",
        "uploadpack.packobjectshook", "gc.recentobjectshook", "trailer.*.command",
        "sendemail.smtpserver",
        "tar.*.command", "http.proxy", "http.sslverify", "http.*.extraheader",
        "extensions.partialclone",
        "remote.*.promisor", "safe.directory", "hook.*.command", "remote.*.url:program",
        "remote.*.url:replaced", "branch.*.remote:address", "core.worktree:outside", "user.*.x",
        "user.name:x", "rebase.exec", "core.*.bare", "userx.name",
    ],
)  # fmt: skip
def test_what_names_a_program_a_file_or_an_address_is_not(key: str) -> None:
    """Each of these runs something, or sends something, at the next use of git."""
    assert not is_harmless(key)


@pytest.mark.parametrize(
    ("todo", "expected"),
    [
        (b"", False),
        (b"pick 1 x\n\n# exec y\nfixup -C 1 x\nlabel a\n", False),
        (b"pick 1\nexec make", True),
        (b"x make", True),
        (b"  exec make", True),
        (b"pick 1\r\nexec make\r\n", True),
        (b"\xff\xfe", True),
    ],
)
def test_a_todo_that_runs_something_is_found(todo: bytes, expected: bool) -> None:
    """`git rebase --continue` runs each exec line as its user."""
    assert runs_a_command(todo) is expected


@given(st.binary() | st.text(alphabet='[]a."\\=\n #;\t\r1-').map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """A file that makes the judge raise is a call that ends in nothing anybody planned for."""
    found = changed(None, data)
    assert found is None or list(found) == sorted(set(found))
    assert found is None or changed(data, data) == ()


PIECES = st.sampled_from(
    [
        "[core]", "[a.b]", '[a "b c"]', '[a "x\\"y"]', "\n", "\r\n", "\thookspath", " = ", "=", "x",
        '"q r"', "\\\n", "\\n", "\\t", " ", "# c", "; d", "bare = true\n", "key-1", "\\", '"',
        "]", "\r",
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_is_read_is_what_git_itself_reads(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """A file that git reads in another way would hide a setting."""
    parsed = _parsed(text.encode())
    if parsed is None:
        return
    file: Path = tmp_path_factory.mktemp("git") / "config"
    file.write_bytes(text.encode())
    done = subprocess.run(
        ["git", "config", "-f", str(file), "--list", "-z"], capture_output=True, check=True
    )
    ours = sorted(
        f"{'.'.join(part for part in setting if part is not None)}\n{value}"
        for setting, values in parsed.items()
        for value in values
    )
    theirs = sorted(
        one if "\n" in one else f"{one}\ntrue" for one in done.stdout.decode().split("\0")[:-1]
    )
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "text", "runs"),
    [
        ("strategy", b"ort\n", False),
        ("strategy", b"subtree", False),
        ("strategy", b"foo/../evil\n", True),
        ("strategy", b"", True),
        ("strategy_opts", b"--theirs\n", False),
        ("opts", b"[options]\n\tedit = true\n", False),
        ("opts", b"[options]\n\tstrategy = recursive\n\tstrategy-option = ours\n", False),
        ("opts", b"[options]\n\tStrategy = ../evil\n", True),
    ],
)
def test_a_strategy_that_is_not_gits_own_is_a_program(name: str, text: bytes, runs: bool) -> None:
    """`git rebase --continue` runs `git-merge-` and what it says, wherever that leads."""
    assert names_a_program(name, text) is runs
