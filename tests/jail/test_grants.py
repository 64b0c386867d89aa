"""Host folders, variables and networks that somebody grants by name, in real jails."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcell import Answer, Executor, Network
from toolcell.approval import deny_all, from_callback, unsafe_approve_all

from .tools_of_tests import overwrite


@pytest.fixture
def place(tmp_path: Path, ledger: None) -> Path:
    top = tmp_path.resolve()
    for name in ("ws", "share", "share-secret", "out"):
        (top / name).mkdir()
        (top / name / "a.txt").write_text(f"hello from {name}\n")
    (top / "share" / "sub").mkdir()
    return top


def box(place: Path, **options: Any) -> Any:
    defaults: dict[str, Any] = {"approver": unsafe_approve_all}
    return Executor(workspace=place / "ws", state_dir=place / "state", **(defaults | options))


def kind(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


def agreeing(asked: list[Any]) -> Any:
    """An approver that says yes, and keeps what it was asked."""

    def approve(request: Any) -> Answer:
        asked.append(request)
        return Answer.once()

    return from_callback(approve)


# -- folders -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_a_folder_granted_for_reading_is_read_by_every_tool_and_written_by_none(place, level):
    """A grant that lets more through than it says is worse than none."""
    share = place / "share"
    async with box(place, isolation=level, read=[share]) as executor:
        read = await executor.call("read_file", {"path": f"{share}/a.txt"})
        listed = await executor.call("list_directory", {"path": str(share)})
        found = await executor.call("search", {"pattern": "hello", "path": str(share)})
        shell = await executor.call(
            "shell", {"command": "pwd; cat a.txt; echo x > new || echo refused", "cwd": str(share)}
        )
        written = await executor.call("write_file", {"path": f"{share}/new", "content": "x"})
        edited = await executor.call(
            "edit_file", {"path": f"{share}/a.txt", "old": "hello", "new": "bye"}
        )
    assert read.output == "hello from share\n"
    assert {"path": f"{share}/a.txt", "type": "file", "size": 17} in listed.output["entries"]
    assert [match["path"] for match in found.output["matches"]] == [f"{share}/a.txt"]
    assert shell.output["stdout"] == f"{share}\nhello from share\nrefused\n"
    for refused in (written, edited):
        assert kind(refused) == "denied"
        assert refused.error.remedy == (
            "use a path inside the workspace, or grant its folder: --write DIR (write=)"
        )
    assert sorted(os.listdir(share)) == ["a.txt", "sub"]


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_a_folder_granted_for_writing_is_written_and_said_so(place, level):
    """What a tool puts there stays: whoever agrees has to be told that it is no workspace."""
    out = place / "out"
    asked: list[Any] = []
    approver = agreeing(asked)
    async with box(place, isolation=level, write=[out], approver=approver) as executor:
        written = await executor.call("write_file", {"path": f"{out}/new", "content": "x"})
        edited = await executor.call(
            "edit_file", {"path": f"{out}/a.txt", "old": "hello", "new": "bye"}
        )
        shell = await executor.call("shell", {"command": f"echo y > {out}/shell"})
        read = await executor.call("read_file", {"path": f"{out}/a.txt"})
    assert [kind(each) for each in (written, edited, shell, read)] == [None] * 4
    assert (out / "new").read_text() == "x"
    assert (out / "shell").read_text() == "y\n"
    assert read.output == "bye from out\n"
    assert read.decision.level == 0
    assert asked[0].level == 2
    assert "write_grant" in {reason.code for reason in asked[0].reasons}


async def test_a_tool_that_reads_cannot_write_where_others_may(place):
    """Its word is that it reads; the jail holds it to that, in a granted folder too."""
    out = place / "out"
    async with box(place, write=[out], tools=[overwrite]) as executor:
        result = await executor.call("overwrite", {"path": f"{out}/a.txt"})
    assert kind(result) == "exception"
    assert "Read-only file system" in result.error.message
    assert (out / "a.txt").read_text() == "hello from out\n"


async def test_case_24_what_lies_beside_a_grant_or_behind_a_link_out_of_it_is_refused(place):
    """`/srv/share-secret` beside `/srv/share`: a prefix of text is no folder."""
    share = place / "share"
    (share / "link").symlink_to(place / "share-secret")
    (share / "key").symlink_to(place / "share-secret" / "a.txt")
    (share / "home").symlink_to(place / "ws" / "a.txt")
    async with box(place, read=[share]) as executor:
        for path in (
            f"{share}-secret/a.txt",
            f"{share}/../share-secret/a.txt",
            f"{share}/link/a.txt",
            f"{share}/key",
            f"{share}/sub/../../share-secret/a.txt",
        ):
            refused = await executor.call("read_file", {"path": path})
            assert kind(refused) == "denied", path
            assert refused.error.reasons[0].code == "path_outside_workspace"
        by_link = await executor.call("read_file", {"path": f"{share}/home"})
        shell = await executor.call("shell", {"command": f"cat {share}/key {share}-secret/a.txt"})
    assert by_link.output == "hello from ws\n"
    assert shell.output["exit_code"] == 1
    assert "hello" not in shell.output["stdout"]


async def test_what_is_protected_stays_so_inside_a_grant(place):
    """Whoever grants a folder did not read every name in it."""
    (place / "share" / ".env").write_text("TOKEN=1")
    (place / "out" / ".git").mkdir()
    async with box(place, read=[place / "share"], write=[place / "out"]) as executor:
        read = await executor.call("read_file", {"path": f"{place}/share/.env"})
        asks = executor.check("write_file", {"path": f"{place}/out/.git/config", "content": "x"})
    assert read.error.reasons[0].code == "path_protected"
    assert read.error.remedy is None
    assert (asks.outcome, asks.level) == ("ask", 3)


async def test_a_grant_inside_the_workspace_takes_nothing_from_it(place):
    """A second mount that is read-only would make a writable folder smaller."""
    inside = place / "ws" / "inside"
    inside.mkdir()
    async with box(place, read=[inside], workspace_mode="direct") as executor:
        result = await executor.call("write_file", {"path": "inside/x", "content": "x"})
    assert kind(result) is None
    assert (inside / "x").read_text() == "x"


async def test_a_write_grant_inside_a_read_only_workspace_is_the_one_writable_part(place):
    """One output folder is what most tools need; the rest can stay as it is."""
    inside = place / "ws" / "out"
    inside.mkdir()
    async with box(place, write=[inside], workspace_mode="read_only") as executor:
        result = await executor.call("write_file", {"path": "out/x", "content": "x"})
        refused = await executor.call("write_file", {"path": "x", "content": "x"})
    assert kind(result) is None
    assert kind(refused) == "tool_error"
    assert (inside / "x").read_text() == "x"
    assert not (place / "ws" / "x").exists()


async def test_a_grant_inside_a_scratch_workspace_is_shown_there(place):
    """It was named, and nothing else of the workspace was."""
    inside = place / "ws" / "inside"
    inside.mkdir()
    (inside / "b.txt").write_text("seen\n")
    async with box(place, read=[inside], workspace_mode="scratch") as executor:
        result = await executor.call("shell", {"command": "find . -type f; cat inside/b.txt"})
    assert result.output["stdout"] == "./inside/b.txt\nseen\n"


async def test_the_wider_of_two_grants_holds(place):
    """A grant never takes away: what may be written may be written below as well."""
    share = place / "share"
    async with box(place, read=[share / "sub", share], write=[share]) as executor:
        result = await executor.call("write_file", {"path": f"{share}/sub/x", "content": "x"})
        jail = executor.choices.folders
    assert kind(result) is None
    assert [(one.path, one.writable) for one in jail.granted] == [(str(share), True)]


async def test_a_folder_that_was_replaced_since_is_refused(place):
    """A grant is of one folder, not of whatever has its name by now."""
    share = place / "share"
    async with box(place, read=[share]) as executor:
        share.rename(place / "moved")
        share.mkdir()
        result = await executor.call("read_file", {"path": "a.txt"})
    assert kind(result) == "confinement_failed"
    assert result.error.guarantee == "fs_confined"
    assert result.receipt.isolation == "partial"


async def test_a_link_is_granted_as_what_it_leads_to(place):
    """A jail knows the real path only, so that nothing can be swapped under a name."""
    (place / "alias").symlink_to(place / "share")
    async with box(place, read=[place / "alias"]) as executor:
        real = await executor.call("read_file", {"path": f"{place}/share/a.txt"})
        alias = await executor.call("read_file", {"path": f"{place}/alias/a.txt"})
    assert real.success
    assert kind(alias) == "denied"


async def test_a_yes_for_the_workspace_is_none_for_a_granted_folder(place):
    """A first use is remembered for what was shown, and for nothing wider."""
    asked: list[str] = []

    async def once(request):
        asked.append(request.arguments["path"])
        return Answer.remember("session")

    out = place / "out"
    async with box(place, write=[out], approver=once) as executor:
        for path in ("one", "two", f"{out}/one", f"{out}/two"):
            result = await executor.call("write_file", {"path": path, "content": "x"})
            assert result.success
        scratch = await executor.call(
            "write_file", {"path": "three", "content": "x"}, workspace_mode="scratch"
        )
    assert scratch.success
    assert asked == ["one", f"{out}/one", "three"]


# -- what is never granted -----------------------------------------------------------------


def secret_home(place: Path) -> Path:
    home = place / "person"
    (home / ".ssh").mkdir(parents=True)
    (home / ".aws").mkdir()
    (home / ".config" / "gh").mkdir(parents=True)
    (home / ".config" / "plain").mkdir()
    (home / ".local" / "bin").mkdir(parents=True)
    (home / "data").mkdir()
    return home


REFUSED = {
    "missing": ("{top}/missing", "name a folder that exists"),
    "file": ("{top}/ws/a.txt", "is not a folder"),
    "nul": ("{top}/a\0b", "cannot be granted"),
    "empty": ("", "name a folder"),
    "root": ("/", "the root folder"),
    "home": ("{home}", "home folder"),
    "above a home": ("{top}", "home folder"),
    "state": ("{top}/state", "toolcell's own state"),
    "inside the state": ("{top}/state/x", "toolcell's own state"),
    "tmp": ("/tmp", "private"),
    "dev": ("/dev", "private"),
    "shm": ("/dev/shm", "private"),
    "proc": ("/proc/self", "the kernel's"),
    "sys": ("/sys/class", "the kernel's"),
    "etc": ("/etc", "protected"),
    "ssh": ("{home}/.ssh", "is protected"),
    "aws": ("{home}/.aws", "is protected"),
    "holds gh": ("{home}/.config", "may hold what is protected"),
}
WRITE_REFUSED = {
    "workspace": ("{top}/ws", "--workspace-mode direct"),
    "local": ("{home}/.local", "may hold what is protected"),
    "git": ("{top}/share/.git", "is protected"),
    "usr": ("/usr/share", "is protected"),
    "srv": ("/srv", "shared by many"),
    "interpreter": (sys.prefix, ""),
    "sys.path": ("{top}/imported", "imports from it"),
    "above sys.path": ("{top}/above", "imports from it"),
}


@pytest.mark.parametrize(
    ("which", "path", "why"),
    [
        *(
            pytest.param(which, *row, id=f"{which}-{name}")
            for which in ("read", "write")
            for name, row in REFUSED.items()
        ),
        *(pytest.param("write", *row, id=f"write-{name}") for name, row in WRITE_REFUSED.items()),
    ],
)
def test_what_is_never_granted_is_refused_at_once_and_says_why(
    place, monkeypatch, which, path, why
):
    """Found at the first call, or never, it is a secret in reach of every tool."""
    home = secret_home(place)
    monkeypatch.setenv("HOME", str(home))
    for name in ("state/x", "imported", "above/imported", "share/.git"):
        (place / name).mkdir(parents=True)
    monkeypatch.setattr(
        sys, "path", [*sys.path, str(place / "imported"), str(place / "above" / "imported")]
    )
    folder = path.format(top=place, home=home)
    with pytest.raises(ValueError, match=f"--{which} ") as refused:
        box(place, **{which: [folder]})
    assert why in str(refused.value)
    assert "name " in str(refused.value) or "kernel" in str(refused.value)


@pytest.mark.parametrize("path", ["{home}/data", "{home}/.config/plain", "{top}/share"])
@pytest.mark.parametrize("which", ["read", "write"])
def test_what_lies_beside_all_that_is_granted(place, monkeypatch, which, path):
    """A check that refuses too much is switched off."""
    home = secret_home(place)
    monkeypatch.setenv("HOME", str(home))
    box(place, **{which: [path.format(top=place, home=home)]})


@pytest.mark.parametrize("option", ["read", "write"])
def test_one_text_is_no_list_of_folders(place, option):
    """Each letter of it would be a folder."""
    with pytest.raises(ValueError, match="list of folders"):
        box(place, **{option: str(place / "share")})


# -- variables -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_a_variable_is_granted_by_name_and_no_other(place, level, monkeypatch):
    """case 22: a token of the supervisor's is nobody else's business."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    async with box(place, isolation=level, env={"GIVEN": "yes"}) as executor:
        result = await executor.call("shell", {"command": "env"})
    assert "GIVEN=yes\n" in result.output["stdout"]
    assert "hunter2" not in result.output["stdout"]


