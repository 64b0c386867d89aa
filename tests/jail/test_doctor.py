"""`doctor` against real jails: what holds is proven, what is off is seen, and a hole is a hole.

The probes are worth something only if they can fail. So each layer is switched off in turn, and
each probe is run where nothing, or not enough, is in its way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from toolcell import (
    _probe_attacks,
    _probe_files,
    _probe_kernel,
    _probe_own,
    _probe_talk,
    _probe_traps,
    _probe_tree,
    _probes,
)
from toolcell._probe_run import Finding, Probe
from toolcell._probe_traps import Trap
from toolcell.confinement import own_roots
from toolcell.doctor import findings, outlook
from toolcell_sandbox import offers
from toolcell_sandbox.guarantees import LAYERS, LEVELS, MEANS, Broken, Offer, promise, way_of
from toolcell_sandbox.spec import NEVER_WAIVED, Isolation, JailSpec, Network

PATIENCE_S = 120.0
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
WAIVABLE = {g for level in LEVELS.values() for g in level} - set(NEVER_WAIVED)


def here() -> Offer:
    return offers.look(thorough=True)


def without_mechanism(isolation: Isolation, offer: Offer) -> set[str]:
    """The guarantees of a level that this host cannot hold, each asked for by itself."""
    found = set()
    for guarantee in LEVELS[isolation] | ({"net_loopback"} - LEVELS[isolation]):
        if guarantee == "net_loopback" and isolation == "container":
            continue
        network = Network.loopback() if guarantee == "net_loopback" else Network.none()
        others = tuple(sorted(WAIVABLE - {guarantee}))
        spec = JailSpec(isolation=isolation, env={}, waive=others, network=network)
        if guarantee in ("paths_masked", "writes_transactional"):
            spec = dataclasses.replace(spec, workspace="/w", workspace_mode="transaction")
        agreed = promise(spec, offer)
        if isinstance(agreed, Broken):
            found.add(agreed.guarantee)
    return found


def holding(found: list[Finding]) -> set[str]:
    return {finding.guarantee for finding in found if finding.held}


# -- the levels ---------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["standard", "container"])
async def test_every_guarantee_of_a_level_holds_here(isolation: Isolation, ledger: None) -> None:
    """The claim itself: each is attacked in several ways, and nothing broke out."""
    found = await findings(isolation)
    assert [f.to_json() for f in found if not f.held] == []
    assert {f.guarantee for f in found} >= LEVELS[isolation]
    assert all(f.mechanism and len(f.tried) > 0 and f.happened for f in found)
    assert [f.guarantee for f in found if f.scope] == []


async def test_hardened_holds_or_says_what_is_missing(ledger: None) -> None:
    """Who is not root has no ids to give away; then the fix is named, and the rest is proven."""
    missing = without_mechanism("hardened", here())
    found = await findings("hardened")
    assert {f.guarantee for f in found} - holding(found) == missing
    assert all(f.fix for f in found if not f.held)
    assert all(f.mechanism is None for f in found if not f.held)


async def test_a_mechanism_is_the_receipts_own(ledger: None) -> None:
    """What a person reads here has to be what a call is promised."""
    agreed = promise(JailSpec(), here())
    assert not isinstance(agreed, Broken)
    found = await findings("standard", only={"fs_confined", "devices_minimal", "ipc_private"})
    assert {f.guarantee: f.mechanism for f in found} == {
        name: agreed.held[name] for name in ("fs_confined", "devices_minimal", "ipc_private")
    }


# -- every layer off in turn --------------------------------------------------------------


def resting_on(layer: str, isolation: Isolation) -> set[str]:
    """The guarantees that this layer has any part in at a level."""
    means = MEANS[way_of(isolation)]
    return {g for g, options in means.items() if any(layer in layers for _, layers in options)}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("layer", LAYERS)
async def test_doctor_sees_each_layer_that_is_off(
    isolation: Isolation, layer: str, ledger: None
) -> None:
    """Whatever rests on it is either lost, with a fix, or proven by what takes its place."""
    offer = here().without(layer)
    missing = without_mechanism(isolation, offer)
    nothing_runs = bool(missing & set(NEVER_WAIVED))
    with offers.assume(offer):
        # Where a jail can be built, only what has to do with the layer: the rest is as it was.
        found = await findings(
            isolation, only=None if nothing_runs else resting_on(layer, isolation)
        )
    lost = {f.guarantee for f in found if not f.held}
    if nothing_runs:
        assert holding(found) == set()
        assert lost >= LEVELS[isolation]
    else:
        assert lost == missing & {f.guarantee for f in found}
    assert all(f.fix and f.mechanism is None and not f.tried for f in found if not f.held)
    assert all(f.mechanism and f.tried for f in found if f.held)


TAKEN_OVER = [
    ("standard", "landlock", "fs_confined", "mount namespace with its own root"),
    ("standard", "network_namespace", "ipc_private", "ipc namespace, Landlock"),
    ("standard", "cgroup_memory", "memory_limited", "watch"),
    ("standard", "cgroup_pids", "processes_limited", "rlimit in a user namespace of its own"),
    ("standard", "cgroup_cpu", "cpu_limited", "rlimit, watch, wall deadline"),
    ("container", "cgroup_memory", "memory_limited", "watch"),
]


@pytest.mark.parametrize(("isolation", "layer", "guarantee", "mechanism"), TAKEN_OVER)
async def test_what_takes_over_is_named(
    isolation: Isolation, layer: str, guarantee: str, mechanism: str, ledger: None
) -> None:
    """The receipt of such a host says another thing, and it is that thing which was attacked."""
    with offers.assume(here().without(layer)):
        (found,) = await findings(isolation, only={guarantee})
    assert (found.held, found.mechanism) == (True, mechanism), found


# A host of the test's own: a user namespace in which this user is root, where no further one may
# be made.
POOR_HOST = """
import os, sys
from toolcell_sandbox._child import ids, syscalls
ready, go = os.pipe()
pid = syscalls.clone(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
if pid == 0:
    os.read(ready, 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
own = os.geteuid()
more = "1 1500000000 65536\\n" if own == 0 else ""
ids.write_maps(pid, f"0 {own} 1\\n{more}", f"0 {os.getegid()} 1\\n{more}", ranged=own == 0)
os.write(go, b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
DOCTOR = """
import functools, sys, trio
from toolcell.doctor import findings, report
level = sys.argv[1]
found = trio.run(functools.partial(findings, level))
sys.exit(report(found, isolation=level, as_json=len(sys.argv) > 2))
"""


def on_poor_host(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", POOR_HOST, "-c", DOCTOR, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_where_there_are_no_namespaces_the_first_line_is_the_fix() -> None:
    """ "It does not work" helps nobody; and no line may claim what was never tried."""
    done = on_poor_host("standard")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done
    assert lines[0].startswith("standard: cannot be had here; fix: ")
    assert "max_user_namespaces" in lines[0]
    told = [line for line in lines if not line.startswith((" ", "standard:", "fix:", "later:"))]
    assert len(told) == len(LEVELS["standard"]) + 1
    assert all(line.startswith("DOES NOT HOLD  ") for line in told)


def test_where_there_are_no_namespaces_container_holds() -> None:
    """This is the host that the level is for."""
    done = on_poor_host("container", "--json")
    said = json.loads(done.stdout)
    assert [entry for entry in said["guarantees"] if not entry["held"]] == []
    assert (done.returncode, said["holds"], said["isolation"]) == (0, True, "container")


# -- the probes can see a hole ------------------------------------------------------------


def outside(target: Any, arguments: dict[str, Any], **more: Any) -> dict[str, bool]:
    """What a probe says of each attempt where it is in no jail at all; its files are removed."""
    code = (
        f"import json, sys\nsys.path[:0] = {list(own_roots())!r}\n"
        f"from {target.__module__} import {target.__name__} as probe\n"
        "said = probe(**json.loads(sys.argv[1]))\n"
        "print('\\n' + json.dumps({a['tried']: a['broke'] for a in said}))\n"
    )
    # No pipe: a daemon that the probe leaves behind would hold it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **more.pop("env", {}), "TMPDIR": folder}
        subprocess.run(
            [sys.executable, "-c", code, json.dumps(arguments)],
            stdout=out,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=True,
            env=env,
            **more,
        )
        out.seek(0)
        said: dict[str, bool] = json.loads(out.read().splitlines()[-1])
    return said


@dataclass
class Traps:
    """Traps of the test's own, gone at its end."""

    stack: contextlib.ExitStack

    def new(self) -> Trap:
        return Trap(self.stack)


@pytest.fixture
def traps() -> Iterator[Traps]:
    with contextlib.ExitStack() as stack:
        yield Traps(stack)


def changes(trap: Trap) -> list[dict[str, Any]]:
    probe = Probe(guarantee="fs_confined", isolation="standard")
    trap.look(probe)
    return probe.attempts


def test_an_unharmed_trap_is_told_as_such(traps: Traps) -> None:
    """A trap that always shuts tells nothing."""
    trap = traps.new()
    assert Path(trap.file).read_text() == "planted"
    assert [each["broke"] for each in changes(trap)] == [False]


def test_the_file_probe_sees_a_file_outside(traps: Traps, tmp_path: Path) -> None:
    """Outside, each of these works; what a jail refuses is refused by the jail."""
    trap, open_to_all = traps.new(), tmp_path / "open"
    open_to_all.mkdir()
    said = outside(
        _probe_files.files,
        {"secret": trap.file, "folder": trap.folder, "forbidden": [str(open_to_all)]},
    )
    assert {tried for tried, broke in said.items() if broke} >= {
        "read a file outside", "read a file outside through ..",
        "read a file outside through a symlink", "read a file outside through /proc/self/root",
        "list its folder", "append to it", "open it for writing", "truncate it", "delete it",
        f"write into {open_to_all}",
    }  # fmt: skip
    assert [each["broke"] for each in changes(trap)] == [True]


@pytest.mark.parametrize("change", ["content", "mode", "times", "new", "gone"])
def test_a_trap_sees_each_change(traps: Traps, change: str) -> None:
    """What the probe does not hear of, the trap has to see."""
    trap = traps.new()
    file = Path(trap.file)
    if change == "content":
        file.write_text("plant!d")
    elif change == "mode":
        file.chmod(0o600)
    elif change == "times":
        os.utime(file, (1, 1))
    elif change == "new":
        os.mkdir(f"{trap.folder}/new")
    else:
        file.unlink()
    assert [each["broke"] for each in changes(trap)] == [True]


def test_the_workspace_probe_sees_a_workspace_that_can_be_written(traps: Traps) -> None:
    """The same attempts, where nothing forbids them: by name and by descriptor."""
    said = outside(_probe_files.change, {"path": traps.new().file})
    assert {tried for tried, broke in said.items() if broke} >= {
        "append to a file that can be read", "truncate it", "delete it",
        "open its descriptor again", "make a file beside it", "change the mode of its descriptor",
        "change the times of its descriptor", "change the mode of its folder",
    }  # fmt: skip


def test_the_workspace_probe_sees_the_hosts_files(traps: Traps) -> None:
    """A scratch workspace that is the host's would show its files."""
    trap = traps.new()
    said = outside(_probe_files.own_workspace, {"planted": trap.file}, cwd=trap.folder)
    assert said["look for the host's files"]
    assert said["read one by name"]


def test_the_device_probe_sees_a_device() -> None:
    """Any device that can be opened has to be seen; and so does the rest of /dev."""
    said = outside(_probe_files.devices, {"names": ["zero"]})
    assert said["open /dev/zero"]
    assert said["list /dev"]


def test_the_network_probe_sees_listeners(traps: Traps) -> None:
    """Of each kind, and by each road: TCP, Fast Open, datagrams, Unix sockets of both sorts."""
    abstract, path = f"toolcell-{secrets.token_hex(8)}", os.path.join(traps.new().base, "s")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        for address in ("\0" + abstract, path):
            local = stack.enter_context(socket.socket(socket.AF_UNIX))
            local.bind(address)
            local.listen()
        said = outside(
            _probe_talk.network,
            {
                "tcp": listener.getsockname()[1],
                "udp": datagrams.getsockname()[1],
                "abstract": abstract,
                "path": path,
            },
        )
        assert _probe_traps.has_something(listener)
        assert _probe_traps.has_something(datagrams)
    assert {tried for tried, broke in said.items() if broke} >= {
        "connect to a listener on 127.0.0.1", "send to it by Fast Open",
        "send a datagram to 127.0.0.1", "connect to an abstract Unix socket",
        "connect to a Unix socket by its path",
    }  # fmt: skip


def test_the_ipc_probe_sees_queues_and_memory() -> None:
    """System V's three, shared memory, and an abstract socket."""
    key, name = secrets.randbelow(1 << 30) + 1, f"toolcell-{secrets.token_hex(8)}"
    shared = Path("/dev/shm") / name
    with contextlib.ExitStack() as stack:
        stack.callback(_probe_talk.removals, key, name)
        for make in (_probe_talk.queue, _probe_talk.memory, _probe_talk.semaphores):
            make(key, 0o1000 | 0o600)
        shared.write_text("planted")
        stack.callback(shared.unlink)
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind("\0" + name)
        local.listen()
        told = {"key": key, "mq": name, "shared": str(shared), "abstract": name}
        namespace = os.readlink("/proc/self/ns/ipc")
        said = outside(_probe_talk.ipc, {**told, "namespace": namespace})
        assert said.pop("open a POSIX queue of the host") is False
        assert said.pop("send to one without a connection") is False
        assert said
        assert all(said.values()), said
        shares = outside(_probe_talk.ipc, {**told, "namespace": ""})
        assert shares["make System V memory"]


def test_the_environment_probe_sees_a_variable() -> None:
    """In the process itself, in its children, and in /proc."""
    said = outside(
        _probe_own.environment,
        {"name": "PLANTED", "value": "a-planted-secret"},
        env={"PLANTED": "a-planted-secret"},
    )
    assert said["look for it in os.environ"]
    assert said["look for it in a child"]
    assert any(broke for tried, broke in said.items() if tried.startswith("look in /proc/"))


def test_the_descriptor_probe_sees_a_descriptor() -> None:
    """However high its number, and what can be read through it."""
    fd = os.memfd_create("planted")
    try:
        os.write(fd, b"a-planted-secret")
        said = outside(_probe_own.descriptors, {"secret": "a-planted-secret"}, pass_fds=(fd,))
    finally:
        os.close(fd)
    assert said["count descriptors above 3"]
    assert said[f"read descriptor {fd}"]


def test_the_limit_probe_sees_that_there_is_none() -> None:
    """Outside, a file may grow past this small limit, and so may the number of open ones."""
    said = outside(_probe_own.file_limits, {"size_bytes": 1 << 16, "open_files": 32})
    assert said["write past the file size limit"]
    assert said["make a file longer than it"]
    assert said["open too many files"]


def test_the_disk_probe_sees_a_folder_without_a_bound(tmp_path: Path) -> None:
    """A few small files more than it should be able to make."""
    told = {"limit_bytes": 1 << 20, "limit_files": 16, "places": [str(tmp_path)]}
    said = outside(_probe_files.fill, told)
    assert said["fill every folder of its own"]
    assert said["make files without end"]


@pytest.fixture
def outsider() -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes a byte for each signal it gets."""
    argv = [sys.executable, "-I", "-S", "-c", _probe_traps.OUTSIDER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert said_by(process) == b"r"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def said_by(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 1)


def test_the_signal_probe_reaches_an_outsider(outsider: subprocess.Popen[bytes]) -> None:
    """By number, by pidfd, and by thread: what a jail refuses would have arrived."""
    said = outside_of_proc({"outsiders": [outsider.pid], "everybody": False})
    assert said_by(outsider) == b"s"
    assert {tried for tried, broke in said.items() if broke} >= {
        "signal a process outside", "queue a signal to it", "signal its thread",
        "signal it by a pidfd", "read its limits",
    }  # fmt: skip


def outside_of_proc(arguments: dict[str, Any]) -> dict[str, bool]:
    """The signal probe as a process that cannot list /proc."""
    code = (
        f"import json, os, sys\nsys.path[:0] = {list(own_roots())!r}\n"
        "from toolcell import _probe_tree\n"
        "_probe_tree._own_numbers = lambda: {os.getpid()}\n"
        "said = _probe_tree.signals(**json.loads(sys.argv[1]))\n"
        "print(json.dumps({a['tried']: a['broke'] for a in said}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    said: dict[str, bool] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("way", ["F_SETOWN", "F_SETOWN_EX", "FIOSETOWN"])
def test_sigio_alone_is_seen_by_an_outsider(outsider: subprocess.Popen[bytes], way: str) -> None:
    """The kernel signals on somebody's behalf: no call of the probe's is refused for it."""
    assert _probe_tree._by_owner(way, [outsider.pid]) == "nobody was refused"
    assert said_by(outsider) == b"s"


def test_a_daemon_that_outlives_its_call_is_found() -> None:
    """Outside any jail all four are alive afterwards, and the mark leads to each."""
    mark = f"toolcell-{secrets.token_hex(8)}"
    try:
        said = outside(_probe_tree.outlive, {"mark": mark}, start_new_session=True)
        assert set(said.values()) == {False}
        assert len(said) == len(_probe_traps.marked(mark)) == 4
    finally:
        for pid in _probe_traps.marked(mark):
            os.kill(pid, signal.SIGKILL)
            # The sibling is a child of this very process (clone(2), CLONE_PARENT).
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def test_the_foreign_probe_sees_a_call_that_runs() -> None:
    """Where this kernel makes calls of i386 at all, nothing stops them outside."""
    if not _probes.IS_X86_64:
        return  # No foreign machine to speak of.
    said = outside(_probe_kernel.foreign, {})
    assert said["make a call of i386"]


def test_the_privilege_probe_sees_what_an_ordinary_process_may_do() -> None:
    """Setuid bits of its own files, and that nothing keeps it from gaining privileges."""
    said = outside(_probe_kernel.privileges, {})
    assert {tried for tried, broke in said.items() if broke} >= {
        "set the setuid bit", "make a setuid file", "look at its mode", "read no_new_privs",
    }  # fmt: skip


# -- in jails that lack a layer -----------------------------------------------------------


def waiving(guarantee: str, *more: str, isolation: Isolation = "standard") -> Probe:
    return Probe(guarantee=guarantee, isolation=isolation, waive=(guarantee, *more))


def broken_by(probe: Probe) -> set[str]:
    assert not probe.finding().held
    return {each["tried"] for each in probe.attempts if each["broke"]}


async def test_without_a_filter_the_call_probe_sees_each_call(ledger: None) -> None:
    """The kernel's own answer differs from the filter's, so that the two are never confused."""
    probe = waiving("syscalls_filtered", "net_blocked")
    await _probe_attacks.system_calls(probe)
    seen = broken_by(probe)
    every = {name for name, *_ in _probe_kernel._FORBIDDEN}
    # bpf(2) may be refused to everybody, and secret memory unknown; the rest cannot be mistaken.
    assert every - seen <= {"bpf", "memfd_secret", "open_by_handle_at"}
    assert "ptrace of a child" in seen
    assert "a raw netlink socket" in seen


async def test_without_a_network_namespace_the_network_probe_reaches_the_host(
    ledger: None,
) -> None:
    """What the namespace held back arrives at the listener, and is seen from both sides."""
    probe = waiving("net_blocked")
    with probe.held, offers.assume(here().without("network_namespace")):
        await _probe_attacks.network(probe)
    assert broken_by(probe) >= {
        "send a datagram to 127.0.0.1", "look at the datagram socket outside",
    }  # fmt: skip


async def test_without_an_ipc_namespace_the_ipc_probe_opens_the_hosts(ledger: None) -> None:
    """Queues and memory of the host, from inside an otherwise whole jail."""
    probe = waiving("ipc_private")
    with probe.held, offers.assume(here().without("ipc_namespace", "landlock")):
        await _probe_attacks.ipc(probe)
    assert broken_by(probe) >= {
        "open a System V queue of the host", "open its System V memory",
        "open its System V semaphores", "open a POSIX queue of the host",
        "compare the ipc namespace",
    }  # fmt: skip


async def test_without_landlock_the_signal_probe_reaches_an_outsider_from_a_group(
    ledger: None,
) -> None:
    """At level container Landlock alone stands between a jail and this user's processes."""
    # tree_killed rests on the same layer and is never waived: so no such jail is ever built.
    with offers.assume(here().without("landlock_scopes")):
        seen = outlook("container", here().without("landlock_scopes"))
        found = await findings("container")
    assert seen.never is not None
    assert seen.never.guarantee == "tree_killed"
    assert holding(found) == set()


async def test_an_answer_that_is_none_proves_nothing(ledger: None) -> None:
    """A handler that ended early tried nothing; nor did one that says something else."""
    for target, told in ((_probe_tree.listen_for_signals, {}), (_probe_kernel.foreign_call, {})):
        probe = Probe(guarantee="tree_killed", isolation="standard")
        await probe.tries(target, told)
        found = probe.finding()
        assert (found.held, found.mechanism, found.tried) == (False, None, ())


async def test_a_guarantee_that_the_receipt_does_not_list_is_not_held(ledger: None) -> None:
    """Even if every attempt failed: by luck, or by a layer that nobody promised."""
    probe = waiving("devices_minimal")
    await _probe_attacks.devices(probe)
    found = probe.finding()
    assert not found.held
    assert found.happened == "the receipt does not list it"
