"""Isolation levels, workspace modes and waivers through the public `Executor`, in real jails."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, Executor, Network
from toolcell import _sensitive_files as sensitive_files
from toolcell.approval import deny_all, from_callback, unsafe_approve_all
from toolcell.audit import read
from toolcell.packs import load_pack
from toolcell_sandbox import offers

from .tools_of_tests import ALL, overwrite


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    top = tmp_path.resolve()
    (top / "ws" / "sub").mkdir(parents=True)
    (top / "ws" / "a.txt").write_text("hello\n")
    return top


def box(place: Path, **options: Any) -> Any:
    defaults: dict[str, Any] = {"approver": unsafe_approve_all}
    return Executor(workspace=place / "ws", state_dir=place / "state", **(defaults | options))


def kind(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


def records(place: Path) -> list[dict[str, Any]]:
    return read(place / "state")


def agreeing(asked: list[Any]) -> Any:
    """An approver that says yes, and keeps what it was asked."""

    def approve(request: Any) -> Answer:
        asked.append(request)
        return Answer.once()

    return from_callback(approve)


# -- levels --------------------------------------------------------------------------------

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "a.txt"}),
    ("list_directory", {}),
    ("search", {"pattern": "hello"}),
    ("write_file", {"path": "new.txt", "content": "x"}),
    ("edit_file", {"path": "a.txt", "old": "hello", "new": "bye"}),
    ("shell", {"command": "cat a.txt && echo more > shell.txt"}),
    ("python", {"code": "open('python.txt', 'w').write('x')"}),
]
READERS = ("read_file", "list_directory", "search")


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_every_built_in_tool_works_at_a_level_and_changes_the_workspace(place, level):
    """A level at which half of the tools break is one that nobody uses."""
    async with box(place, isolation=level, workspace_mode="direct") as executor:
        results = [await executor.call(name, arguments) for name, arguments in CALLS]
    assert [kind(result) for result in results] == [None] * 7
    assert all(result.ok for result in results)
    written = {path.name: path.read_text() for path in (place / "ws").iterdir() if path.is_file()}
    assert written == {
        "a.txt": "bye\n",
        "new.txt": "x",
        "shell.txt": "more\n",
        "python.txt": "x",
    }
    writer = results[3].receipt
    assert writer.isolation == level
    if level == "standard":
        assert writer.waived == ("paths_masked", "writes_transactional", "disk_limited")


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_in_a_read_only_workspace_every_tool_reads_and_none_writes(place, level):
    """The mode is a ceiling: also for a tool that says that it writes."""
    async with box(place, isolation=level, workspace_mode="read_only") as executor:
        results = {name: await executor.call(name, arguments) for name, arguments in CALLS}
    assert [results[name].ok for name in READERS] == [True] * 3
    assert kind(results["write_file"]) == kind(results["edit_file"]) == "tool_error"
    assert results["shell"].output["stdout"] == "hello\n"
    assert results["shell"].exit_code != 0
    assert kind(results["python"]) == "exception"
    assert sorted(os.listdir(place / "ws")) == ["a.txt", "sub"]
    assert (place / "ws" / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_a_scratch_workspace_is_empty_and_gone_with_the_jail(place, level):
    """Untrusted code may want to write somewhere: not in what it was not given."""
    command = "ls -A; echo x > new; cat new"
    async with box(place, isolation=level) as executor:
        result = await executor.call("shell", {"command": command}, workspace_mode="scratch")
        again = await executor.call("shell", {"command": command}, workspace_mode="scratch")
        missing = await executor.call("read_file", {"path": "a.txt"}, workspace_mode="scratch")
    assert result.output["stdout"] == again.output["stdout"] == "x\n"
    assert kind(missing) == "tool_error"
    assert result.receipt.isolation == level
    assert sorted(os.listdir(place / "ws")) == ["a.txt", "sub"]


async def test_a_mode_that_nobody_named_is_a_transaction(place):
    """What nobody chose to give up is held; and a receipt that says so is not a lie."""
    async with box(place) as executor:
        chance = await executor.call("shell", {"command": "true"})
        named = await executor.call("shell", {"command": "true"}, workspace_mode="direct")
    assert (chance.receipt.isolation, chance.receipt.waived) == ("standard", ())
    assert "overlay" in chance.receipt.held["writes_transactional"]
    assert named.receipt.isolation == "standard"
    assert "writes_transactional" in named.receipt.waived


async def test_direct_gives_a_tool_that_reads_nothing_to_write(place):
    """The operator names what writers get; a reader's own word is the lower one."""
    async with box(place, workspace_mode="direct", tools=[overwrite]) as executor:
        result = await executor.call("overwrite", {"path": "a.txt"})
    assert kind(result) == "exception"
    assert result.receipt.waived == ()
    assert (place / "ws" / "a.txt").read_text() == "hello\n"


