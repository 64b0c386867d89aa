"""What a call did to its workspace: judged, asked about, refused, parked; through the executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, Executor
from toolcell.approval import deny_all, unsafe_approve_all
from toolcell.audit import read
from toolcell_sandbox.spec import Limits

from .tools_of_tests import ALL


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    workspace = tmp_path / "ws"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "a.txt").write_text("hello\n")
    (workspace / "sub" / ".env").write_text("TOKEN=1\n")
    (workspace / "sub" / "code.py").write_text("x = 1\n")
    return tmp_path.resolve()


def executor(place: Path, **options: Any) -> Any:
    defaults: dict[str, Any] = {"tools": ALL, "approver": unsafe_approve_all}
    return Executor(workspace=place / "ws", state_dir=place / "state", **(defaults | options))


def kind(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


def tree(place: Path) -> dict[str, Any]:
    """Everything in the workspace: names, contents, modes and times."""
    found: dict[str, Any] = {}
    for path in sorted((place / "ws").rglob("*")):
        state = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(place / "ws"))] = (
            state.st_mode, state.st_mtime_ns, state.st_ino, content
        )  # fmt: skip
    return found


class Reviewer:
    """Says yes before the run, and what it was told to after; remembers what it was shown."""

    def __init__(self, after: Answer) -> None:
        self.after = after
        self.shown: list[Any] = []

    async def __call__(self, request: Any) -> Answer:
        if request.stage == "before":
            return Answer.once()
        self.shown.append(request)
        return self.after


# -- kept ----------------------------------------------------------------------------------


async def test_what_a_call_did_is_kept_and_told_exactly(place):
    """An agent that is told of another change than it made repairs what is not broken."""
    command = (
        "echo more >> a.txt; mkdir new; echo n > new/file; ln -s file new/link; rm sub/code.py"
    )
    async with executor(place) as box:
        result = await box.call("shell", {"command": f"{command}; rm sub/code.py"})
        again = await box.call("shell", {"command": "cat a.txt new/file"})
    assert kind(result) is None
    assert result.effects.created == ("new", "new/file", "new/link")
    assert result.effects.modified == ("a.txt",)
    assert result.effects.deleted == ("sub/code.py",)
    assert result.files_changed == result.effects.paths
    assert (place / "ws" / "a.txt").read_text() == "hello\nmore\n"
    assert os.readlink(place / "ws" / "new" / "link") == "file"
    assert again.output["stdout"] == "hello\nmore\nn\n"
    assert again.files_changed == ()
    assert not [name for name in os.listdir(place / "ws") if name.startswith(".toolcell")]


async def test_a_nonzero_exit_keeps_its_effects_and_a_failure_keeps_none(place):
    """The exit code is data; but what failed half way is nobody's wish."""
    async with executor(place) as box:
        kept = await box.call("shell", {"command": "echo x > kept; exit 3"})
        before = tree(place)
        failures = [
            await box.call("python", {"code": "open('a.txt','w').write('y'); 1/0"}),
            await box.call("shell", {"command": "echo y > a.txt; sleep 100", "timeout_s": 0.5}),
            await box.call("shell", {"command": "echo y > a.txt; kill -SEGV $$"}),
        ]
    assert (kind(kept), kept.exit_code, kept.files_changed) == (None, 3, ("kept",))
    assert [kind(each) for each in failures] == ["exception", "timeout", "crashed"]
    assert all(each.files_changed == () for each in failures)
    assert tree(place) == before


async def test_a_directly_written_workspace_says_that_nobody_observed_it(place):
    """`files_changed` is a fact, or it is None."""
    async with executor(place, workspace_mode="direct") as box:
        start = box.baseline()
        result = await box.call("shell", {"command": "echo x > new"})
        assert await box.changes_since(start) is None
    assert (result.files_changed, result.effects) == (None, None)


