"""The attacks on what is outside a jail: files, devices, networks, processes; from both sides.

Each sets a trap outside, runs a probe inside, and then looks at the trap. Where it is cheap, the
same attempt is made outside first: one that could never have worked proves nothing either.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import sys
from typing import Final

from toolcell import (
    _probe_files,
    _probe_kernel,
    _probe_talk,
    _probe_tree,
    _probe_workspace,
    _probes,
)
from toolcell._probe_run import Probe, plain_child
from toolcell._probe_traps import Trap, has_something, marked, new_name, outsider
from toolcell.confinement import own_roots
from toolcell_sandbox import watch
from toolcell_sandbox.outcome import Upper

_IPC_CREAT: Final = 0o1000
_OUTSIDERS_MAX: Final = 64
_DEVICES: Final = (
    *("kmsg", "mem", "port", "fuse", "kvm", "tty", "ptmx", "console", "loop0", "loop-control"),
    *("sda", "vda", "nvme0n1", "net/tun", "mapper/control", "userfaultfd", "vsock", "hwrng"),
)
"""Devices that can be opened without consequence; a watchdog's could not."""


async def files(probe: Probe) -> None:
    """fs_confined: outside, and a workspace that can be read and no more."""
    trap, workspace = Trap(probe.held), Trap(probe.held)
    probe.control = f"outside, the planted file reads {_probes.read(trap.file)!r}"
    forbidden = list(dict.fromkeys(("/usr", sys.prefix, *own_roots())))
    told = {"secret": trap.file, "folder": trap.folder, "forbidden": forbidden}
    await probe.tries(_probe_files.files, told)
    await probe.tries(_probe_files.change, {"path": workspace.file}, workspace=workspace.folder)
    trap.look(probe)
    workspace.look(probe)


async def devices(probe: Probe) -> None:
    """devices_minimal: by the names of devices that this host has got, for the most part."""
    found = _devices_here()
    probe.control = f"outside, these are there: {', '.join(found)}"
    await probe.tries(_probe_files.devices, {"names": found})


def _devices_here() -> list[str]:
    return [name for name in _DEVICES if os.path.exists(f"/dev/{name}")]


async def network(probe: Probe) -> None:
    """net_blocked: listeners of each kind, which nothing may reach."""
    listener = probe.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    datagrams = probe.held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    datagrams.bind(("127.0.0.1", 0))
    trap = Trap(probe.held)
    abstract, path = new_name(), os.path.join(trap.base, "socket")
    for address in ("\0" + abstract, path):
        local = probe.held.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(address)
        local.listen()
    os.chmod(path, 0o666)
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=3):
        listener.accept()[0].close()
        probe.control = "outside, the listener takes a connection"
    udp = datagrams.getsockname()[1]
    told = {"tcp": port, "udp": udp, "abstract": abstract, "path": path}
    await probe.tries(_probe_talk.network, told)
    for what, server in (("the listener", listener), ("the datagram socket", datagrams)):
        arrived = has_something(server)
        said = "somebody came" if arrived else "nothing came"
        probe.saw(f"look at {what} outside", said, broke=arrived)


async def loopback(probe: Probe) -> None:
    """net_loopback: a network of the jail's own, and nobody else in it."""
    listener = probe.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        beside = free.getsockname()[1]
    told = {"port": beside, "abstract": new_name()}
    async with probe.beside(_probe_talk.serve, told, network="loopback") as jailed:
        more = {"tcp": listener.getsockname()[1], "beside": beside, "abstract": told["abstract"]}
        await probe.tries(_probe_talk.loopback, more, network="loopback")
    if jailed.outcome is not None and jailed.outcome.failure is None:
        arrived = jailed.outcome.value
        probe.saw("ask the other jail's server", f"{arrived} came", broke=arrived != 0)
    came = has_something(listener)
    said = "somebody came" if came else "nobody came"
    probe.saw("look at the host's listener", said, broke=came)


async def ipc(probe: Probe) -> None:
    """ipc_private: queues, memory and sockets of the host, that anybody may open."""
    key, name = secrets.randbelow(1 << 30) + 1, new_name()
    probe.held.callback(_probe_talk.removals, key, name)
    mode = _IPC_CREAT | 0o666
    queue = _probe_talk.queue(key, mode)
    _probe_talk.memory(key, mode)
    _probe_talk.semaphores(key, mode)
    # A kernel may be without POSIX queues.
    with contextlib.suppress(OSError):
        os.close(_probe_talk.posix_queue(name, os.O_CREAT))
    shared = _probes.write(f"/dev/shm/{name}")
    probe.held.callback(os.unlink, shared)
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        local = probe.held.enter_context(socket.socket(socket.AF_UNIX, kind))
        local.bind("\0" + name + ("" if kind == socket.SOCK_STREAM else "-datagrams"))
        if kind == socket.SOCK_STREAM:
            local.listen()
    opened = _probe_talk.queue(key)
    probe.control = f"outside, the queue opens as {opened}" if opened == queue else None
    namespace = os.readlink("/proc/self/ns/ipc") if probe.has_namespaces else ""
    told = {"key": key, "mq": name, "shared": shared, "abstract": name, "namespace": namespace}
    await probe.tries(_probe_talk.ipc, told)