# -- networks ------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A listener on the host's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def reaches(port: int) -> str:
    return (
        "import socket\n"
        "def reach():\n"
        "    try:\n"
        f"        socket.create_connection(('127.0.0.1', {port}), 5).close()\n"
        "    except OSError as error:\n"
        "        return type(error).__name__\n"
        "    return 'reached'\n"
        "reach()"
    )


def came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


TALK = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def answer():
    peer, _ = server.accept()
    peer.sendall(b"pong")
    peer.close()
thread = threading.Thread(target=answer)
thread.start()
client = socket.create_connection(server.getsockname(), 5)
said = client.recv(4)
client.close(); thread.join(); server.close()
said.decode()
"""


async def test_a_loopback_joins_a_jail_with_itself_and_with_nobody_else(place, listener):
    """A test server inside must work, and a database of the host's must not be there."""
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), 5):
        assert came(listener)  # The control: from outside it can be reached.
    async with box(place, network=Network.loopback()) as executor:
        talked = await executor.call("python", {"code": TALK})
        outside = await executor.call("python", {"code": reaches(port)})
        free = executor.check("read_file", {"path": "a.txt"})
    assert talked.output["value"] == "pong"
    assert outside.output["value"] == "ConnectionRefusedError"
    assert not came(listener)
    assert "net_loopback" in talked.receipt.held
    assert "net_blocked" not in talked.receipt.waived
    assert free.level == 0