async def test_hardened_is_held_or_refused_with_what_helps(place):
    """It insists on control groups and on user ids of its own: root has them, others may not."""
    async with box(place, isolation="hardened", workspace_mode="scratch") as executor:
        result = await executor.call("shell", {"command": "true"})
    if os.geteuid() == 0:
        assert kind(result) is None
        assert result.receipt.isolation == "hardened"
        assert "cgroup" in result.receipt.held["memory_limited"]
    else:
        assert kind(result) == "confinement_failed"
        assert result.receipt.isolation == "partial"
        assert result.error.fix
        assert result.error.fix in result.content


async def test_the_level_comes_from_the_environment_where_none_is_named(place, monkeypatch):
    """An operator sets it once for every program on the host."""
    monkeypatch.setenv("TOOLCELL_ISOLATION", "container")
    async with box(place) as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert result.receipt.isolation == "container"
    async with box(place, isolation="standard") as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert "pid namespace" in result.receipt.held["tree_killed"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"isolation": "strict"}, "standard, hardened, container"),
        ({"workspace_mode": "rw"}, "transaction, read_only, scratch, direct"),
        ({"waive": ["tree_killed"]}, "never waived"),
        ({"waive": ["nets"]}, "net_blocked"),
    ],
)
def test_what_is_not_offered_is_refused_with_what_is(place, options, words):
    """It never slides to something else: who names it must get it."""
    with pytest.raises(ValueError, match=r"offered|later|waive") as refused:
        box(place, **options)
    assert words in str(refused.value)


async def test_a_mode_of_a_call_that_is_not_offered_is_refused(place):
    """A caller's slip is the caller's to see, not a result for a model."""
    async with box(place) as executor:
        with pytest.raises(ValueError, match="not offered"):
            await executor.call("read_file", {"path": "a.txt"}, workspace_mode="overlay")
        with pytest.raises(ValueError, match="not offered"):
            executor.check("read_file", {"path": "a.txt"}, workspace_mode="rw")
    assert records(place) == []


# -- sensitive files at level container ----------------------------------------------------


async def test_a_workspace_with_a_secret_is_refused_where_nothing_can_be_masked(place):
    """At that level every file in the workspace can be read by the tool."""
    (place / "ws" / "sub" / ".env").write_text("TOKEN=1")
    (place / "ws" / "zz.key").write_text("key")
    async with box(place, isolation="container") as executor:
        reader = await executor.call("read_file", {"path": "a.txt"})
        direct = await executor.call("shell", {"command": "true"}, workspace_mode="direct")
        scratch = await executor.call("shell", {"command": "true"}, workspace_mode="scratch")
    for result in (reader, direct):
        assert kind(result) == "confinement_failed"
        error = result.error
        assert (error.guarantee, error.stage) == ("paths_masked", "sensitive files")
        assert error.cause == "2 files that no tool may read would be in reach, first 'sub/.env'"
        assert "--waive paths_masked" in error.fix
        assert result.content.count(error.fix) >= 1
        assert str(place) not in result.content
        assert (result.receipt.isolation, result.receipt.held) == ("partial", {})
    assert scratch.ok
    ends = [record for record in records(place) if record["record"] == "terminal"]
    assert [end["kind"] for end in ends] == ["confinement_failed", "confinement_failed", None]