async def test_transient_edits_net_out(place):
    """A verification that cannot tell a forgotten debug print from none trusts the agent's word."""
    async with executor(place) as box:
        start = box.baseline()
        await box.call("shell", {"command": "echo debug >> a.txt; touch probe"})
        dirty = await box.changes_since(start)
        await box.call("shell", {"command": "printf 'hello\\n' > a.txt; rm probe"})
        clean = await box.changes_since(start)
    assert (dirty.modified, dirty.created) == (("a.txt",), ("probe",))
    assert clean.paths == ()


# -- masked, and refused -------------------------------------------------------------------


async def test_what_is_masked_is_absent_and_its_loss_is_refused_by_name(place):
    """One whiteout of a folder would take a secret along that the call never saw."""
    before = tree(place)
    async with executor(place) as box:
        seen = await box.call("shell", {"command": "ls -A sub; cat sub/.env"})
        result = await box.call("shell", {"command": "rm -rf sub"})
    assert seen.output["stdout"] == "code.py\n"
    assert kind(result) == "effects_refused"
    assert [one["path"] for one in result.error.paths] == ["sub/.env"]
    assert result.error.paths[0]["rule"]
    assert result.effects.refused == result.error.paths
    assert "sub/.env" in result.content
    assert tree(place) == before
    assert result.receipt.held["paths_masked"].startswith("overlay whiteouts")


async def test_a_masked_name_that_is_made_anew_stays_the_hosts_and_the_rest_is_kept(place):
    """`git stash` writes every tracked file again: the secret must survive it, and so the work."""
    async with executor(place) as box:
        result = await box.call("shell", {"command": "echo mine > sub/.env; echo x > sub/new"})
    assert kind(result) is None
    assert (place / "ws" / "sub" / ".env").read_text() == "TOKEN=1\n"
    assert result.files_changed == ("sub/new",)
    assert [(one["path"], one["code"]) for one in result.effects.refused] == [
        ("sub/.env", "masked_kept")
    ]


async def test_a_new_secret_name_a_link_out_and_a_setuid_bit_are_refused(place):
    """Nothing of such a call is kept, whoever has agreed to it."""
    before = tree(place)
    async with executor(place) as box:
        results = [
            await box.call("shell", {"command": f"echo x > fine; {command}"})
            for command in (
                "echo x > sub/id_rsa",
                "ln -s /etc/passwd out",
                "ln -s ../../.. up",
                "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
            )
        ]
    assert [kind(each) for each in results] == ["effects_refused"] * 4
    codes = [each.error.paths[0]["code"] for each in results]
    assert codes == ["path_protected", "link_outside", "link_outside", "socket"]
    assert tree(place) == before


async def test_a_name_that_appears_while_a_call_runs_ends_it(place):
    """The mask layer is of names: one that comes later would be seen."""
    async with executor(place) as box:
        ready = trio.Event()

        async def heard(name: str, chunk: bytes) -> None:
            ready.set()

        results: list[Any] = []

        async def call() -> None:
            command = "echo x > new; echo ready; sleep 100"
            results.append(await box.call("shell", {"command": command}, sink=heard))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await ready.wait()
            (place / "ws" / "harmless").write_text("")
            (place / "ws" / "sub" / "id_rsa").write_text("KEY")
        after = await box.call("shell", {"command": "ls sub"})
    (result,) = results
    assert kind(result) == "confinement_failed"
    assert (result.error.guarantee, result.error.stage) == ("paths_masked", "run")
    assert "sub/id_rsa" in result.error.cause
    assert "paths_masked" not in result.receipt.held
    assert not (place / "ws" / "new").exists()
    assert after.output["stdout"] == "code.py\n"


