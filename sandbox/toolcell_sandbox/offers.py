"""What this host offers, found by asking the kernel; a test may put another host in its place.

Cheap by default: a namespace that is missing is seen when a jail is built, with its stage and
errno. `look(thorough=True)` tries each one first, in a child that ends at once, which `doctor`
and a call with waivers need to know beforehand.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator

import trio

from . import _zygotes, cgroup, host, idpool
from ._child import landlock
from .guarantees import Lack, Offer

_PROBE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_child", "probe.py")
PROBE_S = 20.0
_TRIED_BYTES = 64 << 20
_TRIED_PROCESSES = 64

_assumed: contextvars.ContextVar[Offer | None] = contextvars.ContextVar("offer", default=None)


@contextlib.contextmanager
def assume(offer: Offer) -> Iterator[None]:
    """Inside, calls are made as on a host that offers this; for tests, and for `doctor`.

    What jails are then built with is what is offered: network and ipc namespaces, Landlock,
    seccomp and control groups that are left out are really off. Of the rest, which every jail is
    made of, it is only the promise that is missing: such a call is refused.
    """
    token = _assumed.set(offer)
    try:
        yield
    finally:
        _assumed.reset(token)


async def current(*, thorough: bool = False) -> Offer:
    """The host that calls are made for now; the first look is taken in a thread."""
    assumed = _assumed.get()
    if assumed is not None:
        return assumed
    if thorough not in _looked:
        await trio.to_thread.run_sync(functools.partial(look, thorough=thorough))
        _looked.add(thorough)
    return look(thorough=thorough)


_looked: set[bool] = set()


@functools.cache
def look(*, thorough: bool = False) -> Offer:
    """This host, as it was when it was first asked. Blocks, for some 50 ms when thorough."""
    lacks: dict[str, Lack] = {}
    names: dict[str, str] = {}
    found = cgroup.offered()
    unmade = None if found.bus is None else why_no_scope(found)
    for layer, mechanism in (
        ("cgroup_memory", found.memory),
        ("cgroup_pids", found.pids),
        ("cgroup_cpu", found.cpu),
    ):
        if mechanism is None or unmade is not None:
            cause = unmade or found.why.get(
                layer.removeprefix("cgroup_"), "no control group is delegated"
            )
            lacks[layer] = Lack(stage="cgroup", cause=cause)
        else:
            names[layer] = mechanism
    try:
        with contextlib.ExitStack() as held:
            own_ids = idpool.lease(held) is not None
        cause = "only the host's root has user ids to give to a jail"
    except host.NoIds as error:
        own_ids, cause = False, str(error)
    if not own_ids:
        lacks["own_ids"] = Lack(stage="ids", cause=cause)
    if os.getuid() == 0:
        cause = "RLIMIT_NPROC does not bind uid 0"
        lacks["limited_uid"] = Lack(stage="ids", cause=cause)
    if thorough:
        lacks |= _tried()
    return Offer(lacks=lacks, landlock_abi=landlock.abi(), names=names)


def forget() -> None:
    """Look again next time, after a layer that was promised could not be had.

    Jails are made by new zygotes then, which see this process's limits and groups as they are.
    """
    look.cache_clear()
    _looked.clear()
    cgroup.forget()
    _zygotes.retire_all()


def why_no_scope(
    found: cgroup.CgroupOffer, make: Callable[..., cgroup.Group] = cgroup.make
) -> str | None:
    """Why the service manager gives this process no scope; None when it has given one.

    Tried once, around a child that only waits: a manager that is there may still refuse, and
    then limits are watched, rather than every call refused.
    """
    argv = [host.EXECUTABLE, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    causes: list[str] = []

    async def adopt(group: cgroup.Group, pid: int) -> None:
        try:
            await group.adopt(pid)
        except cgroup.NotMade as error:
            causes.append(error.cause)

    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, env=host.base_environment(), cwd="/"
    ) as held:
        try:
            with make(found, memory_bytes=_TRIED_BYTES, processes=_TRIED_PROCESSES) as group:
                # A loop of its own, whether or not one runs in this thread.
                thread = threading.Thread(target=trio.run, args=(adopt, group, held.pid))
                thread.start()
                thread.join()
                held.kill()
        finally:
            held.kill()
    return causes[0] if causes else None


def _tried() -> dict[str, Lack]:
    """Each namespace, and a filter, tried in a child of its own."""
    done = subprocess.run(
        [host.EXECUTABLE, "-I", "-S", _PROBE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=host.base_environment(),
        cwd="/",
        timeout=PROBE_S,
        check=False,
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        cause = f"the probe ended with {done.returncode}: {done.stderr[-200:]!r}"
        return {"user_namespace": Lack(stage="namespaces", cause=cause)}
    return {layer: Lack(**facts) for layer, facts in said.items()}
