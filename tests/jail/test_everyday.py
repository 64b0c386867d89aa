"""Everyday work in a transaction: real programs, and all that they did is kept, unasked.

The list is POLICY.md's, "What everyday work does". Nothing here needs a network.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell.results import Effects
from toolcell_sandbox.host import executable_inside

from .conftest import Ledger
from .everyday import Desk, desk_at, npm_package, sha256, walk, wheel
from .tools_of_tests import ALL

PYTHON = shlex.quote(executable_inside())
"""The interpreter of these tests, whose site-packages have pytest, mypy and ruff."""
RUFF = shlex.quote(os.path.join(os.path.dirname(executable_inside()), "ruff"))

GIT_FILE = """
[user]
    name = Ada Lovelace
    email = "ada@example.org"
    signingkey = 0123456789ABCDEF
[init]
    defaultBranch = trunk
    templateDir = ~/template
[core]
    pager = false
    editor = false
    hooksPath = ~/hooks
[commit]
    gpgsign = true
[alias]
    hello = !echo hello
[credential]
    helper = store
[include]
    path = more
[url "https://example.org/"]
    insteadOf = short:
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the home of somebody who uses git; nothing may be left of a call there."""
    held = Ledger.now()
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(GIT_FILE)
    (home / "more").write_text("[user]\n    name = Somebody Else\n")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_COUNT", "GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path.resolve()
    left = Ledger.after(held)
    assert left.processes <= held.processes
    assert len(left.descriptors) <= len(held.descriptors), left.descriptors - held.descriptors
    # Others mount on this machine as well; here nobody but a jail does.
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def host_git(desk: Desk, *words: str) -> str:
    """Git outside of any jail; the person's own file would have it sign."""
    plain = ("-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
    return desk.host("git", *plain, *words)


REPOSITORY = """
    git init -q .
    printf 'one\\ntwo\\nthree\\n' >a.txt
    mkdir src
    echo 'print(1)' >src/main.py
    git add -A
    git commit -qm first
"""


# -- git -----------------------------------------------------------------------------------


async def test_git_has_the_persons_name_and_nothing_else_of_their_file(place):
    """Commits by nobody are useless; an alias or a helper of the person's is a program to run."""
    async with desk_at(place) as desk:
        listed = await desk.shell("git config --list --show-scope")
        told = [line.split("\t") for line in listed.said.splitlines()]
        # That one is no setting of anybody's: toolcell's own.
        assert sorted(one for one in told if not one[1].startswith("core.checkstat=")) == [
            ["command", "init.defaultbranch=trunk"],
            ["command", "user.email=ada@example.org"],
            ["command", "user.name=Ada Lovelace"],
        ]
        done = await desk.shell(
            REPOSITORY
            + """
            git log --format='%an <%ae> %cn %D'
            ! git hello 2>/dev/null
            """
        )
        assert done.said == "Ada Lovelace <ada@example.org> Ada Lovelace HEAD -> trunk"
        config = (desk.workspace / ".git" / "config").read_text()
        assert "[user]" not in config
        assert host_git(desk, "status", "--porcelain") == ""


async def test_a_git_repository_is_made_and_worked_in_over_many_calls(place):
    """An agent's work is commits; one that is lost, or asked about, ends the agent's use."""
    async with desk_at(place) as desk:
        await desk.shell(REPOSITORY)
        await desk.shell("echo four >>a.txt; git diff | cat; git add a.txt; git commit -qm second")
        await desk.shell("git branch old HEAD~1; git switch -qc topic; git branch -m topic work")
        await desk.shell(
            "echo new >b.txt; git add b.txt; git commit -qm third; git tag -a v1 -m v1"
        )
        await desk.shell(
            "git switch -q trunk; git merge --no-ff -qm merged work; git branch -d work"
        )
        await desk.shell("git switch -q old; git merge -q --ff-only trunk; git switch -q trunk")
        await desk.shell(
            "git mv b.txt c.txt; git commit -qm moved; git rm -q c.txt; git commit -qm rm"
        )
        await desk.shell("git revert --no-edit HEAD; git cherry-pick --allow-empty v1 || true")
        await desk.shell("git cherry-pick --abort || true; git reset -q --hard v1; git clean -qfdx")
        await desk.shell("echo x >>a.txt; git stash -q; git switch -qc later; git stash pop -q")
        await desk.shell(
            "git checkout -q a.txt; git restore --source HEAD~1 a.txt; git reset -q --hard"
        )
        await desk.shell("git notes add -m note HEAD; git pack-refs --all; git reflog expire --all")
        done = await desk.shell("git log --oneline --graph --all | wc -l; git blame a.txt | wc -l")
        assert int(done.said.split()[0]) > 5
        assert host_git(desk, "fsck", "--strict", "--no-dangling") == ""
        assert host_git(desk, "status", "--porcelain") == ""
        assert host_git(desk, "tag").split() == ["v1"]
        assert host_git(desk, "show", "-s", "--format=%an", "HEAD").strip() == "Ada Lovelace"


async def test_a_conflict_in_a_merge_and_in_a_rebase_waits_between_two_calls(place):
    """The state of a half done rebase lies in .git, and the next call goes on with it."""
    async with desk_at(place) as desk:
        await desk.shell(
            REPOSITORY
            + """
            git switch -qc topic
            sed -i s/two/TWO/ a.txt; git commit -qam topic
            echo more >more.txt; git add more.txt; git commit -qm more
            git switch -q trunk
            sed -i s/two/zwei/ a.txt; git commit -qam trunk
            """
        )
        await desk.shell("git merge topic", exit_code=1)
        assert "<<<<<<<" in (desk.workspace / "a.txt").read_text()
        await desk.shell("git status -s; git merge --abort")
        await desk.shell("git switch -q topic; git rebase -q trunk", exit_code=1)
        assert (desk.workspace / ".git" / "rebase-merge" / "git-rebase-todo").exists()
        await desk.shell(
            """
            sed -i '/^[<=>]/d; /^two$/d; /^zwei$/d; s/^TWO$/both/' a.txt; git add a.txt
            GIT_EDITOR=true git rebase --continue
            """
        )
        await desk.shell("GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -qi trunk")
        assert host_git(desk, "log", "--format=%s").split("\n")[:-1] == ["topic", "trunk", "first"]
        assert host_git(desk, "status", "--porcelain") == ""


async def test_git_takes_nothing_that_another_call_wrote_for_changed(place):
    """A kept file has another inode and ctime than it had in its jail.

    git commands that do not refresh their index then refuse to work: `git merge --abort`, `git
    apply --index`, `git read-tree -u`, and scripts that ask `git diff-files`.
    """
    async with desk_at(place) as desk:
        host_git(desk, "init", "-q", ".")
        desk.write({"host.txt": "one\n"})
        host_git(desk, "add", "-A")
        host_git(desk, "commit", "-qm", "by the host")
        await desk.shell("git diff-files --quiet")
        await desk.shell(
            """
            printf 'one\n' >a.txt; git add -A; git commit -qm first
            git switch -qc topic; echo topic >a.txt; echo more >more.txt
            git add -A; git commit -qm topic
            git switch -q trunk; echo trunk >a.txt; git commit -qam trunk
            """
        )
        await desk.shell("git diff-files --quiet; git diff-index --quiet HEAD")
        await desk.shell("git merge topic", exit_code=1)
        await desk.shell("git merge --abort")
        assert (desk.workspace / "a.txt").read_text() == "trunk\n"
        assert not (desk.workspace / "more.txt").exists()
        # What is changed within the same second, to the same size, is still seen.
        await desk.shell(
            """
            printf 1 >s; git add s; git commit -qm s; printf 2 >s
            ! git diff-files --quiet
            test "$(git status --porcelain)" = ' M s'
            git commit -qam s; printf 3 >s
            """
        )
        await desk.shell("git diff-files --quiet", exit_code=1)
        await desk.shell(
            "git format-patch -q -1; git reset -q --hard HEAD~1; git am -q 0001-s.patch"
        )
        await desk.shell("git diff HEAD~1 >d; git apply -R --index d; git apply --index d; rm d")


async def test_git_worktrees_are_added_worked_in_and_removed(place):
    """Each names the other by an absolute path: a file that leads git elsewhere would ask."""
    async with desk_at(place) as desk:
        await desk.shell(REPOSITORY)
        await desk.shell("git worktree add -q trees/topic -b topic")
        await desk.shell("cd trees/topic; echo x >x.txt; git add x.txt; git commit -qm x")
        await desk.shell("git merge -q topic; git worktree list | wc -l")
        assert (desk.workspace / "x.txt").read_text() == "x\n"
        assert len(host_git(desk, "worktree", "list").splitlines()) == 2
        await desk.shell("git worktree remove trees/topic; git worktree prune; git branch -d topic")
        assert host_git(desk, "status", "--porcelain") == ""
        assert not (desk.workspace / "trees" / "topic").exists()


async def test_git_gc_packs_more_objects_than_may_be_deleted_unasked(place):
    """gc deletes hundreds of files, and loses nothing."""
    async with desk_at(place) as desk:
        await desk.shell(
            REPOSITORY
            + """
            for i in $(seq 120); do echo $i >src/$i.txt; done
            git add -A; git commit -qm many
            """
        )
        packed = await desk.shell("git gc -q")
        assert len(packed.effects.deleted) > 120
        again = await desk.shell("echo x >>a.txt; git commit -qam x; git gc -q")
        assert any(path.endswith(".pack") for path in again.effects.deleted)
        assert host_git(desk, "fsck", "--strict", "--no-dangling") == ""
        assert host_git(desk, "count-objects").startswith("0 objects")


async def test_a_remote_in_the_workspace_is_pushed_to_fetched_and_pulled_from(place):
    """A bare repository has its config and hooks where a search for `.git` finds nothing."""
    async with desk_at(place) as desk:
        await desk.shell(REPOSITORY)
        await desk.shell("git init -q --bare remotes/origin.git")
        await desk.shell(
            "git remote add origin ./remotes/origin.git; git push -qu origin trunk; git push --tags"
        )
        await desk.shell("git clone -q --no-hardlinks remotes/origin.git other")
        await desk.shell("cd other; echo y >y.txt; git add y.txt; git commit -qm y; git push -q")
        await desk.shell("git fetch -q --prune; git pull -q --rebase; git config user.name Bob")
        await desk.shell("git config merge.ff only; git sparse-checkout set --no-cone /y.txt")
        await desk.shell("git sparse-checkout disable")
        assert (desk.workspace / "y.txt").read_text() == "y\n"
        assert host_git(desk, "-C", "remotes/origin.git", "fsck") == ""
        assert host_git(desk, "config", "--local", "user.name") == "Bob\n"


async def test_a_local_repository_is_cloned_into_tmp_by_file_url_and_without_hard_links(place):
    """The ways out that the hint of a plain clone names have to be ones."""
    async with desk_at(place) as desk:
        await desk.shell(REPOSITORY)
        nothing = await desk.shell(
            """
            git clone -q . /tmp/plain
            git clone -q "file://$PWD" /tmp/url
            git clone -q --no-hardlinks . /tmp/copies
            for one in plain url copies; do cmp a.txt /tmp/$one/a.txt; done
            """
        )
        assert nothing.changed == ()
        await desk.shell('git clone -q "file://$PWD" by-url; git clone -q --no-hardlinks . copies')
        for name in ("by-url", "copies"):
            assert host_git(desk, "-C", name, "fsck", "--strict", "--no-dangling") == ""
            assert (desk.workspace / name / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_a_plain_clone_inside_the_workspace_fails_and_the_way_out_is_told(place):
    """Otherwise a model meets a failure that it has never seen, and gives up."""
    async with desk_at(place) as desk:
        await desk.shell(REPOSITORY)
        result = await desk.shell("git clone -q . copy", exit_code=128)
        assert not (desk.workspace / "copy" / ".git" / "HEAD").exists()
        (hint,) = result.hints
        assert "--no-hardlinks" in hint
        assert "file://" in hint


async def test_a_tracked_env_file_stays_the_hosts_while_git_puts_back_the_rest(place):
    """git takes the hidden file for a deleted one, and would write an old secret over the new."""
    async with desk_at(place, masked=(".env",)) as desk:
        desk.write({".env": "TOKEN=old\n", "a.txt": "one\n", "b.txt": "one\n"})
        host_git(desk, "init", "-q", ".")
        host_git(desk, "add", "-A")
        host_git(desk, "commit", "-qm", "first")
        desk.write({".env": "TOKEN=new\n"})
        secret = (desk.workspace / ".env").stat()

        assert (await desk.shell("git status --porcelain")).said == " D .env"
        await desk.shell("echo two >a.txt; echo two >b.txt")
        await desk.shell("git checkout -q .", dropped=(".env",))
        assert (desk.workspace / "a.txt").read_text() == "one\n"
        await desk.shell("echo two >b.txt; git stash -q", dropped=(".env",))
        assert (desk.workspace / "b.txt").read_text() == "one\n"
        assert host_git(desk, "stash", "list").count("\n") == 1
        await desk.shell("git stash pop -q")
        assert (desk.workspace / "b.txt").read_text() == "two\n"
        await desk.shell("git reset -q --hard", dropped=(".env",))
        await desk.shell("echo TOKEN=mine >.env; echo three >a.txt", dropped=(".env",))
        assert (desk.workspace / "a.txt").read_text() == "three\n"

        now = (desk.workspace / ".env").stat()
        assert (desk.workspace / ".env").read_text() == "TOKEN=new\n"
        assert (now.st_ino, now.st_mtime_ns) == (secret.st_ino, secret.st_mtime_ns)
        assert ".env" not in walk(desk.workspace / ".git")


# -- python --------------------------------------------------------------------------------


async def test_an_environment_is_made_and_a_wheel_installed_upgraded_and_uninstalled(place):
    """A .pth, a key or a secrets.json of a package's own is no secret of the person's."""
    shipped = {
        "tiny/__init__.py": "def main(): print('tiny one')\n",
        "tiny/old.py": "",
        "tiny/data/secrets.json": "{}\n",
        "tiny/test/server.key": "not a key\n",
        "tiny/cacert.pem": "-----BEGIN CERTIFICATE-----\n",
        "tiny-hook.pth": "import tiny\n",
    }
    newer = {**shipped, "tiny/__init__.py": "def main(): print('tiny two')\n", "tiny/new.py": ""}
    del newer["tiny/old.py"]
    async with desk_at(place) as desk:
        desk.write(
            {f"wheels/{name}": data for name, data in (wheel("1.0", shipped), wheel("2.0", newer))}
        )
        made = await desk.shell("python3 -m venv .venv")
        assert any(path.endswith("distutils-precedence.pth") for path in made.effects.created)
        assert any(path.endswith("cacert.pem") for path in made.effects.created)
        pip = ".venv/bin/pip --disable-pip-version-check -q"
        got = await desk.shell(f"{pip} install --no-index --find-links wheels tiny==1.0")
        assert any(path.endswith("tiny-hook.pth") for path in got.effects.created)
        assert (
            await desk.shell(".venv/bin/tiny; . .venv/bin/activate; tiny")
        ).said == "tiny one\ntiny one"
        await desk.shell(f"{pip} install --no-index --find-links wheels --upgrade tiny")
        assert desk.host(".venv/bin/tiny") == "tiny two\n"
        gone = await desk.shell(f"{pip} uninstall -y tiny; .venv/bin/python -m pip list")
        assert any(path.endswith("server.key") for path in gone.effects.deleted)
        assert not list(desk.workspace.glob(".venv/lib/python3*/site-packages/tiny*"))
        await desk.shell("rm -rf .venv; python3 -m venv --without-pip .venv")


async def test_the_caches_of_pytest_mypy_and_ruff_and_what_formatters_change_are_kept(place):
    """Checks that start from nothing each time are slow; files half formatted are broken."""
    async with desk_at(place) as desk:
        desk.write(
            {
                "pyproject.toml": "[tool.pytest.ini_options]\n",
                "src/code.py": "def double(n:int)->int:\n  return  n*2\n",
                "tests/test_code.py": """
                    import sys
                    sys.path.insert(0, "src")
                    from code_ import double
                    def test_it(): assert double(2) == 4
                    def test_not(): assert double(2) == 5
                """,
            }
        )
        await desk.shell("git init -q .; mv src/code.py src/code_.py; git add -A; git commit -qm x")
        await desk.shell(f"{PYTHON} -m pytest -q -p no:xdist tests", exit_code=1)
        assert (desk.workspace / ".pytest_cache" / "v" / "cache" / "lastfailed").exists()
        await desk.shell("sed -i 's/== 5/== 4/' tests/test_code.py")
        await desk.shell(f"{PYTHON} -m pytest -q -p no:xdist --lf tests")
        assert list(desk.workspace.glob("tests/__pycache__/*.pyc"))
        await desk.shell(f"{RUFF} format -q src tests; {RUFF} check -q src")
        assert (desk.workspace / "src" / "code_.py").read_text() == (
            "def double(n: int) -> int:\n    return n * 2\n"
        )
        assert (desk.workspace / ".ruff_cache").is_dir()
        await desk.shell(f"{PYTHON} -m mypy src/code_.py")
        assert (desk.workspace / ".mypy_cache").is_dir()
        await desk.shell(
            f"{PYTHON} -m compileall -q src; rm -rf .mypy_cache .ruff_cache .pytest_cache"
        )


# -- node ----------------------------------------------------------------------------------


def node_package(version: str) -> bytes:
    return npm_package(
        {
            "package.json": json.dumps(
                {
                    "name": "tiny",
                    "version": version,
                    "main": "index.js",
                    "bin": {"tiny": "cli.js"},
                    "scripts": {"postinstall": "node -e \"fs.writeFileSync('built', '1')\""},
                }
            ),
            "index.js": f"module.exports = '{version}';\n",
            "cli.js": f"#!/usr/bin/env node\nconsole.log('{version}');\n",
            ".github/workflows/ci.yml": "on: push\n",
            ".vscode/settings.json": "{}\n",
            "test/server.key": "not a key\n",
        }
    )


async def test_npm_installs_upgrades_and_installs_anew_from_the_lock_file(place):
    """npm renames whole folders away and back, which an overlay refuses for old ones."""
    npm = "npm --offline --no-audit --no-fund --no-update-notifier --loglevel=error"
    async with desk_at(place) as desk:
        desk.write(
            {
                "package.json": '{"name": "app", "version": "1.0.0"}\n',
                "vendor/tiny-1.0.0.tgz": node_package("1.0.0"),
                "vendor/tiny-2.0.0.tgz": node_package("2.0.0"),
                "packages/near/package.json": '{"name": "near", "version": "1.0.0"}\n',
                "packages/near/index.js": "module.exports = require('tiny');\n",
            }
        )
        await desk.shell(f"{npm} install ./vendor/tiny-1.0.0.tgz ./packages/near")
        assert os.readlink(desk.workspace / "node_modules" / "near") == "../packages/near"
        assert (desk.workspace / "node_modules" / "tiny" / "built").read_text() == "1"
        assert (
            await desk.shell("node_modules/.bin/tiny; npx --offline tiny")
        ).said == "1.0.0\n1.0.0"
        await desk.shell(f"{npm} ci")
        await desk.shell(f"{npm} install ./vendor/tiny-2.0.0.tgz")
        assert desk.host("node", "-p", "require('tiny')") == "2.0.0\n"
        await desk.shell(f"rm -rf node_modules; {npm} ci; {npm} ls")
        await desk.shell(f"{npm} uninstall tiny")
        assert not (desk.workspace / "node_modules" / "tiny").exists()


# -- files ---------------------------------------------------------------------------------


async def test_make_and_gcc_build_run_and_clean(place):
    """A build that is judged or lost makes every build a new one."""
    async with desk_at(place) as desk:
        desk.write(
            {
                "Makefile": "all: build/app\nbuild/app: build/a.o build/b.o\n\tgcc -o $@ $^\n"
                "build/%.o: %.c a.h\n\tmkdir -p build; gcc -c -o $@ $<\nclean:\n\trm -rf build\n",
                "a.h": "int twice(int);\n",
                "a.c": '#include <stdio.h>\n#include "a.h"\nint main(){printf("%d", twice(2));}\n',
                "b.c": '#include "a.h"\nint twice(int n){return 2 * n;}\n',
            }
        )
        assert (await desk.shell("make -s; build/app")).said == "4"
        again = await desk.shell("make -s")
        assert again.changed == ()
        changed = await desk.shell("sed -i 's/2 \\* n/3 * n/' b.c; make -s -j2")
        assert set(changed.changed) == {"b.c", "build/b.o", "build/app"}
        assert desk.host("build/app") == "6"
        await desk.shell("make -s clean")
        assert not (desk.workspace / "build").exists()


async def test_files_and_folders_are_moved_copied_packed_linked_and_deleted(place):
    """What every shell script does."""
    async with desk_at(place) as desk:
        desk.write({"old/a.txt": "a\n", "old/deep/b.txt": "b\n", "old/deep/run.sh": "#!/bin/sh\n"})
        (desk.workspace / "old" / "deep" / "run.sh").chmod(0o755)
        (desk.workspace / "old" / "link").symlink_to("deep/b.txt")
        moved = await desk.shell("mv old new")
        assert set(moved.effects.deleted) >= {"old", "old/deep/b.txt", "old/link"}
        await desk.shell("mv new/deep/b.txt new/c.txt; mv new/c.txt new/deep/b.txt; mv new/deep up")
        await desk.shell("cp -a up new/copy; cp -r new/copy new/second; diff -r up new/second")
        await desk.shell("tar czf up.tgz up; rm -r up; tar xzf up.tgz; tar tf up.tgz")
        await desk.shell("zip=$(command -v gzip); $zip -k up/b.txt; $zip -d <up/b.txt.gz >up/d.txt")
        await desk.shell("ln -s up/b.txt l1; ln up/b.txt h1; ln -sf a.txt l1; ln -s up folder")
        assert (desk.workspace / "h1").read_text() == "b\n"
        new = await desk.shell("echo x >one; ln one two; ln one new/three; mkfifo pipe")
        assert set(new.effects.created) == {"one", "two", "new/three", "pipe"}
        assert (desk.workspace / "one").stat().st_ino == (
            desk.workspace / "new" / "three"
        ).stat().st_ino
        await desk.shell("chmod 600 up/b.txt; chmod 700 up; chmod -R go-w new; touch up/d.txt")
        await desk.shell(
            "mkdir -p x/y/z; install -m 755 up/run.sh x/y/tool; : >x/empty; truncate -s 1M x/big"
        )
        await desk.shell(
            "find . -name '*.txt' -newer up.tgz -delete; find x -depth -type d -empty -delete"
        )
        await desk.shell("rm -r new; mkdir new; echo n >new/a.txt; rm -f l1 pipe")
        await desk.shell("rm -rf x; echo 'now a file' >x; rm up/run.sh; mkdir up/run.sh")
        await desk.shell(
            r"""touch -- -dash 'with space' $'line\nbreak' $'\xff\xfe' ünïcode '*' '"' """
        )
        assert "\udcff\udcfe" in walk(desk.workspace)
        await desk.shell(
            "chmod 000 one; chmod 4000 two || true; chmod 644 one two; umask 077; echo z >z"
        )
        await desk.shell("chmod 555 up; chmod 400 z")
        await desk.shell("chmod 755 up; rm -f z")


async def test_a_folder_of_more_files_than_may_be_deleted_unasked_is_moved_unasked(place):
    """mv copies and deletes an old folder; it is also the way out of a `git mv` that failed."""
    async with desk_at(place) as desk:
        desk.write({f"src/{n}.txt": f"{n // 2}\n" for n in range(150)} | {"src/empty": ""})
        for n in range(20):
            (desk.workspace / "src" / f"link{n}").symlink_to(f"{n}.txt")
        moved = await desk.shell(
            "git init -q; git add -A; git commit -qm 1; mv src lib; git add -A"
        )
        assert len(moved.effects.deleted) == 172
        await desk.shell(
            "mkdir deep; mv lib deep/lib; for f in deep/lib/*.txt; do mv $f $f.bak; done"
        )
        assert host_git(desk, "status", "--porcelain").count("\n") > 150


NOT_MOVED = [
    "rm -r src; mkdir src",
    "cp -r src lib; rm -r src; for f in lib/*; do echo other >$f; done",
    "mkdir lib; for n in $(seq 150); do ln src/1.txt lib/$n.txt; done; rm -r src",
    "mkdir node_modules; mv src node_modules/src",
    "mv src __pycache__",
    "mv src ignored",
    "mv src .git/objects/src",
    "mv src lib; rm lib/4?.txt lib/5?.txt lib/[67]*; rm lib/*[0-5].txt",
]


async def test_what_is_said_to_be_moved_and_is_not_asks_a_person(place):
    """Otherwise a copy of something else, or one where nobody counts, would hide a deletion."""
    async with desk_at(place) as desk:
        desk.write({f"src/{n}.txt": f"{n}\n" for n in range(150)} | {".gitignore": "ignored/\n"})
        host_git(desk, "init", "-q", ".")
        host_git(desk, "add", "-A")
        before = walk(desk.workspace)
        for script in NOT_MOVED:
            desk.asked_after.clear()
            result = await desk.box.call("shell", {"command": script})
            assert any("files deleted" in text for text in desk.asked_after), script
            assert result.error.kind == "effects_rejected"
        assert walk(desk.workspace) == before
        desk.asked_after.clear()
        await desk.shell("mv src lib")


async def test_patch_sed_and_databases_change_what_was_there(place):
    """Programs that write a new file and rename it, or write into the old one, by lock and map."""
    async with desk_at(place) as desk:
        desk.write({"a.txt": "one\ntwo\n", "b.txt": "one\n"})
        await desk.shell(
            """
            printf '%s\n' '--- a.txt' '+++ a.txt' '@@ -1,2 +1,2 @@' ' one' '-two' '+zwei' >fix.patch
            patch -p0 <fix.patch
            patch -R -p0 --dry-run <fix.patch
            """
        )
        assert (desk.workspace / "a.txt").read_text() == "one\nzwei\n"
        await desk.shell(
            """
            sed -i.orig s/one/eins/ a.txt b.txt
            echo more >>b.txt
            printf X | dd of=b.txt conv=notrunc status=none
            """
        )
        await desk.shell("sqlite3 data.db 'create table t (n); insert into t values (1);'")
        await desk.shell(
            "sqlite3 data.db 'pragma journal_mode=wal; begin; insert into t values (2); commit;'"
        )
        assert (await desk.shell("sqlite3 data.db 'select sum(n) from t'")).said == "3"
        assert desk.host("sqlite3", "data.db", "select count(*) from t") == "2\n"
        await desk.shell(
            """
            python3 - <<'X'
            import mmap, os, tempfile
            with open("a.txt", "r+b") as file, mmap.mmap(file.fileno(), 0) as seen:
                seen[0:1] = b"E"
            with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file:
                file.write("whole")
            os.replace(file.name, "b.txt")
            X
            """.replace("            ", "")
        )
        assert (desk.workspace / "b.txt").read_text() == "whole"


# -- what does not fall back ---------------------------------------------------------------


async def test_a_folder_from_below_that_is_renamed_in_one_step_fails_and_the_way_is_told(place):
    """EXDEV inside one folder is a riddle; mv, npm and pip know it, git mv and os.rename do not."""
    async with desk_at(place) as desk:
        desk.write({"src/a.py": "1\n", "src/deep/b.py": "2\n"})
        await desk.shell("git init -q .; git add -A; git commit -qm first")
        for script, code in (
            ("git mv src lib", 128),
            ('python3 -c \'import os; os.rename("src", "lib")\'', 1),
        ):
            result = await desk.shell(script, exit_code=code)
            (hint,) = result.hints
            assert "EXDEV" in hint
            assert "mv OLD NEW" in hint
            assert result.changed == ()
        # The ways out that the hint names, and a folder that the call itself made.
        await desk.shell("mv src lib; git add -A; git commit -qm moved")
        assert host_git(desk, "ls-files").split() == ["lib/a.py", "lib/deep/b.py"]
        made = await desk.shell(
            'mkdir fresh; echo 1 >fresh/f; python3 -c \'import os; os.rename("fresh", "kept")\''
        )
        assert made.changed == ("kept", "kept/f")
        copied = await desk.box.call(
            "python", {"code": "import shutil\nshutil.move('lib', 'last')"}
        )
        assert copied.error is None
        assert set(copied.effects.created) == {"last", "last/a.py", "last/deep", "last/deep/b.py"}


async def test_python_that_meets_exdev_is_told_the_way_out(place):
    """The error is the handler's own there, and no program's stderr has it."""
    async with desk_at(place) as desk:
        desk.write({"src/a.py": "1\n"})
        result = await desk.box.call("python", {"code": "import os\nos.rename('src', 'lib')"})
        assert result.error.kind == "exception"
        assert "Invalid cross-device link" in result.error.message
        assert "hint: a folder that was here before the call" in result.content
        caught = "import os\ntry: os.rename('src', 'lib')\nexcept OSError as e: print(e.errno)"
        same = await desk.box.call("python", {"code": caught})
        assert (same.error, same.files_changed) == (None, ())


# -- endings and accounts ------------------------------------------------------------------


async def test_a_file_that_was_written_just_before_a_call_is_no_conflict(place):
    """Who writes a file and calls at once was not somebody else, and not meanwhile."""
    async with desk_at(place) as desk:
        for turn in range(20):
            desk.write({"a.txt": f"{turn}\n"})
            result = await desk.box.call("write_file", {"path": "a.txt", "content": "x"})
            assert (result.error, result.files_changed) == (None, ("a.txt",))


async def test_a_nonzero_exit_keeps_what_was_done(place):
    """A failing test run is a result, and its report belongs to it."""
    async with desk_at(place) as desk:
        result = await desk.shell("echo report >report.txt; exit 3", exit_code=3)
        assert (result.result.success, result.result.ok) == (True, False)
        assert result.effects == Effects(created=("report.txt",))


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("python", {"code": "{write}\nraise ValueError(1)"}, "exception"),
        ("python", {"code": "{write}\nimport os; os._exit(4)"}, "exited"),
        ("python", {"code": "{write}\nimport os; os.kill(os.getpid(), 11)"}, "crashed"),
        ("shell", {"command": "{sh}; echo done; sleep 60", "timeout_s": 5}, "timeout"),
        ("shell", {"command": "{sh}; kill -SEGV $$"}, "crashed"),
        ("python", {"code": "{write}\nbytearray(1 << 40)"}, "memory_exceeded"),
    ],
)
async def test_a_call_that_does_not_end_well_keeps_nothing(place, tool, arguments, kind):
    """Half of what a killed program wanted is what nobody wanted."""
    write = "open('new', 'w').write('x'); open('a.txt', 'w').write('y')"
    sh = "echo x >new; echo y >a.txt; rm b.txt"
    async with desk_at(place) as desk:
        desk.write({"a.txt": "a\n", "b.txt": "b\n"})
        before = walk(desk.workspace)
        ready = {
            name: value.format(write=write, sh=sh) if isinstance(value, str) else value
            for name, value in arguments.items()
        }
        result = await desk.box.call(tool, ready)
        assert result.error is not None
        assert result.error.kind == kind
        assert (result.effects, result.files_changed) == (Effects(), ())
        assert walk(desk.workspace) == before
        good = await desk.box.call("python", {"code": write})
        assert good.effects == Effects(created=("new",), modified=("a.txt",))
        assert desk.asked_after == []