async def test_without_a_network_nothing_is_reached(place, listener):
    """The default has to be the one that nobody has to think of."""
    async with box(place) as executor:
        result = await executor.call("python", {"code": reaches(listener.getsockname()[1])})
    assert result.output["value"] != "reached"
    assert not came(listener)
    assert "net_blocked" in result.receipt.held


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_the_hosts_network_is_asked_for_and_reached_and_on_the_receipt(
    place, listener, level
):
    """A choice by name: a person agrees each time, and the result says what was given up."""
    port = listener.getsockname()[1]
    asked: list[Any] = []
    approver = agreeing(asked)
    async with box(place, network=Network.host(), isolation=level, approver=approver) as executor:
        result = await executor.call("python", {"code": reaches(port)})
        decision = executor.check("read_file", {"path": "a.txt"})
    assert result.output["value"] == "reached"
    assert came(listener)
    assert "net_blocked" in result.receipt.waived
    assert "net_blocked" not in result.receipt.held
    assert (decision.level, decision.outcome) == (3, "ask")
    assert "network_host" in {reason.code for reason in asked[0].reasons}


async def test_the_hosts_network_without_a_person_is_a_no(place, listener):
    """Level 3 is never remembered and never assumed."""
    async with box(place, network=Network.host(), approver=deny_all) as executor:
        result = await executor.call("python", {"code": reaches(listener.getsockname()[1])})
    assert kind(result) == "approval_unavailable"
    assert not came(listener)


async def test_a_loopback_where_there_is_none_is_refused_with_what_helps(place):
    """A level without network namespaces must not give the host's instead."""
    async with box(place, isolation="container", network=Network.loopback()) as executor:
        result = await executor.call("read_file", {"path": "a.txt"})
    assert kind(result) == "confinement_failed"
    assert result.error.guarantee == "net_loopback"
    assert result.error.fix in result.content