async def system_calls(probe: Probe) -> None:
    """syscalls_filtered: calls that this machine has, and those of another."""
    await probe.tries(_probe_kernel.calls)
    if not _probes.IS_X86_64:
        return
    code = (
        f"import sys; sys.path[:0] = {list(own_roots())!r}\n"
        "from toolcell import _probe_kernel\nprint(_probe_kernel.foreign_call('i386') > 0)"
    )
    if (await plain_child(code)).strip() != "True":
        probe.control = "outside, this kernel makes no calls of i386 either"
        return
    probe.control = "outside, a call of i386 works"
    tried = "make a call of x32, then one of i386"
    await probe.ends(tried, "syscall_blocked", _probe_kernel.foreign, or_tries=True)


async def privileges(probe: Probe) -> None:
    """no_new_privileges."""
    await probe.tries(_probe_kernel.privileges)


async def signals(probe: Probe) -> None:
    """signals_scoped: an outsider, this process and all below it, and another jail."""
    async with outsider() as victim, probe.beside(_probe_tree.listen_for_signals) as jailed:
        assert victim.stdin is not None
        assert victim.stdout is not None
        if await victim.stdout.receive_some(1) == b"r":
            victim.send_signal(signal.SIGURG)
            if await victim.stdout.receive_some(1) == b"s":
                probe.control = "outside, the signal arrives"
        below = watch.census.tree(os.getpid()).pids
        others = (victim.pid, os.getpid(), os.getppid(), *below)
        told = {"outsiders": list(dict.fromkeys(others))[:_OUTSIDERS_MAX], "everybody": True}
        await probe.tries(_probe_tree.signals, told)
        await victim.stdin.aclose()
        arrived = b""
        async for chunk in victim.stdout:
            arrived += chunk
    probe.saw("ask the outsider", f"{len(arrived)} arrived", broke=bool(arrived))
    if jailed.outcome is not None and jailed.outcome.failure is None:
        count = jailed.outcome.value
        probe.saw("ask another jail", f"{count} arrived", broke=count != 0)


async def tree(probe: Probe) -> None:
    """tree_killed: nobody holds the call's stdout afterwards, and nobody has the mark."""
    mark = new_name()
    outcome = await probe.tries(_probe_tree.outlive, {"mark": mark})
    gone = outcome.stdout.closed and outcome.stderr.closed
    said = "nobody" if gone else "something still holds it"
    probe.saw("look who holds the call's stdout", said, broke=not gone)
    left = marked(mark)
    said = f"{len(left)} left" if left else "they were gone with the call"
    probe.saw("look for them outside", said, broke=bool(left))


async def masks(probe: Probe) -> None:
    """paths_masked: a file in a workspace, read-only and as a transaction."""
    for mode in ("transaction", "read_only"):
        trap = Trap(probe.held)
        name = os.path.basename(trap.file)
        seen_outside = await probe.jail(
            _probes.read, {"path": trap.file}, workspace=trap.folder, mode="read_only"
        )
        if seen_outside.failure is None:
            probe.control = "without the mask, a jail reads the file"
        how = {"workspace": trap.folder, "mode": mode, "masks": {trap.folder: (name,)}}
        async with probe.beside(_probe_workspace.masked, {"path": trap.file}, **how) as jailed:
            os.replace(_probes.write(os.path.join(trap.base, "new"), "replaced"), trap.file)
        outcome = jailed.outcome
        if outcome is not None and outcome.failure is None and isinstance(outcome.value, list):
            probe.attempts += [each for each in outcome.value if isinstance(each, dict)]
        is_there = _probes.read(trap.file) == "replaced"
        probe.saw("look outside", "unchanged" if is_there else "changed", broke=not is_there)


async def transactions(probe: Probe) -> None:
    """writes_transactional: all kinds of changes, of which nothing may be outside."""
    trap = Trap(probe.held)
    kept: list[str] = []

    def keep(upper: Upper) -> None:
        with contextlib.closing(upper):
            kept.extend(os.listdir(upper.fd))

    told = {"path": trap.file}
    await probe.tries(
        _probe_workspace.work, told, workspace=trap.folder, mode="transaction", keep=keep
    )
    trap.look(probe)
    if "made" in kept:
        probe.control = "its own layer, read from outside, has every change"
    await probe.tries(_probe_files.change, told, workspace=trap.folder)
    trap.look(probe)
    await probe.tries(
        _probe_files.own_workspace, {"planted": trap.file}, workspace=trap.folder, mode="scratch"
    )
    trap.look(probe)
