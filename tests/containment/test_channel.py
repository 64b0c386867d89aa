"""Rows 113 to 127: what a handler sends and leaves behind for the supervisor to read."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

import toolcell
import toolcell_sandbox
from toolcell_sandbox.decode import BrokenRule, FrameReader

from .conftest import Cage, Ended

SEND = (
    "import os, struct\ndef send(body, length=None):\n"
    "    os.write(3, struct.pack('!Q', (len(body) if length is None else length) % 2**64) + body)\n"
)
GOOD = 'b\'{"ok":true,"value":1}\''


async def sent(cage: Cage, body: str, **limits: Any) -> Ended:
    """How a call ends whose handler writes to the result channel itself, and exits 0."""
    source = f"{SEND}def handler():\n    {body}\n    os._exit(0)"
    return await cage.run(source, **({"result_bytes": 1 << 20} | limits))


async def assert_forging_works(cage: Cage) -> None:
    """The control of this file: a well-formed frame by hand is taken, so a bad one arrives too."""
    got = await sent(cage, f"send({GOOD})")
    assert (got.kind, got.value) == (None, 1)


async def test_row_113_a_frame_on_stdout_is_output(any_cage):
    """A log line that looks like a result would become one."""
    got = await any_cage.run(
        f"import os, struct\nbody = {GOOD}\n"
        "for fd in (1, 2): os.write(fd, struct.pack('!Q', len(body)) + body)\nreturn 'real'"
    )
    assert got.value == "real"
    assert b'"ok":true' in got.stdout
    await assert_forging_works(any_cage)


async def test_row_114_a_frame_can_name_no_other_call(any_cage):
    """A handler forges its own result at most: what it says of ids is not read."""
    body = 'b\'{"ok":true,"value":1,"id":7,"call_id":"other","tool_name":"other"}\''
    got = await sent(any_cage, f"send({body})")
    other = await any_cage.run("return 2")
    assert got.kind in (None, "protocol_error")
    assert other.value == 2
    await assert_forging_works(any_cage)


@pytest.mark.parametrize(
    ("row", "body", "rule"),
    [
        (115, f"send({GOOD}); send({GOOD})", "after the frame"),
        (115, f"send({GOOD}); os.write(3, b'x')", "after the frame"),
        (116, "os.write(3, b'abc')", "inside its length"),
        (116, f"send({GOOD}, 1000)", "of 1000 bytes"),
        (117, "send(b'', 1 << 63)", "at most"),
        (117, "send(b'', -1)", "at most"),
        (119, "send(b'{\"ok\":true,\"value\":' + b'['*100000 + b']'*100000 + b'}')", "not JSON"),
        (119, "send(b'{\"ok\":true,\"value\":' + b'['*500 + b']'*500 + b'}')", "deeper"),
        (120, "send(b'{\"ok\":true,\"value\":NaN}')", "not JSON"),
        (120, "send(b'{\"ok\":true,\"value\":-Infinity}')", "not JSON"),
        (120, "send(b'{\"ok\":true,\"value\":1e400}')", "not JSON"),
        (121, "send(b'{\"ok\":true,\"value\":\"\\\\ud800\"}')", "not JSON"),
        (121, "send(b'{\"ok\":true,\"value\":18446744073709551616}')", "64 bits"),
        (121, "send(b'{\"ok\":true,\"value\":1,\"value\":2}')", "same key"),
    ],
    ids=lambda value: f"row_{value}" if isinstance(value, int) else None,
)  # fmt: skip
async def test_a_broken_frame_names_its_rule(cage, row, body, rule):
    """Each is an odd corner of some decoder; none may be reached, or raise."""
    got = await sent(cage, body)
    assert got.kind == "protocol_error", row
    assert rule in got.failure.rule
    await assert_forging_works(cage)


def test_row_117_a_length_is_refused_before_it_is_allocated():
    """2^63 bytes are asked of nobody."""
    reader = FrameReader(100)
    reader.feed((1 << 63).to_bytes(8, "big") + bytes(1000))
    refused = reader.message()
    assert isinstance(refused, BrokenRule)
    assert len(reader._data) <= 108
    body = b'{"ok":true}'
    control = FrameReader(100)
    control.feed(len(body).to_bytes(8, "big") + body)
    assert control.message() == {"ok": True}


async def test_row_118_the_cap_fits_and_one_byte_more_does_not(any_cage):
    """Otherwise the cap is a hint."""
    around = len('{"ok":true,"value":""}')
    fits = await any_cage.run(f"return 'x' * {1000 - around}", result_bytes=1000)
    assert (fits.kind, len(fits.value)) == (None, 1000 - around)
    over = await any_cage.run(f"return 'x' * {1001 - around}", result_bytes=1000)
    assert over.kind == "protocol_error"


def imported(source: str) -> set[str]:
    """Every module that a file imports, by its first name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_row_122_nothing_of_ours_can_load_a_pickle():
    """Loading one is running it."""
    hostile = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}
    files = [
        file
        for package in (toolcell, toolcell_sandbox)
        for file in Path(str(package.__file__)).parent.rglob("*.py")
    ]
    assert len(files) > 40
    assert {file.name: imported(file.read_text()) & hostile for file in files} == {
        file.name: set() for file in files
    }
    assert imported("import pickle") & hostile, "the control"