async def test_a_hidden_file_that_git_tracks_is_named_where_git_speaks_of_it(place):
    """Git calls it deleted; a model that believes it commits the loss."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=b", "-C", str(place / "ws")]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    async with executor(place) as box:
        status = await box.call("shell", {"command": "git status --short"})
        other = await box.call("shell", {"command": "ls"})
    assert " D sub/.env" in status.output["stdout"]
    assert "git tracks 'sub/.env', hidden from every call" in status.content
    assert status.metadata["tracked_hidden"] == ["sub/.env"]
    assert "hint" not in other.content


# -- asked ---------------------------------------------------------------------------------


async def test_what_a_project_runs_is_asked_about_with_a_diff(place):
    """A hook or a workflow runs later, outside of any jail."""
    reviewer = Reviewer(Answer.once())
    async with executor(place, approver=reviewer) as box:
        plain = await box.call("shell", {"command": "echo x > plain"})
        asked = await box.call(
            "write_file", {"path": ".github/workflows/ci.yml", "content": "on: push\n"}
        )
    assert (kind(plain), kind(asked)) == (None, None)
    (request,) = reviewer.shown
    assert request.stage == "after"
    assert request.level == 3
    assert request.remember_options == ()
    assert "+ .github/workflows/ci.yml, 9 bytes" in request.text
    assert "+on: push" in request.diff
    assert len(request.plan_hash) == 64
    assert (place / "ws" / ".github" / "workflows" / "ci.yml").read_text() == "on: push\n"


@pytest.mark.parametrize("answer", [Answer.reject("not today"), Answer.stop("enough")])
async def test_a_no_after_the_run_keeps_nothing(place, answer):
    """Whoever looked has decided."""
    before = tree(place)
    async with executor(place, approver=Reviewer(answer), review=True) as box:
        result = await box.call("shell", {"command": "echo x > new; rm a.txt"})
    assert kind(result) == "effects_rejected"
    assert result.error.why == answer.why
    assert result.terminate is (answer.kind == "stop")
    assert result.files_changed == ()
    assert tree(place) == before


async def test_nobody_to_ask_is_a_refusal_and_a_review_that_nobody_saw_a_rejection(place):
    """Silence is no yes."""
    before = tree(place)
    async with executor(place, approver=Reviewer(Answer.unavailable("nobody"))) as box:
        refused = await box.call("shell", {"command": "mkdir .vscode; echo 1 > .vscode/tasks.json"})
        unseen = await box.call("shell", {"command": "echo x > new"}, review=True)
        nothing = await box.call("shell", {"command": "true"}, review=True)
    assert kind(refused) == "effects_refused"
    assert ".vscode/tasks.json" in {one["path"] for one in refused.error.paths}
    assert kind(unseen) == "effects_rejected"
    assert kind(nothing) is None
    assert tree(place) == before


async def test_an_approver_that_remembers_after_the_run_has_not_said_yes(place):
    """What was done once is no rule for what will be done."""
    async with executor(place, approver=Reviewer(Answer.remember("session")), review=True) as box:
        result = await box.call("shell", {"command": "echo x > new"})
    assert kind(result) == "effects_rejected"
    assert not (place / "ws" / "new").exists()


async def test_a_person_who_saves_while_it_is_reviewed_wins(place):
    """Minutes may pass; what they wrote meanwhile is theirs."""

    async def reviewer(request: Any) -> Answer:
        if request.stage == "after":
            (place / "ws" / "a.txt").write_text("theirs\n")
        return Answer.once()

    async with executor(place, approver=reviewer, review=True) as box:
        result = await box.call("shell", {"command": "echo ours > a.txt; echo x > new"})
    assert kind(result) == "commit_conflict"
    assert (result.error.retryable, result.error.paths) == ("yes", ("a.txt",))
    assert (place / "ws" / "a.txt").read_text() == "theirs\n"
    assert not (place / "ws" / "new").exists()


async def test_a_cancel_while_it_is_reviewed_keeps_nothing(place):
    """A caller who has gone away has not agreed."""
    before = tree(place)
    asked = trio.Event()

    async def reviewer(request: Any) -> Answer:
        if request.stage == "after":
            asked.set()
            await trio.sleep_forever()
        return Answer.once()

    async with (
        executor(place, approver=reviewer, review=True) as box,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(box.call, "shell", {"command": "echo x > new"})
        await asked.wait()
        nursery.cancel_scope.cancel()
    assert tree(place) == before
    assert read(place / "state")[-1]["kind"] == "cancelled"


async def test_many_deletions_ask(place):
    """`rm -rf *` is one command, and a morning's work."""
    for number in range(150):
        (place / "ws" / f"file{number}").write_text("x")
    before = tree(place)
    async with executor(place, approver=Reviewer(Answer.unavailable("nobody"))) as box:
        result = await box.call("shell", {"command": "rm -f file*"})
    assert kind(result) == "effects_refused"
    assert result.error.paths[0]["code"] == "blast_radius"
    assert tree(place) == before


