"""The filter's table on both machines, by a simulator of its instructions (no kernel)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from toolcell_sandbox._child import filters
from toolcell_sandbox._child.filters import MODE_BITS, program

if TYPE_CHECKING:
    from toolcell_sandbox._child.filters import Program

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def run(code: Program, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would answer (Documentation/networking/filter.rst)."""
    words = {0: number, 4: arch}
    for place, value in enumerate((*arguments, *(0,) * (6 - len(arguments)))):
        words[16 + 8 * place] = value & 0xFFFF_FFFF
        words[20 + 8 * place] = value >> 32
    loaded, at = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        match operation:
            case 0x20:
                loaded = words[value]
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"no such instruction: {operation:#x}")


def call(machine: str, name: str, **places: int) -> int:
    """The answer to one row's call, with a mode and flags where the row has them."""
    x86_64, aarch64, mode, flags = MODE_BITS[name]
    number = x86_64 if machine == "x86_64" else aarch64
    assert number is not None
    arguments = [0] * 6
    if mode is not None:
        arguments[mode] = places.get("mode", 0)
    if flags is not None:
        arguments[flags] = places.get("flags", 0)
    return run(program(MODE_BITS, machine), number, ARCH[machine], tuple(arguments))


ROWS = [
    (machine, name)
    for machine, column in (("x86_64", 0), ("aarch64", 1))
    for name, row in MODE_BITS.items()
    if row[column] is not None
]


@pytest.mark.parametrize(("machine", "name"), ROWS)
def test_each_row_refuses_the_two_bits_and_nothing_else(machine: str, name: str) -> None:
    """A row that is one place off lets the bit by, or refuses every chmod."""
    _, _, mode, flags = MODE_BITS[name]
    if mode is None:
        assert call(machine, name) == ENOSYS
        return
    creates = os.O_CREAT if flags is not None else 0
    for bits in (0o4755, 0o2755, 0o6000, (1 << 40) | 0o4000):
        assert call(machine, name, mode=bits, flags=creates) == EPERM
    for bits in (0o755, 0o1777, 0):
        assert call(machine, name, mode=bits, flags=creates) == ALLOW


@pytest.mark.parametrize("machine", ARCH)
def test_open_has_a_mode_only_when_it_creates(machine: str) -> None:
    """Else its mode is whatever the register held, and reading a file would fail by chance."""
    assert call(machine, "openat", mode=0o4755, flags=os.O_RDONLY) == ALLOW
    assert call(machine, "openat", mode=0o4755, flags=os.O_DIRECTORY) == ALLOW
    assert call(machine, "openat", mode=0o4755, flags=os.O_TMPFILE | os.O_WRONLY) == EPERM


@pytest.mark.parametrize("machine", ARCH)
def test_other_calls_pass_and_other_machines_do_not(machine: str) -> None:
    """The numbers of another machine mean other calls: what is not known is not let by."""
    code = program(MODE_BITS, machine)
    assert run(code, 39, ARCH[machine]) == ALLOW
    assert run(code, 39, 0x40000003) == ENOSYS
    if machine == "x86_64":
        assert run(code, 0x4000_0000 | 39, ARCH[machine]) == ENOSYS


def test_a_jump_never_leaves_the_program() -> None:
    """A jump is eight bits wide: a longer table would wrap around silently."""
    for machine in ARCH:
        code = program(MODE_BITS, machine)
        for place, (_, if_true, if_false, _) in enumerate(code):
            assert max(if_true, if_false) < 256
            assert place + 1 + max(if_true, if_false) < len(code) + 1
    assert filters.SETUID_SETGID == 0o6000