async def test_what_was_read_and_changed_is_told_for_every_tool(place):
    """An agent that does not know what changed reads everything again."""
    async with desk_at(place, tools=ALL) as desk:
        desk.write({"a.txt": "one\n", "src/b.py": "one = 1\n", "src/c.md": "two\n"})

        async def told(name: str, **arguments: Any) -> Any:
            before = walk(desk.workspace)
            result = await desk.box.call(name, arguments)
            assert result.error is None, result.error
            desk.account(result, before, walk(desk.workspace))
            return result.files_read, result.files_changed

        assert await told("read_file", path="a.txt") == (("a.txt",), ())
        assert await told("list_directory", path=".", depth=2) == ((), ())
        read, changed = await told("search", pattern="one")
        assert (sorted(read), changed) == (["a.txt", "src/b.py", "src/c.md"], ())
        assert await told("search", pattern="one", glob="*.py") == (("src/b.py",), ())
        assert await told("edit_file", path="a.txt", old="one", new="eins") == (("a.txt",),) * 2
        assert await told("write_file", path="n/w.txt", content="x") == ((), ("n", "n/w.txt"))
        # Rewritten with the same bytes: only its time is another.
        assert await told("write_file", path="n/w.txt", content="x") == ((), ("n/w.txt",))
        assert await told("shout", path="a.txt", out="b.txt") == (None, ("b.txt",))
        assert await told("add", a=1, b=2) == (None, ())
        assert await told("python", code="import os\nos.remove('b.txt')") == (None, ("b.txt",))
        assert await told("shell", command="echo >d; rm d") == (None, ())
        digest = sha256(desk.workspace / "a.txt")
        rewritten = await told("shell", command="cp a.txt t; mv t a.txt; chmod 600 a.txt")
        assert rewritten == (None, ("a.txt",))
        assert sha256(desk.workspace / "a.txt") == digest
