"""The worker's side of the result channel, heard by the supervisor's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from toolcell_sandbox._child import frames
from toolcell_sandbox.decode import FrameReader


class FakePipe:
    """Takes at most `step` bytes at a time, as a full pipe does (write(2))."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.taken = b""

    def write(self, fd: int, data: memoryview) -> int:
        assert fd == 9
        self.taken += bytes(data[: self.step])
        return min(self.step, len(data))


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    "message",
    [{}, {"ok": True, "value": None}, {"ok": True, "value": ["é😀\u2028", -0.5, {"a": "x" * 500}]}],
)
def test_a_frame_is_written_whole_however_little_the_pipe_takes(
    monkeypatch: pytest.MonkeyPatch, step: int, message: dict[str, Any]
) -> None:
    """A short write that is taken for a whole one loses the result."""
    pipe = FakePipe(step)
    monkeypatch.setattr(os, "write", pipe.write)
    frames.send(9, message)
    reader = FrameReader(10_000)
    reader.feed(pipe.taken)
    assert reader.message() == message


def test_the_cap_counts_what_was_said_not_how_it_was_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a text of two million accents is three times too large for its limit."""
    pipe = FakePipe(1 << 20)
    monkeypatch.setattr(os, "write", pipe.write)
    frames.send(9, {"value": "é" * 1000})
    assert len(pipe.taken) < 2100
    # A half character is no UTF-8: it goes escaped, and the reader refuses it.
    frames.send(9, {"value": "\ud800"})
    assert pipe.taken.endswith(b'{"value":"\\ud800"}')


def test_what_is_no_json_is_not_sent_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a frame would be the tool's broken rule, not what it is."""
    pipe = FakePipe(100)
    monkeypatch.setattr(os, "write", pipe.write)
    with pytest.raises(ValueError, match="not JSON compliant"):
        frames.send(9, {"value": float("nan")})
    assert pipe.taken == b""
