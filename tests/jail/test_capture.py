"""stdout and stderr of real processes: every byte counted, however they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toolcell_sandbox import Captured

HEAD, TAIL = 1_000, 500
CAP = HEAD + TAIL
LIMITS = {"head_bytes": HEAD, "tail_bytes": TAIL}


def assert_counts(stream: Captured, seen: int) -> None:
    assert stream.seen_bytes == seen
    assert stream.kept_bytes == stream.head_bytes + stream.tail_bytes == min(seen, CAP)
    assert stream.lost_bytes == seen - stream.kept_bytes
    assert stream.closed


@pytest.mark.parametrize("size", [0, 1, CAP - 1, CAP, CAP + 1, 10_000_000])
async def test_case_06_and_07_every_byte_is_counted_at_the_cap_and_past_it(jail, size):
    """Otherwise a model reads a cut log as a whole one."""
    outcome = await jail.python(
        """
        import os
        def handler(size):
            data = bytes(range(97, 123)) * (size // 26 + 1)
            left = memoryview(data)[:size]
            while left:
                left = left[os.write(1, left):]
        """,
        {"size": size},
        **LIMITS,
    )
    assert outcome.failure is None
    assert_counts(outcome.stdout, size)
    whole = (bytes(range(97, 123)) * (size // 26 + 1))[:size]
    assert outcome.stdout.head == whole[:HEAD]
    assert outcome.stdout.kept.endswith(whole[-TAIL:])


async def test_a_gibibyte_is_counted_to_the_byte_and_not_held(jail):
    """Otherwise a flood fills the supervisor's memory, or its counters are guesses."""
    outcome = await jail.shell("head -c 1073741824 /dev/zero", **LIMITS)
    assert outcome.failure is None
    assert_counts(outcome.stdout, 1 << 30)


async def test_both_streams_are_counted_apart(jail):
    """case 1: a tool that fills one pipe while the other is read must not hang."""
    outcome = await jail.shell(
        "head -c 1048576 /dev/zero & head -c 1048576 /dev/zero >&2; wait", **LIMITS
    )
    assert outcome.failure is None
    assert_counts(outcome.stdout, 1 << 20)
    assert_counts(outcome.stderr, 1 << 20)


async def test_one_byte_writes_are_counted(jail):
    """Otherwise a count is right only for writers that fill the pipe."""
    outcome = await jail.python(
        """
        import os
        for _ in range(20_000):
            os.write(1, b"x")
        """,
        **LIMITS,
    )
    assert_counts(outcome.stdout, 20_000)


async def test_case_08_partial_output_survives_a_timeout_and_is_counted(jail):
    """Otherwise the one thing that says why it hung is lost."""
    outcome = await jail.python(
        """
        import os, signal
        os.write(1, b"y" * 70_000)
        os.write(2, b"why")
        signal.pause()
        """,
        **(LIMITS | {"wall_s": 3}),
    )
    assert outcome.failure is not None
    assert outcome.failure.kind == "timeout"
    assert_counts(outcome.stdout, 70_000)
    assert outcome.stderr.kept == b"why"


async def test_output_before_a_sigkill_is_counted(jail):
    """Otherwise a crash takes the evidence of its cause with it."""
    outcome = await jail.python(
        """
        import os, signal
        os.write(1, b"z" * 60_000)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        **LIMITS,
    )
    assert outcome.failure is not None
    assert outcome.failure.kind == "crashed"
    assert_counts(outcome.stdout, 60_000)


async def test_case_09_a_character_cut_by_the_cap_is_not_shown_in_halves(jail):
    """Otherwise the model sees damage that is not in the file."""
    outcome = await jail.python('print("é" * 5_000, end="")', head_bytes=11, tail_bytes=7)
    text = outcome.stdout.text()
    assert "�" not in text
    assert text.startswith("é" * 5 + "\n[... 9984 bytes, 0 lines left out ...]\n")
    assert text.endswith("é" * 3)


async def test_case_09_bytes_that_are_no_text_come_back_as_bytes(jail):
    """Otherwise binary output is silently replaced."""
    outcome = await jail.command("printf", r"\360")
    assert outcome.stdout.kept == b"\xf0"
    assert not outcome.stdout.is_utf8
    assert outcome.stdout.text() == "�"


async def test_a_character_split_across_reads_is_whole(jail):
    """case 9: a pipe has no characters."""
    outcome = await jail.python(
        """
        import os
        for byte in "añb€c😀".encode():
            os.write(1, bytes([byte]))
        """
    )
    assert outcome.stdout.text() == "añb€c😀"
    assert outcome.stdout.is_utf8


async def test_case_02_much_output_is_no_timeout(jail):
    """Otherwise whoever waits before reading calls a full pipe a hang."""
    outcome = await jail.shell("head -c 300000 /dev/zero | tr '\\0' x", wall_s=20)
    assert outcome.failure is None
    assert outcome.stdout.seen_bytes == 300_000