# -- parked --------------------------------------------------------------------------------


def toolcell(place: Path, *words: str) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from toolcell.cli import main; sys.exit(main())",
            *words,
        ],
        cwd=place / "ws",
        env={**os.environ, "TOOLCELL_STATE_DIR": str(place / "state")},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return done


async def parked(place: Path, command: str) -> str:
    async with executor(place, approver=Reviewer(Answer.unavailable()), on_refused="park") as box:
        result = await box.call("shell", {"command": command})
    assert kind(result) == "effects_refused"
    handle = result.error.handle
    assert isinstance(handle, str)
    assert handle in result.error.message
    return handle


async def test_what_is_parked_is_shown_and_committed_without_what_nobody_may_write(place):
    """A person comes back in the evening: the work is not lost, and the floor still holds."""
    before = tree(place)
    handle = await parked(
        place, "mkdir .vscode; echo 1 > .vscode/tasks.json; echo x >> a.txt; echo k > id_rsa"
    )
    assert tree(place) == before
    listed = json.loads(toolcell(place, "effects", "show", "--json").stdout)
    assert [one["handle"] for one in listed["parked"]] == [handle]
    shown = toolcell(place, "effects", "show", handle)
    assert shown.returncode == 0
    assert "+ .vscode/tasks.json" in shown.stdout
    assert "+x" in shown.stdout
    done = toolcell(place, "effects", "commit", handle)
    assert done.returncode == 0, done
    assert "left out id_rsa" in done.stderr
    assert (place / "ws" / ".vscode" / "tasks.json").read_text() == "1\n"
    assert (place / "ws" / "a.txt").read_text() == "hello\nx\n"
    assert not (place / "ws" / "id_rsa").exists()
    assert toolcell(place, "effects", "commit", handle).returncode == 2
    assert os.listdir(place / "state" / "parked") == []


async def test_a_deletion_that_was_refused_leaves_the_folder_that_it_is_in(place):
    """What stays needs its folder."""
    handle = await parked(place, "rm -rf sub; echo x > new")
    done = json.loads(toolcell(place, "effects", "commit", handle, "--json").stdout)
    assert [one["path"] for one in done["effects"]["deleted"]] == ["sub/code.py"]
    assert (place / "ws" / "sub" / ".env").read_text() == "TOKEN=1\n"
    assert (place / "ws" / "new").exists()


async def test_parked_changes_that_were_tampered_with_or_overtaken_are_not_kept(place):
    """What a person agrees to is what was judged."""
    handle = await parked(place, "mkdir .vscode; echo 1 > .vscode/tasks.json; echo x >> a.txt")
    (place / "ws" / "a.txt").write_text("theirs\n")
    overtaken = toolcell(place, "effects", "commit", handle)
    assert overtaken.returncode == 1
    assert "a.txt" in overtaken.stderr
    assert not (place / "ws" / ".vscode").exists()
    layer = place / "state" / "parked" / handle / "layer"
    (layer / ".vscode" / "tasks.json").write_text("evil")
    tampered = toolcell(place, "effects", "commit", handle)
    assert tampered.returncode == 2
    assert "not what was judged" in tampered.stderr
    assert toolcell(place, "effects", "drop", handle).returncode == 0
    assert toolcell(place, "effects", "show", handle).returncode == 2
    assert toolcell(place, "effects", "show", "../../etc").returncode == 2


