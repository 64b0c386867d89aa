"""The facts of real programs' work, and of hostile trees: gathered from files, then judged."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import pytest

from toolcell import _effect_facts
from toolcell._protected import Protected
from toolcell_policies import (
    AccessMode,
    DangerLevel,
    Decision,
    Effect,
    EffectGround,
    Facts,
    Outcome,
    decide,
    default_sensitive_list,
)
from toolcell_sandbox.changeset import Change, ChangeSet, Entry, Kind

PROTECTED: Final = Protected(
    rules=default_sensitive_list(), homes=("/home/nobody-here",), own_homes=()
)
KINDS: Final[dict[int, Kind]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def entries(top: Path) -> dict[str, Entry]:
    found = {}
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            kind = KINDS[stat.S_IFMT(seen.st_mode)]
            found[os.path.relpath(path, top)] = Entry(
                kind=kind,
                mode=stat.S_IMODE(seen.st_mode),
                uid=seen.st_uid,
                gid=seen.st_gid,
                size_bytes=seen.st_size,
                mtime_ns=0,
                ctime_ns=0,
                links=seen.st_nlink,
                inode=(seen.st_dev, seen.st_ino),
                target=os.readlink(path) if kind == "symlink" else None,
            )
    return found


def is_equal(one: Path, two: Path) -> bool:
    if one.is_symlink() or two.is_symlink():
        return one.is_symlink() and two.is_symlink() and os.readlink(one) == os.readlink(two)
    return one.is_file() and two.is_file() and one.read_bytes() == two.read_bytes()


@dataclass
class Call:
    """A workspace, what it was before, and what a program did to it."""

    before: Path
    workspace: Path
    masked: frozenset[str] = frozenset()

    def write(self, path: str, text: str = "", *, mode: int = 0o644) -> Self:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return self

    def link(self, path: str, target: str) -> Self:
        (self.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (self.workspace / path).symlink_to(target)
        return self

    def remove(self, path: str) -> Self:
        whole = self.workspace / path
        if whole.is_dir() and not whole.is_symlink():
            shutil.rmtree(whole)
        else:
            whole.unlink()
        return self

    def fifo(self, path: str) -> Self:
        os.mkfifo(self.workspace / path)
        return self

    def run(self, *argv: str, cwd: str = ".") -> Self:
        home = self.before.parent / "home"
        home.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "protocol.file.allow",
            "GIT_CONFIG_VALUE_0": "always",
            "GIT_EDITOR": "true",
        }
        done = subprocess.run(
            argv, cwd=self.workspace / cwd, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return self

    def begin(self) -> None:
        """What is in the workspace now is what the call finds."""
        shutil.rmtree(self.before)
        shutil.copytree(self.workspace, self.before, symlinks=True)

    def changes(self) -> ChangeSet:
        old, new = entries(self.before), entries(self.workspace)
        found = []
        for path in sorted({*old, *new}):
            before, after = old.get(path), new.get(path)
            if before and after and before.kind == after.kind:
                same = before.kind == "folder" or is_equal(
                    self.before / path, self.workspace / path
                )
                if same and before.mode == after.mode:
                    continue
            found.append(Change(path=path, before=before, after=after, masked=path in self.masked))
        return ChangeSet(workspace=str(self.workspace), changes=tuple(found))

    def effects(self) -> tuple[Effect, ...]:
        layer_fd = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY)
        workspace_fd = os.open(self.before, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return _effect_facts.gather(
                self.changes(),
                layer_fd=layer_fd,
                workspace=str(self.workspace),
                workspace_fd=workspace_fd,
            )
        finally:
            os.close(layer_fd)
            os.close(workspace_fd)

    def effect(self, path: str) -> Effect:
        return next(one for one in self.effects() if one.path == path)

    def decision(self) -> Decision:
        workspace_fd = os.open(self.before, os.O_RDONLY | os.O_DIRECTORY)
        try:
            top = _effect_facts.top_entries(workspace_fd)
        finally:
            os.close(workspace_fd)
        return decide(
            Facts(
                tool_name="shell",
                access_mode=AccessMode.EXECUTE,
                danger=DangerLevel.SAFE,
                plan_hash="hash",
                display_bytes=1,
                effects=self.effects(),
                effect_ground=EffectGround(
                    rules=PROTECTED.rules,
                    homes=PROTECTED.homes,
                    workspace=str(self.workspace),
                    top_entries=top,
                    program_folders=("/usr", "/bin", "/lib", "/lib64", sys.base_prefix),
                ),
            )
        )

    def said(self) -> tuple[str, list[str]]:
        decision = self.decision()
        return decision.outcome.value, [reason.text for reason in decision.reasons]

    def passes(self) -> None:
        assert self.changes(), "it did nothing"
        assert self.said() == ("allow", [])

    def asks(self, text: str) -> None:
        outcome, texts = self.said()
        assert outcome == "ask", texts
        assert any(text in one for one in texts), texts


@pytest.fixture
def call(tmp_path: Path) -> Call:
    (tmp_path / "before").mkdir()
    (tmp_path / "ws").mkdir()
    return Call(before=tmp_path / "before", workspace=tmp_path / "ws")


@pytest.fixture
def project(call: Call) -> Call:
    """A repository with two branches and a few files."""
    call.run("git", "init", "-b", "main")
    for number in range(5):
        call.write(f"src/m{number}.py", f"x = {number}\n")
    call.write(".gitignore", "build/\n*.log\n!keep.log\n")
    call.run("git", "add", ".")
    call.run("git", "commit", "-m", "one")
    call.run("git", "switch", "-c", "other")
    call.write("src/other.py", "y = 1\n")
    (call.workspace / "src/m0.py").unlink()
    call.run("git", "add", "-A")
    call.run("git", "commit", "-m", "two")
    call.run("git", "switch", "main")
    call.write("src/m1.py", "x = 11\n")
    call.run("git", "commit", "-am", "three")
    call.begin()
    return call


# ------------------------------------------------------------- everyday work


GIT_WORK: Final[dict[str, list[list[str]]]] = {
    "switch": [["git", "switch", "other"]],
    "branch": [["git", "branch", "third"], ["git", "branch", "-d", "third"]],
    "branch that follows": [["git", "switch", "-c", "mine", "--track", "main"]],
    "branch removed": [["git", "branch", "-D", "other"]],
    "merge": [["git", "merge", "other", "-m", "m"]],
    "rebase": [["git", "rebase", "main", "other"]],
    "worktree": [["git", "worktree", "add", "wt", "other"]],
    "remote": [["git", "remote", "add", "origin", "https://example.org/x.git"]],
    "user": [["git", "config", "user.name", "somebody"]],
    "gc": [["git", "gc", "--prune=now"]],
    "mv": [["git", "mv", "src", "lib"]],
    "bare": [["git", "init", "--bare", "srv/x.git"], ["git", "init", "--bare", "plain"]],
    "tag": [["git", "tag", "v1"]],
}


@pytest.mark.parametrize("name", GIT_WORK)
def test_what_git_does_every_day_passes(project: Call, name: str) -> None:
    """Otherwise a person is asked at each commit, and soon says yes to everything."""
    for argv in GIT_WORK[name]:
        project.run(*argv)
    project.passes()


def test_a_commit_of_a_change_and_a_stash_pass(project: Call) -> None:
    """Otherwise nobody could let an agent commit."""
    project.write("src/m2.py", "z = 2\n")
    project.run("git", "stash")
    project.passes()
    project.run("git", "stash", "pop")
    project.run("git", "add", ".")
    project.run("git", "commit", "-m", "four")
    project.passes()


def test_a_rebase_that_stops_half_way_passes(project: Call) -> None:
    """Otherwise a conflict could not be left for the next call to solve."""
    project.run("git", "switch", "other")
    project.write("src/m1.py", "conflict\n")
    project.run("git", "commit", "-am", "five")
    project.begin()
    project.run("sh", "-c", "git rebase main; test -d .git/rebase-merge")
    project.passes()


def test_a_first_repository_passes(call: Call) -> None:
    """Otherwise the hooks that git brings as samples would ask."""
    call.write("a.txt", "a")
    call.begin()
    call.run("git", "init")
    call.run("git", "add", ".")
    call.run("git", "commit", "-m", "one")
    assert call.effect(".git/config").in_new_repository
    call.passes()


@pytest.mark.parametrize("way", ["file", "no-hardlinks", "bare", "worktree in it"])
def test_a_clone_inside_the_workspace_passes(project: Call, way: str) -> None:
    """Otherwise a second copy to compare with could not be had."""
    source = f"file://{project.workspace}"
    if way == "no-hardlinks":
        project.run("git", "clone", "--no-hardlinks", ".", "copy")
    else:
        project.run("git", "clone", *(["--bare"] if way == "bare" else []), source, "copy")
    if way == "worktree in it":
        project.run("git", "worktree", "add", "../wt", "-b", "wt", cwd="copy")
    project.passes()


def test_a_submodules_own_files_pass_and_its_registration_asks(
    project: Call, tmp_path: Path
) -> None:
    """A submodule is a repository in .git/modules: only .gitmodules is for a person to see."""
    shutil.copytree(project.workspace, tmp_path / "sub")
    project.run("git", "submodule", "add", f"file://{tmp_path}/sub", "sub")
    outcome, texts = project.said()
    assert outcome == "ask"
    assert len(texts) == 1
    assert "'.gitmodules' was created" in texts[0]


def test_a_work_tree_is_removed_without_a_question(project: Call) -> None:
    """What is added freely has to go freely; a .git that is taken away otherwise asks."""
    project.run("git", "worktree", "add", "wt", "other")
    project.begin()
    project.run("git", "worktree", "remove", "wt")
    project.passes()
    project.run("git", "worktree", "add", "wt", "other")
    project.remove("wt/.git")
    project.asks("removed")


def test_an_environment_and_what_is_installed_into_it_pass(call: Call, tmp_path: Path) -> None:
    """Otherwise certifi's bundle and a .pth that every environment has would ask each time."""
    call.run(sys.executable, "-m", "venv", ".venv")
    assert any(one.path.endswith("distutils-precedence.pth") for one in call.effects())
    assert any(one.path.endswith("cacert.pem") for one in call.effects())
    call.passes()
    call.begin()
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/__init__.py", "")
        wheel.writestr("tiny/cacert.pem", "-----BEGIN CERTIFICATE-----\n")
        wheel.writestr("tiny/test.key", "-----BEGIN PRIVATE KEY-----\n")
        wheel.writestr("tiny/test.pem", "-----BEGIN PRIVATE KEY-----\n")
        wheel.writestr("tiny-precedence.pth", "import os\n")
        wheel.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    pip = [".venv/bin/python", "-m", "pip"]
    wheel_path = str(tmp_path / "tiny-1.0-py3-none-any.whl")
    call.run(*pip, "install", "--no-index", "--no-deps", wheel_path)
    assert any(one.path.endswith("tiny/test.key") for one in call.effects())
    call.passes()
    call.begin()
    call.run(*pip, "uninstall", "-y", "tiny")
    call.passes()