async def test_a_secret_is_seen_by_the_very_next_call(place):
    """A look that was taken before the file was there says nothing about it."""
    async with box(place, isolation="container") as executor:
        first = await executor.call("read_file", {"path": "a.txt"})
        (place / "ws" / ".env").write_text("TOKEN=1")
        second = await executor.call("read_file", {"path": "a.txt"})
        (place / "ws" / ".env").unlink()
        third = await executor.call("read_file", {"path": "a.txt"})
    assert [kind(each) for each in (first, second, third)] == [None, "confinement_failed", None]


async def test_a_waived_mask_is_asked_about_and_runs(place):
    """Who names it may have it; a person still agrees each time."""
    (place / "ws" / ".env").write_text("TOKEN=1")
    options: dict[str, Any] = {"isolation": "container", "waive": ["paths_masked"]}
    async with box(place, **options) as executor:
        result = await executor.call("shell", {"command": "cat .env"})
        path = await executor.call("read_file", {"path": ".env"})
    assert result.output["stdout"] == "TOKEN=1"
    assert result.decision.level == 3
    assert "paths_masked" in result.receipt.waived
    assert kind(path) == "denied"
    async with box(place, **options, approver=deny_all) as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert kind(result) == "approval_unavailable"


async def test_a_secret_in_a_granted_folder_counts_as_well(place):
    """It is the tool's to read in the same way."""
    share = place / "share"
    share.mkdir()
    (share / "id_rsa").write_text("key")
    async with box(place, isolation="container", read=[share]) as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert kind(result) == "confinement_failed"
    assert result.error.cause.endswith(f"first '{share}/id_rsa'")


async def test_what_cannot_be_looked_through_is_refused_and_says_so(place, monkeypatch):
    """A bound that lets through what lies beyond it is a hiding place."""
    monkeypatch.setattr(sensitive_files, "ENTRIES_MAX", 50)
    for number in range(60):
        (place / "ws" / f"{number}").write_text("")
    async with box(place, isolation="container") as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert kind(result) == "confinement_failed"
    assert "more than 50 entries" in result.error.cause


async def test_a_call_that_is_cancelled_while_it_looks_ends_at_once(place):
    """A large folder must not hold a cancel up."""
    (place / "ws" / "sub" / "more").mkdir()
    entered, cancelled = trio.Event(), []

    class Slow(sensitive_files.Budget):
        def spend(self, entries: int) -> None:
            trio.from_thread.run_sync(entered.set)
            try:
                while True:
                    super().spend(0)
            except trio.Cancelled:
                cancelled.append(True)
                raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensitive_files, "Budget", Slow)
        async with box(place, isolation="container") as executor, trio.open_nursery() as nursery:
            nursery.start_soon(executor.call, "read_file", {"path": "a.txt"})
            await entered.wait()
            nursery.cancel_scope.cancel()
    assert cancelled == [True]
    assert records(place)[-1]["kind"] == "cancelled"


async def test_many_calls_share_their_looks(place, monkeypatch):
    """Each waits for a walk that began after it came, and no two walks go on at once."""
    walks: list[str] = []
    real = sensitive_files.walk

    def counted(top, *more):
        walks.append(top)
        return real(top, *more)

    monkeypatch.setattr(sensitive_files, "walk", counted)
    async with box(place, isolation="container") as executor, trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(executor.call, "read_file", {"path": "a.txt"})
    assert 1 <= len(walks) <= 12
    ends = [record for record in records(place) if record["record"] == "terminal"]
    assert [end["kind"] for end in ends] == [None] * 12


# -- waivers -------------------------------------------------------------------------------


