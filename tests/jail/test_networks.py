"""A network namespace is made for one jail and may be another's later: nothing goes along."""

from __future__ import annotations

import dataclasses
import fcntl
import os
from typing import Any

import pytest
import trio

from toolcell_sandbox import Network, run_in_jail

from .conftest import Jail

_NS_GET_USERNS = 0xB701
"""ioctl_ns(2)"""

WHICH = "import os\nreturn os.stat('/proc/self/ns/net').st_ino"

# Binds an abstract name, and leaves somebody who holds it behind.
LEAVES = """
import os, socket
def handler():
    held = socket.socket(socket.AF_UNIX)
    held.bind("\\0left")
    held.listen()
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(told, b"1")
        while True:
            os.read(ready, 0)
            __import__("time").sleep(100)
    os.read(ready, 1)
    with open("/proc/net/unix") as file:
        assert "@left" in file.read()
    return os.stat("/proc/self/ns/net").st_ino
"""
# Says which one it is in, what is left there, and whether a link is up (an address is then on it).
FINDS = """
import os, socket
def handler():
    with open("/proc/net/unix") as file:
        names = [line.split()[-1] for line in file if "@" in line]
    socket.socket(socket.AF_UNIX).bind("\\0left")
    with open("/proc/net/if_inet6") as file:
        links = file.read()
    return os.stat("/proc/self/ns/net").st_ino, names, links
"""


async def value(jail: Jail, source: str, **options: Any) -> Any:
    spec = dataclasses.replace(jail.spec(), **options)
    outcome = await run_in_jail(jail.handler(source), spec)
    assert outcome.failure is None, outcome.failure
    return outcome.value


async def test_no_two_jails_are_in_one_at_the_same_time(jail: Jail):
    """Abstract sockets would reach from one to the other, and each see the other's traffic."""
    many = 6
    meet = jail.handler(
        f"""
        import os, time
        def handler(number):
            open(f"up{{number}}", "w").close()
            while len([name for name in os.listdir(".") if name.startswith("up")]) < {many}:
                time.sleep(0.001)
            return os.stat("/proc/self/ns/net").st_ino
        """
    )
    found = []

    async def one(number: int) -> None:
        outcome = await run_in_jail(
            dataclasses.replace(meet, arguments={"number": number}), jail.spec()
        )
        assert outcome.failure is None, outcome.failure
        found.append(outcome.value)

    async with trio.open_nursery() as nursery:
        for number in range(many):
            nursery.start_soon(one, number)
    assert len(set(found)) == many
    assert os.stat("/proc/self/ns/net").st_ino not in found


async def test_the_next_jail_in_it_finds_nothing_of_the_last(jail: Jail):
    """A name that outlives its jail is a way for one call to speak to the next."""
    first = await value(jail, LEAVES)
    with trio.fail_after(20):
        while True:
            which, names, links = await value(jail, FINDS)
            assert names == []
            assert links == ""
            if which == first:
                break  # The control: it is the very one, once its jail was reaped.


async def test_one_with_a_loopback_that_was_up_is_no_other_jails(jail: Jail):
    """What is up stays up: the next jail would be promised no network and have one."""
    found = set()
    for _ in range(3):
        which, _, links = await value(jail, FINDS, network=Network.loopback())
        assert "lo" in links
        found.add(which)
    for _ in range(8):
        which, _, links = await value(jail, FINDS)
        assert which not in found
        assert links == ""


@pytest.mark.parametrize("network", [Network.none(), Network.loopback()], ids=["none", "loopback"])
async def test_only_a_loopback_belongs_to_its_jail(jail: Jail, network: Network):
    """Who may configure it could leave an address, a route or a link for the next jail."""
    owned = []

    async def look() -> None:
        while not (jail.workspace / "pid").exists():
            await trio.sleep(0.001)
        for pid in descendants(os.getpid()):
            try:
                jails = os.stat(f"/proc/{pid}/ns/user").st_ino
                fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            except (PermissionError, FileNotFoundError):
                continue  # An init's cannot be looked at.
            try:
                owner = fcntl.ioctl(fd, _NS_GET_USERNS)
            except PermissionError:
                continue  # The owner is none of ours, so no jail's.
            finally:
                os.close(fd)
            owned.append((jails, os.fstat(owner).st_ino == jails))
            os.close(owner)
        (jail.workspace / "go").touch()

    held = jail.handler(
        """
        import os, time
        def handler():
            open("pid", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.001)
            return os.stat("/proc/self/ns/user").st_ino
        """
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        outcome = await run_in_jail(held, dataclasses.replace(jail.spec(), network=network))
    assert outcome.failure is None, outcome.failure
    found = {is_own for jails, is_own in owned if jails == outcome.value}
    assert found == {network.kind == "loopback"}


def descendants(pid: int) -> list[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, left = [], [pid]
    while left:
        top = left.pop()
        children = [child for child, parent in parents.items() if parent == top]
        found += children
        left += children
    return found


async def test_one_that_is_free_is_used_again(jail: Jail):
    """A new one for each call costs as much as the rest of the jail."""
    found = [await value(jail, WHICH) for _ in range(12)]
    assert len(set(found)) < len(found)