def test_npm_ci_passes(call: Call) -> None:
    """Otherwise the first thing that is done in most projects would ask."""
    call.write("dep/package.json", '{"name": "dep", "version": "1.0.0", "bin": {"dep": "cli.js"}}')
    call.write("dep/cli.js", "#!/usr/bin/env node\n")
    call.write("dep/.github/workflows/ci.yml", "")
    call.write("dep/server.key", "x")
    call.run("npm", "pack", "--offline", "--pack-destination", "..", cwd="dep")
    shutil.rmtree(call.workspace / "dep")
    call.write(
        "package.json",
        '{"name": "p", "version": "1.0.0", "dependencies": {"dep": "file:dep-1.0.0.tgz"}}',
    )
    call.run("npm", "install", "--offline", "--no-audit", "--no-fund")
    shutil.rmtree(call.workspace / "node_modules")
    call.begin()
    call.run("npm", "ci", "--offline", "--no-audit", "--no-fund")
    assert any(one.path.endswith("dep/server.key") for one in call.effects())
    call.passes()
    call.begin()
    call.run("npm", "ci", "--offline", "--no-audit", "--no-fund")
    call.write("node_modules/dep/again.js")
    call.passes()


def test_a_repository_of_a_template_is_begun_again(project: Call) -> None:
    """`git init` twice brings new samples, and they never run."""
    project.remove(".git/hooks")
    project.begin()
    project.run("git", "init")
    project.passes()