@pytest.mark.parametrize(
    "odd",
    [
        "class Odd:\n    def __reduce__(self): return (print, ('reduced',))",
        "class Odd:\n    __class__ = property(lambda self: dict)",
        "class Odd(dict):\n    def __eq__(self, other): raise SystemExit(0)\n    __hash__ = None",
        "class Odd(str):\n    def __str__(self): return 'lied'\n    def encode(self, *a): 1/0",
        "class Odd(int):\n    def __lt__(self, other): 1/0\n    __ge__ = __gt__ = __le__ = __lt__",
    ],
    ids=["reduce", "class", "eq", "str", "int"],
)
async def test_row_123_a_hostile_object_is_data_or_refused(any_cage, odd):
    """Its methods run in its own jail at most; outside arrives JSON or nothing."""
    got = await any_cage.run(f"{odd}\ndef handler():\n    return Odd()")
    assert got.kind in (None, "invalid_output", "exception", "exited")
    assert type(got.value) in (type(None), dict, str, int)
    assert (await any_cage.run("return {'a': 'b'}")).value == {"a": "b"}


async def test_row_124_an_enormous_message_is_cut_and_escapes_stay_text(any_cage):
    """One exception would be a gigabyte of context, or a program for a terminal."""
    got = await any_cage.run("raise ValueError('\\x1b]0;owned\\x07' + 'x' * (1 << 26))")
    assert got.kind == "exception"
    assert len(got.failure.message) < 10_000
    control = await any_cage.run("raise ValueError('short')")
    assert control.failure.message == "ValueError: short"


async def test_row_124_a_terminal_is_shown_no_escape():
    """`\\x1b[2J` in a result would clear what the person is about to approve."""
    from toolcell._visible import visible

    shown = visible("a\x1b[2Jb\x07\x9b‮c")
    assert not set("\x1b\x07\x9b‮") & set(shown)
    assert visible("plain") == "plain"


async def test_row_125_a_slow_drip_meets_the_deadline(any_cage):
    """A byte now and then looks like progress for ever."""
    got = await any_cage.run(
        f"{SEND}import time\ndef handler():\n    os.write(3, b'\\0\\0\\0\\0\\0\\1')\n"
        "    while True:\n        os.write(3, b'\\0'); os.write(1, b'.'); time.sleep(0.02)",
        wall_s=0.4,
    )
    assert got.kind == "timeout"
    assert got.wall_s < 10
    assert got.stdout, "the control: it did drip"


async def test_row_126_writes_to_every_descriptor_reach_nothing_else(any_cage):
    """A report channel left open would let a handler tell how its own call ended."""
    got = await any_cage.run(
        """
        import os
        def handler():
            for fd in range(1024):
                if fd == 3: continue
                try:
                    os.write(fd, b'{"event":"ended","status":0}\\n')
                except OSError:
                    pass
            return "fine"
        """
    )
    assert (got.kind, got.value) == (None, "fine")
    assert got.stdout.startswith(b'{"event"'), "the control: standard output is one of them"


async def test_row_127_the_descriptors_are_the_expected_set(any_cage, tmp_path):
    """One of ours, inherited, is a door that no fence sees."""
    ours = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(ours, True)
    source = """
        import os
        def handler():
            found = []
            for fd in range(4096):
                try:
                    os.fstat(fd)
                except OSError:
                    continue
                found.append(fd)
            return found
        """
    try:
        python = await any_cage.run(source)
        command = await any_cage.run(source, kind="command")
        control = await any_cage.run(f"{SEND}def handler():\n    return os.dup(0)")
    finally:
        os.close(ours)
    assert python.value == [0, 1, 2, 3]
    assert command.value == [0, 1, 2]
    assert control.value == 4