async def test_without_parking_nothing_of_a_refused_call_is_left(place):
    """A secret that a call wrote must not lie about in our state."""
    async with executor(place, approver=deny_all, limits=Limits(wall_s=20)) as box:
        result = await box.call("read_file", {"path": "a.txt"})
    assert kind(result) is None
    assert not (place / "state" / "parked").exists()


async def test_a_file_that_a_person_changed_during_the_call_is_theirs_when_it_is_committed(place):
    """What was parked may be a day old; and their edit may be older than the parking."""
    reviewer = Reviewer(Answer.unavailable())
    async with executor(place, approver=reviewer, on_refused="park") as box:
        ready = trio.Event()

        async def heard(name: str, chunk: bytes) -> None:
            (place / "ws" / "a.txt").write_text("theirs\n")
            (place / "go").write_text("")
            ready.set()

        command = "echo ours > a.txt; echo k > id_rsa; echo ready; cat a.txt > /dev/null; sleep 0.2"
        result = await box.call("shell", {"command": command}, sink=heard)
    assert ready.is_set()
    assert kind(result) == "effects_refused"
    done = toolcell(place, "effects", "commit", result.error.handle)
    assert done.returncode == 1
    assert (place / "ws" / "a.txt").read_text() == "theirs\n"


async def test_a_key_by_another_name_is_left_out_of_what_was_parked_too(place):
    """Judged anew means by its content, whichever of its names that content lies under."""
    command = (
        "printf -- '-----BEGIN PRIVATE KEY-----' > a1; ln a1 k.pem; mkdir .vscode; "
        "echo 1 > .vscode/tasks.json"
    )
    handle = await parked(place, command)
    done = toolcell(place, "effects", "commit", handle)
    assert done.returncode == 0, done
    assert "left out k.pem" in done.stderr
    assert (place / "ws" / ".vscode" / "tasks.json").exists()
    assert not (place / "ws" / "k.pem").exists()


async def test_holes_are_parked_as_holes(place):
    """A sparse file of the size that a call may write would fill the disk of the state folder."""
    handle = await parked(place, "truncate -s 300M big; echo k > id_rsa")
    found = (place / "state" / "parked" / handle / "layer" / "big").stat()
    assert found.st_size == 300 << 20
    assert found.st_blocks * 512 < 1 << 20


async def test_a_manifest_of_another_workspace_is_damaged(place):
    """Somebody else's folder would be written to."""
    handle = await parked(place, "echo k > id_rsa; echo x > new")
    manifest = place / "state" / "parked" / handle / "manifest.json"
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(told | {"workspace": str(place)}))
    done = toolcell(place, "effects", "commit", handle)
    assert done.returncode == 2
    assert "damaged" in done.stderr


# -- what does not fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reached"),
    [
        ("head -c 20000000 /dev/zero > big; echo done", "bytes"),
        ("for n in $(seq 100); do : > file$n; done; true", "files"),
    ],
)
async def test_a_command_that_filled_its_layer_keeps_no_part(place, command, reached):
    """Half of a file looks like a whole one to whoever finds it."""
    before = tree(place)
    limits = Limits(wall_s=30, disk_bytes=8 << 20, disk_files=64)
    async with executor(place, limits=limits) as box:
        result = await box.call("shell", {"command": command})
        fits = await box.call("shell", {"command": "echo x > fits"})
    assert kind(result) == "disk_exceeded"
    assert (result.error.reached, result.files_changed) == (reached, ())
    assert kind(fits) is None
    (place / "ws" / "fits").unlink()
    assert tree(place) == before