async def test_a_waiver_is_warned_about_once_asked_each_time_and_on_record(place, caplog):
    """A weakening that nobody is reminded of becomes the way things are."""
    asked: list[Any] = []
    approver = agreeing(asked)
    with caplog.at_level(logging.WARNING, logger="toolcell"):
        async with box(
            place,
            waive=["syscalls_filtered", "ipc_private"],
            approver=approver,
            workspace_mode="scratch",
        ) as executor:
            results = [await executor.call("list_directory", {}) for _ in range(2)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "syscalls_filtered, ipc_private" in caplog.text
    assert [request.level for request in asked] == [3, 3]
    assert "waived" in {reason.code for reason in asked[0].reasons}
    for result in results:
        assert result.receipt.waived == ("syscalls_filtered", "ipc_private")
        assert result.receipt.isolation == "standard"
        assert "syscalls_filtered" not in result.receipt.held
    for record in records(place):
        told = record if record["record"] == "intent" else record["receipt"]
        assert told["isolation"] == "standard"
        assert told["waived"] == ["syscalls_filtered", "ipc_private"]


async def test_an_answer_binds_to_the_jail(place):
    """A yes to one jail must not be a yes to a weaker one."""
    share = place / "share"
    share.mkdir()
    hashes = set()
    options: list[dict[str, Any]] = [
        {},
        {"isolation": "hardened"},
        {"isolation": "container"},
        {"network": Network.loopback()},
        {"network": Network.host()},
        {"workspace_mode": "direct"},
        {"workspace_mode": "read_only"},
        {"workspace_mode": "scratch"},
        {"waive": ["paths_masked"]},
        {"read": [share]},
        {"write": [share]},
        {"env": {"A": "1"}},
    ]
    for each in options:
        decision = box(place, **each).check("shell", {"command": "true"})
        hashes.add(decision.plan_hash)
    assert len(hashes) == len(options)
    plain = box(place)
    calls = [plain.check("shell", {"command": "true"}, workspace_mode=m) for m in ("scratch", None)]
    assert calls[0].plan_hash != calls[1].plan_hash


async def test_a_host_without_a_layer_runs_with_the_waiver_and_not_without(place):
    """What is missing must be named by a person before anything runs without it."""
    poor = (await offers.current(thorough=True)).without("ipc_namespace")
    with offers.assume(poor):
        async with box(place, workspace_mode="scratch") as executor:
            refused = await executor.call("list_directory", {})
        async with box(place, workspace_mode="scratch", waive=["ipc_private"]) as executor:
            result = await executor.call("list_directory", {})
    assert kind(refused) == "confinement_failed"
    assert refused.error.guarantee == "ipc_private"
    assert result.ok
    assert (result.receipt.isolation, result.receipt.waived) == ("standard", ("ipc_private",))


# -- packs ---------------------------------------------------------------------------------

PACK = '''
from toolcell import tool

@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"
'''


async def test_a_pack_is_described_at_the_level_that_was_chosen(place, monkeypatch):
    """Where only `container` works, a pack that asks for namespaces could never be named."""
    (place / "pack.py").write_text(PACK)
    poor = (await offers.current()).without("user_namespace")
    monkeypatch.setenv("TOOLCELL_ISOLATION", "container")
    with offers.assume(poor):
        tools = await load_pack(place / "pack.py")
        async with box(place, tools=tools) as executor:
            result = await executor.call("greet", {"name": "you"})
        with pytest.raises(Exception, match="--isolation container"):
            await load_pack(place / "pack.py", isolation="standard")
    assert result.output == "hello you"
    with pytest.raises(ValueError, match="not offered"):
        await load_pack(place / "pack.py", isolation="none")


async def test_the_tools_of_the_tests_end_the_same_way_without_namespaces(place):
    """How a call ended must not depend on the level that it ran at."""
    expected: dict[str, str | None] = {
        "add": None,
        "refuse": "tool_error",
        "crash": "crashed",
        "leave": "exited",
        "forge": "protocol_error",
        "swell": "memory_exceeded",
        "orphans": None,
    }
    arguments: dict[str, dict[str, Any]] = {"add": {"a": 1, "b": 2}, "refuse": {"why": "no"}}
    async with box(place, isolation="container", tools=ALL) as executor:
        ends = {name: kind(await executor.call(name, arguments.get(name, {}))) for name in expected}
    assert ends == expected