def test_what_tests_and_formatters_leave_passes(project: Call) -> None:
    """A thousand files of a cache that are gone are no loss."""
    for number in range(150):
        project.write(f"src/__pycache__/m{number}.pyc")
        project.write(f"src/.mypy_cache/{number}.json")
        project.write(f"build/{number}.o")
        project.write(f"x{number}.log")
    project.begin()
    for name in ("src/__pycache__", "src/.mypy_cache", "build"):
        shutil.rmtree(project.workspace / name)
    for file in project.workspace.glob("x*.log"):
        file.unlink()
    project.write("src/m3.py", "formatted = 3\n")
    project.write(".pytest_cache/v/lastfailed", "{}")
    project.passes()


# ------------------------------------------------------------ hostile work


HOSTILE: Final[dict[str, tuple[Callable[[Call], object], str, str]]] = {
    "a hook": (lambda c: c.write(".git/hooks/pre-commit", "x"), "ask", "git runs it"),
    "a hook from its sample": (
        lambda c: shutil.move(
            c.workspace / ".git/hooks/pre-commit.sample", c.workspace / ".git/hooks/pre-commit"
        ),
        "ask",
        "git runs it",
    ),
    "a hook in a new repository": (
        lambda c: (c.run("git", "init", "new"), c.write("new/.git/hooks/post-checkout", "x")),
        "ask",
        "git runs it",
    ),
    "a hook in a bare one of any name": (
        lambda c: (c.run("git", "init", "--bare", "plain"), c.write("plain/hooks/update", "x")),
        "ask",
        "git runs it",
    ),
    "hooksPath": (lambda c: c.run("git", "config", "core.hooksPath", "h"), "ask", "core.hookspath"),
    "fsmonitor in a bare one of any name": (
        lambda c: (
            c.run("git", "init", "--bare", "plain"),
            c.run("git", "config", "-f", "plain/config", "core.fsmonitor", "./x"),
        ),
        "ask",
        "core.fsmonitor",
    ),
    "an alias": (lambda c: c.run("git", "config", "alias.st", "!x"), "ask", "alias.st"),
    "a helper as remote": (
        lambda c: c.run("git", "config", "remote.x.url", "ext::sh -c x"),
        "ask",
        "remote.*.url:program",
    ),
    "a work tree outside": (
        lambda c: c.run("git", "config", "core.worktree", "../.."),
        "ask",
        "core.worktree:outside",
    ),
    "a configuration that is no file": (
        lambda c: (
            c.remove(".git/config"),
            c.fifo(".git/config"),
        ),
        "ask",
        "is no file",
    ),
    "a configuration too large to read": (
        lambda c: c.write(".git/config", "#" * 70_000),
        "ask",
        "cannot be told",
    ),
    "a rebase that runs something": (
        lambda c: c.write(".git/rebase-merge/git-rebase-todo", "pick 1\nexec x\n"),
        "ask",
        "rebase.exec",
    ),
    "attributes": (lambda c: c.write(".git/info/attributes", "* filter=x"), "ask", "filters"),
    "a .git that leads outside": (
        lambda c: c.write("sub/.git", "gitdir: ../../elsewhere\n"),
        "ask",
        "which repository",
    ),
    "a .git that leads to no repository": (
        lambda c: c.write("sub/.git", "gitdir: ../src\n"),
        "ask",
        "which repository",
    ),
    "a .git that says two things": (
        lambda c: c.write("sub/.git", "gitdir: ../.git\ngitdir: ../src\n"),
        "ask",
        "which repository",
    ),
    "a .git that says nothing": (lambda c: c.write("sub/.git", "x\n"), "ask", "which repository"),
    "a .git without a repository": (lambda c: c.write("sub/.git/HEAD"), "ask", "which repository"),
    "a .git that is a link": (lambda c: c.link("sub/.git", "../.git"), "ask", "which repository"),
    "a .git that is removed": (
        lambda c: c.remove(".git"),
        "ask",
        "is removed",
    ),
    "a .git that is replaced": (
        lambda c: (c.remove(".git"), c.write(".git", "gitdir: src\n")),
        "ask",
        "is replaced",
    ),
    "a commondir outside": (
        lambda c: c.write(".git/commondir", "../../x\n"),
        "ask",
        "no repository of this workspace",
    ),
    "objects of somebody else": (
        lambda c: c.write(
            ".git/objects/info/alternates", "# x\n../../.git/objects\n/srv/objects\n"
        ),
        "ask",
        "no repository of this workspace",
    ),
    "a pyvenv.cfg at the top": (
        lambda c: (c.write("pyvenv.cfg"), c.write("site-packages/evil.pth")),
        "ask",
        "evil.pth",
    ),
    "a pyvenv.cfg beside what was there": (
        lambda c: (c.write("src/pyvenv.cfg"), c.write("src/sitecustomize.py")),
        "ask",
        "sitecustomize.py",
    ),
    "a pyvenv.cfg in .github": (
        lambda c: (c.write(".github/pyvenv.cfg"), c.write(".github/workflows/ci.yml")),
        "ask",
        "ci.yml",
    ),
    "a pyvenv.cfg beside hooks": (
        lambda c: (c.write("new/.git/pyvenv.cfg"), c.write("new/.git/hooks/pre-commit")),
        "ask",
        "pre-commit",
    ),
    "a hook below node_modules": (
        lambda c: c.write("node_modules/x/.git/hooks/pre-commit"),
        "ask",
        "pre-commit",
    ),
    "our own file below node_modules": (
        lambda c: c.write("node_modules/.toolcell/policy.toml"),
        "deny",
        "toolcell",
    ),
    "node_modules as a link": (
        lambda c: (c.write("m/x.key"), c.link("node_modules", "m")),
        "deny",
        "x.key",
    ),
    "a link out": (lambda c: c.link("out", "../.."), "deny", "leads outside"),
    "a link out by two": (
        lambda c: (c.link("d", "src"), c.link("out", "d/../../x")),
        "deny",
        "leads outside",
    ),
    "an absolute link out": (lambda c: c.link("out", "/etc/hosts"), "deny", "leads outside"),
    "a link to programs from no environment": (
        lambda c: c.link("bin", "/usr/bin/env"),
        "deny",
        "leads outside",
    ),
    "an environment's link to a secret": (
        lambda c: (c.write("v/pyvenv.cfg"), c.link("v/bin", "/usr/../etc/shadow")),
        "deny",
        "leads outside",
    ),
    "a link in a circle": (lambda c: c.link("a", "a"), "deny", "leads outside"),
    "a link to a secret": (lambda c: c.link("a", ".env"), "deny", "link to what is protected"),
    "a setuid program": (
        lambda c: c.write("su", mode=0o4755),
        "deny",
        "setuid",
    ),
    "a key by its name": (lambda c: c.write("a/tls.key"), "deny", "protected (keys)"),
    "a key by what it is": (
        lambda c: c.write("a/tls.pem", "-----BEGIN RSA PRIVATE KEY-----"),
        "deny",
        "holds a private key",
    ),
    "everything gone": (
        lambda c: [c.remove(one) for one in os.listdir(c.workspace)],
        "ask",
        "at the top of the workspace gone",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_call_leaves_is_never_kept_unseen(project: Call, name: str) -> None:
    """Otherwise it would run, or be believed, once a person works in the folder."""
    act, outcome, text = HOSTILE[name]
    project.write("src/new.py")
    project.passes()  # the control: without the attack it is all kept
    act(project)
    said, texts = project.said()
    assert said == outcome, texts
    assert any(text in one for one in texts), texts


def test_a_repository_made_of_what_lay_there_asks(call: Call) -> None:
    """A first call leaves a configuration in a plain folder, a second one makes git read it."""
    call.write("evil/config", "[core]\n\tfsmonitor = ./x\n")
    call.passes()
    call.begin()
    call.write("evil/HEAD", "ref: refs/heads/main\n")
    call.write("evil/objects/.keep")
    call.write("evil/refs/.keep")
    call.asks("it makes a repository")


def test_a_shared_folder_needs_no_head_to_be_judged(call: Call) -> None:
    """Git reads the configuration of the folder that commondir names, which has no HEAD."""
    call.write("real/objects/.keep")
    call.write("real/refs/.keep")
    call.write("evil/HEAD", "ref: refs/heads/main\n")
    call.write("evil/commondir", "../real\n")
    call.passes()
    call.write("real/config", "[core]\n\tfsmonitor = ./x\n")
    call.asks("core.fsmonitor")


def test_a_pointer_to_a_repository_that_lies_about_asks(call: Call) -> None:
    """A fixture of somebody's tests is obeyed by whoever stands where the pointer is."""
    for name in ("objects/.keep", "refs/.keep"):
        call.write(f"fixture/{name}")
    call.write("fixture/HEAD", "ref: refs/heads/main\n")
    call.write("fixture/config", "[core]\n\tfsmonitor = ./x\n")
    call.begin()
    call.write("s/.git", "gitdir: ../fixture\n")
    call.asks("which repository")


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_a_repository_whose_folders_are_none_is_one(call: Call, kind: str) -> None:
    """Git asks only whether it may enter them, and then runs what its settings say."""
    for name in ("objects", "refs"):
        if kind == "file":
            call.write(f"x/{name}")
        else:
            (call.workspace / "x").mkdir(exist_ok=True)
            os.mkfifo(call.workspace / "x" / name)
    call.write("x/HEAD", "ref: refs/heads/main\n")
    call.write("x/config", "[core]\n\tfsmonitor = ./x\n")
    call.asks("core.fsmonitor")


def test_a_strategy_that_is_a_program_of_the_workspace_asks(project: Call) -> None:
    """The person's own `git rebase --continue` would run it."""
    project.begin()
    project.write(".git/rebase-merge/strategy", "ort\n")
    project.passes()
    project.write(".git/rebase-merge/strategy", "foo/../evil\n")
    project.asks("rebase.strategy")
    project.write(".git/rebase-merge/strategy", "ort\n")
    project.write(".git/sequencer/opts", "[options]\n\tstrategy = ../evil\n")
    project.asks("rebase.strategy")


def test_a_pointer_over_a_link_of_the_host_is_not_followed(project: Call, tmp_path: Path) -> None:
    """What lies inside by its letters may be anywhere by a link."""
    (project.workspace / "inside").symlink_to(tmp_path)
    (project.workspace / "near").symlink_to("src")
    project.begin()
    project.run("git", "init", "x")
    project.write("s/.git", "gitdir: ../x/.git\n")
    project.passes()
    project.write("s/.git", "gitdir: ../inside/ws/x/.git\n")
    project.asks("which repository")
    project.remove("s/.git")
    project.link("l", "near/m0.py")
    project.passes()
    project.link("k", "inside/before")
    assert project.effect("k").through == (("inside", str(tmp_path)),)
    assert project.said()[0] == "deny"


def test_a_new_link_does_not_hide_what_the_hosts_was(project: Call) -> None:
    """The facts are of the workspace as it would be, not as either side is."""
    (project.workspace / "l").symlink_to("src")
    project.write("old/f")
    project.begin()
    project.remove("l")
    project.link("m", "l/x")
    project.remove("old")
    project.write("old", "now a file")
    project.link("n", "old/f")
    assert project.effect("m").through == ()
    project.passes()


def test_a_masked_name_made_anew_is_dropped_and_a_deletion_of_it_refused(project: Call) -> None:
    """A folder is removed by one whiteout, and takes along what the call never saw."""
    project.write("a/b/.env", "secret")
    project.write("a/c")
    project.begin()
    project.masked = frozenset({"a/b/.env"})
    project.write("a/b/.env", "from git")
    decision = project.decision()
    assert decision.outcome is Outcome.ALLOW
    assert [one.code for one in decision.reasons] == ["masked_kept"]
    project.remove("a")
    decision = project.decision()
    assert decision.outcome is Outcome.DENY
    assert "'a/b/.env' would be deleted unseen" in decision.reasons[0].text


@pytest.mark.parametrize("ignored", [True, False])
def test_files_count_unless_git_ignores_them_for_certain(project: Call, ignored: bool) -> None:
    """A .gitignore that a call wrote must not make the next call's damage invisible."""
    for number in range(150):
        project.write(f"data/{number}")
    if ignored:
        project.write(".gitignore", "data/\n")
    else:
        project.run("git", "add", ".")
        project.write(".gitignore", "data/\n")
    project.begin()
    project.remove("data")
    if ignored:
        project.passes()
    else:
        project.asks("150 files deleted")


IGNORES: Final = [
    ("*.o", "a/x.o", True),
    ("/x.o", "a/x.o", False),
    ("/a/x.o", "a/x.o", True),
    ("a/", "a/x.o", True),
    ("x.o/", "a/x.o", False),
    ("**/x.o", "a/x.o", True),
    ("a/**", "a/x.o", True),
    ("a/**/x.o", "a/x.o", True),
    ("a/?.o", "a/x.o", True),
    ("*", "a/x.o", False),
    ("/*", "a/x.o", False),
    ("**", "a/x.o", False),
    ("[xy].o", "a/x.o", False),
    ("*.o\n!a/x.o", "a/x.o", False),
    ("*.o\n![x].o", "a/x.o", False),
    ("*.o\n!y.o", "a/x.o", True),
    ("#*.o", "a/x.o", False),
    ("*.o  ", "a/x.o", True),
    ("\n" * 1_001 + "*.o", "a/x.o", False),
    ("#" * 70_000 + "\n*.o", "a/x.o", False),
    ("*.o", "a/\udcff\n.o", True),
]


@pytest.mark.parametrize(("patterns", "path", "expected"), IGNORES)
def test_a_pattern_that_is_not_understood_ignores_nothing(
    project: Call, patterns: str, path: str, expected: bool
) -> None:
    """Otherwise what nobody can restore would not count as lost."""
    project.write(".gitignore", patterns)
    project.write(path)
    project.begin()
    (project.workspace / path).unlink()
    assert project.effect(path).is_ignored is expected


def test_a_gitignore_in_a_folder_holds_there_only(project: Call) -> None:
    """Otherwise one in a corner would speak for the whole tree."""
    project.write("a/.gitignore", "x\n")
    for path in ("a/x", "a/d/x", "b/x", ".git/old.log"):
        project.write(path)
    project.begin()
    project.remove(".git/old.log")
    for path in ("a/x", "a/d/x", "b/x"):
        (project.workspace / path).unlink()
    found = {one.path: one.is_ignored for one in project.effects()}
    assert found == {"a/x": True, "a/d/x": True, "b/x": False, ".git/old.log": False}


@pytest.mark.parametrize("index", [None, b"", b"DIRC\0\0\0\4\0\0\0\0", b"DIRC\0\0\0\2\0\0\0\1x"])
def test_without_an_index_that_is_understood_nothing_is_ignored(
    project: Call, index: bytes | None
) -> None:
    """Whether a file is tracked is what tells whether it can be had again."""
    project.write("x.log")
    project.begin()
    project.remove("x.log")
    assert project.effect("x.log").is_ignored
    (project.before / ".git/index").unlink()
    if index is not None:
        (project.before / ".git/index").write_bytes(index)
    assert not project.effect("x.log").is_ignored


def test_an_index_with_long_flags_is_read(project: Call) -> None:
    """`git add -N` makes it version 3: its names begin two bytes later."""
    project.write("new.log")
    project.run("git", "add", "-f", "-N", "new.log")
    project.write("other.log")
    project.begin()
    project.remove("new.log")
    project.remove("other.log")
    found = {one.path: one.is_ignored for one in project.effects() if one.path.endswith(".log")}
    assert found == {"new.log": False, "other.log": True}


def test_nothing_but_a_regular_file_is_ever_opened(project: Call) -> None:
    """A FIFO would hold the supervisor for as long as nobody writes into it."""
    names = ["a.pem", "s/.git", "new.git/config", ".git/gitdir", "a/.gitignore"]
    project.write("a/x")
    project.begin()
    project.remove("a/x")
    for top in (project.before, project.workspace):
        for name in names:
            (top / name).parent.mkdir(exist_ok=True)
            os.mkfifo(top / name)
    project.remove("a.pem")
    project.link("a.pem", "/etc/hosts")
    project.remove("s/.git")
    os.chmod(project.workspace / "new.git/config", 0o600)
    os.chmod(project.workspace / ".git/gitdir", 0o600)
    found = {one.path: one for one in project.effects()}
    assert not found["a.pem"].holds_key
    assert found["s/.git"].git_pointer is None
    assert found["new.git/config"].git_keys is None
    assert found[".git/gitdir"].git_pointer is None
    assert not found["a/x"].is_ignored


def test_a_layer_that_is_not_what_the_set_says_is_no_reason_to_fail(project: Call) -> None:
    """Whoever made the layer was hostile: links on the way, names that are gone."""
    project.write("d/a.pem", "-----BEGIN PRIVATE KEY-----")
    project.write("d/.git/config", "[core]\n")
    set_before = project.changes()
    project.remove("d")
    project.link("d", "/etc")
    odd = replace(set_before.changes[0], path="\udcff\n" * 120 + "/config", linked_to="x")
    changes = replace(set_before, changes=(*set_before.changes, odd))
    layer_fd = os.open(project.workspace, os.O_RDONLY)
    try:
        effects = _effect_facts.gather(
            changes,
            layer_fd=layer_fd,
            workspace=str(project.workspace),
            workspace_fd=layer_fd,
        )
    finally:
        os.close(layer_fd)
    assert [one.path for one in effects] == [one.path for one in changes.changes]
    assert not any(one.holds_key for one in effects)
    assert all(one.git_keys is None for one in effects)


def test_the_workspace_may_be_a_repository_folder_itself(call: Call) -> None:
    """Someone who works in a bare repository has hooks at the top."""
    call.run("git", "init", "--bare", ".")
    call.begin()
    call.write("hooks/update.sample")
    call.write("refs/heads/x", "0" * 40)
    call.passes()
    call.write("hooks/update")
    call.asks("git runs it")


def test_the_top_is_listed_up_to_a_bound(call: Call) -> None:
    """A million names at the top are no reason to hold a million names."""
    for number in range(10_001):
        call.write(f"{number}")
    fd = os.open(call.workspace, os.O_RDONLY)
    try:
        assert len(_effect_facts.top_entries(fd)) == 10_000
    finally:
        os.close(fd)


def test_a_hundred_thousand_new_files_open_none_of_them(call: Call) -> None:
    """Otherwise a call that unpacks an archive would be judged for minutes."""
    after = Entry(
        kind="file", mode=0o644, uid=0, gid=0, size_bytes=1, mtime_ns=0, ctime_ns=0, links=1,
        inode=(1, 1),
    )  # fmt: skip
    changes = ChangeSet(
        workspace=str(call.workspace),
        changes=tuple(
            Change(path=f"d{number % 100}/f{number}", before=None, after=after)
            for number in range(100_000)
        ),
    )
    fd = os.open(call.workspace, os.O_RDONLY)
    try:
        effects = _effect_facts.gather(changes, layer_fd=fd, workspace="/ws", workspace_fd=fd)
    finally:
        os.close(fd)
    assert len(effects) == 100_000
    assert not any(one.is_ignored or one.in_dependencies for one in effects)