@pytest.mark.parametrize("folder", [".", "/tmp"])
@pytest.mark.parametrize("granted", [0, 20])
async def test_a_limit_of_files_is_the_same_whatever_the_jail_itself_needs(place, granted, folder):
    """A mount point takes a file: with an interpreter elsewhere the limit would be another."""
    grants = [place / f"granted{n}" for n in range(granted)]
    for grant in grants:
        grant.mkdir()
    command = (
        f"cd {folder}; n=0; while n=$((n+1)); do : > made-$n || break; done 2>/dev/null; "
        "echo $((n-1)); rm made-*"
    )
    limits = Limits(wall_s=30, disk_files=64)
    async with executor(place, limits=limits, read=grants) as box:
        result = await box.call("shell", {"command": command})
    assert result.stdout.text() == "64\n", result


# -- several calls at once -----------------------------------------------------------------


async def test_two_calls_that_are_harmless_apart_are_judged_together(place):
    """One writes settings, the other makes a repository of their folder: git obeys both."""
    (place / "ws" / "x").mkdir()
    commands = (
        "printf '[core]\\n\\tfsmonitor = ./evil\\n' > x/config",
        "mkdir x/objects x/refs; echo 'ref: refs/heads/main' > x/HEAD",
    )
    together = trio.Event()
    waiting: list[str] = []

    async def reviewer(request: Any) -> Answer:
        if request.stage == "after":
            return Answer.unavailable("nobody")
        waiting.append(request.call_id)
        if len(waiting) == 2:
            together.set()
        await together.wait()
        return Answer.once()

    results: list[Any] = []
    async with executor(place, approver=reviewer) as box:

        async def call(command: str) -> None:
            results.append(await box.call("shell", {"command": command}))

        async with trio.open_nursery() as nursery:
            for command in commands:
                nursery.start_soon(call, command)
    assert sorted(map(str, map(kind, results))) == ["None", "effects_refused"]


async def test_a_granted_folder_in_the_workspace_is_part_of_the_transaction(place):
    """A grant to write would take the masks and the judge away from what lies in it."""
    async with executor(place, write=[place / "ws" / "sub"]) as box:
        result = await box.call("shell", {"command": "ls -A sub; rm -rf sub; echo x > new"})
        kept = await box.call("shell", {"command": "echo y >> sub/code.py"})
    assert result.output is None
    assert kind(result) == "effects_refused"
    assert "code.py" in result.content
    assert kept.files_changed == ("sub/code.py",)
    assert (place / "ws" / "sub" / ".env").exists()


async def test_everything_at_the_top_is_everything_that_can_be_seen(place):
    """One hidden name must not turn `rm -rf *` into usual work."""
    (place / "ws" / ".env").write_text("TOKEN=1\n")
    for name in ("b.txt", "c.txt"):
        (place / "ws" / name).write_text("x")
    (place / "ws" / "sub" / ".env").unlink()
    async with executor(place, approver=Reviewer(Answer.unavailable())) as box:
        result = await box.call("shell", {"command": "rm -rf ./*"})
    assert kind(result) == "effects_refused"
    assert result.error.paths[-1]["code"] == "blast_radius"


# -- what is read --------------------------------------------------------------------------


async def test_files_read_are_told_by_built_in_tools_alone(place):
    """A handler's own word about it is no observation."""
    async with executor(place) as box:
        read = await box.call("read_file", {"path": "sub/../a.txt"})
        found = await box.call("search", {"pattern": "x"})
        edited = await box.call("edit_file", {"path": "a.txt", "old": "hello", "new": "bye"})
        ran = await box.call("shell", {"command": "cat a.txt"})
    assert read.files_read == ("a.txt",)
    assert found.files_read == ("a.txt", "sub/code.py")
    assert (edited.files_read, edited.files_changed) == (("a.txt",), ("a.txt",))
    assert ran.files_read is None
