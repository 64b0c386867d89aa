"""What is asked of this host before a level is promised on it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from toolcell_sandbox import cgroup, offers
from toolcell_sandbox.guarantees import LAYERS, Offer

FOUND = cgroup.CgroupOffer(memory="cgroup v2 (systemd scope)")


class Scope(cgroup.Group):
    """A manager that gives a scope, or says why not."""

    def __init__(self, cause: str | None) -> None:
        super().__init__(())
        self.cause = cause
        self.adopted: list[int] = []

    async def adopt(self, init_pid: int) -> None:
        os.kill(init_pid, 0)
        self.adopted.append(init_pid)
        if self.cause is not None:
            raise cgroup.NotMade("memory", self.cause)


@pytest.mark.parametrize("cause", [None, "Access denied"])
def test_a_scope_is_tried_before_it_is_promised(cause: str | None) -> None:
    """A manager that is there and refuses would otherwise fail every call of every user."""
    scope = Scope(cause)

    def make(*_: Any, **__: Any) -> Scope:
        return scope

    assert offers.why_no_scope(FOUND, make) == cause
    (pid,) = scope.adopted
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_this_host_is_looked_at_once_and_says_what_it_lacks() -> None:
    """An offer that claims all of it, always, was never asked for."""
    found = offers.look()
    assert found is offers.look()
    assert found.lacks.keys() <= set(LAYERS)
    assert ("limited_uid" in found.lacks) == (os.getuid() == 0)
    assert ("own_ids" in found.lacks) == (os.geteuid() != 0)
    assert all(lack.cause for lack in found.lacks.values())


def test_a_host_that_changed_is_looked_at_again() -> None:
    """A group that an operator took away would fail every call until a restart."""
    before = offers.look()
    offers.forget()
    assert offers.look() is not before
    assert offers.look() == before


def test_a_thorough_look_tries_what_a_jail_is_built_of() -> None:
    """On this machine nothing refuses it; the control is a host of the test's own elsewhere."""
    assert offers.look(thorough=True).lacks.keys() == offers.look().lacks.keys()


async def test_another_host_can_be_put_in_its_place() -> None:
    """A test that needs a kernel without Landlock has no other."""
    other = Offer(landlock_abi=1)
    with offers.assume(other):
        assert await offers.current() is other
        assert await offers.current(thorough=True) is other
    assert await offers.current() == offers.look()
