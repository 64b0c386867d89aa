"""Classic BPF as seccomp(2) runs it: a checker that refuses what the kernel refuses, and a run.

After Documentation/networking/filter.rst and what seccomp(2) allows of it: 32-bit loads inside
struct seccomp_data at multiples of four, forward jumps, a return on every path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcell_sandbox._child.seccomp import Program

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "aarch32": 0x40000028}

LOAD, AND, GO, RETURN = 0x20, 0x54, 0x05, 0x06
EQUAL, ABOVE, AT_LEAST, ANY_BIT = 0x15, 0x25, 0x35, 0x45
_BRANCHES = (EQUAL, ABOVE, AT_LEAST, ANY_BIT)
_LONGEST = 4096
_DATA_BYTES = 64


class Refused(ValueError):
    """The kernel would answer EINVAL to this program."""


def check(program: Program) -> None:
    """Raise Refused where the kernel would refuse to install the program."""
    if not 0 < len(program) <= _LONGEST:
        raise Refused(f"{len(program)} instructions")
    for at, (operation, if_true, if_false, value) in enumerate(program):
        if not (0 <= operation < 1 << 16 and 0 <= value < 1 << 32):
            raise Refused(f"{at}: a field is too wide")
        if not (0 <= if_true < 256 and 0 <= if_false < 256):
            raise Refused(f"{at}: a jump is wider than eight bits")
        if operation == LOAD:
            if value % 4 or value >= _DATA_BYTES:
                raise Refused(f"{at}: loads from {value}")
        elif operation == GO:
            if at + 1 + value >= len(program):
                raise Refused(f"{at}: jumps out of the program")
        elif operation in _BRANCHES:
            if at + 1 + max(if_true, if_false) >= len(program):
                raise Refused(f"{at}: jumps out of the program")
        elif operation not in (AND, RETURN):
            raise Refused(f"{at}: no such instruction: {operation:#x}")
    if program[-1][0] != RETURN:
        raise Refused("runs off the end")


def run(program: Program, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    """What the program answers to a call; arguments are 64 bits wide, negative ones too."""
    return trace(program, number, arch, arguments)[0]


def trace(
    program: Program, number: int, arch: int, arguments: tuple[int, ...] = ()
) -> tuple[int, Program]:
    """The answer, and the instructions that led to it."""
    words = {0: number & 0xFFFF_FFFF, 4: arch, 8: 0, 12: 0}
    for place in range(6):
        value = arguments[place] if place < len(arguments) else 0
        words[16 + 8 * place] = value & 0xFFFF_FFFF
        words[20 + 8 * place] = value >> 32 & 0xFFFF_FFFF
    held, at = 0, 0
    way: Program = []
    while True:
        operation, if_true, if_false, value = program[at]
        way.append(program[at])
        at += 1
        if operation == LOAD:
            held = words[value]
        elif operation == AND:
            held &= value
        elif operation == GO:
            at += value
        elif operation == RETURN:
            return value, way
        else:
            holds = {
                EQUAL: held == value,
                ABOVE: held > value,
                AT_LEAST: held >= value,
                ANY_BIT: bool(held & value),
            }[operation]
            at += if_true if holds else if_false
