"""A result that is too large for memory: on disk, without a name, whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell_sandbox import decode
from toolcell_sandbox._spool import FLUSH_BYTES, SPOOL_BYTES, Spool, Spooled, Unspooled
from toolcell_sandbox.decode import BrokenRule, FrameReader, TooManyValues

LARGE = SPOOL_BYTES + 3 * FLUSH_BYTES


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(8, "big") + body


def fed(reader: FrameReader, data: bytes) -> FrameReader:
    """As the supervisor does, in pieces as a pipe has them."""
    for at in range(0, len(data), 1 << 16):
        reader.feed(data[at : at + (1 << 16)])
        # What is held is bounded at any moment.
        assert len(reader._data) <= SPOOL_BYTES + (1 << 16)
        if reader.is_full:
            reader.flush()
    return reader


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(str(tmp_path))
    yield made
    made.close()
    assert os.listdir(tmp_path) == []


def test_a_large_frame_is_on_disk_and_has_no_name(spool: Spool, tmp_path: Path) -> None:
    """The supervisor would hold it several times over, for anybody who returns that much."""
    body = b'{"ok":true,"value":"' + b"x" * LARGE + b'"}'
    found = fed(FrameReader(1 << 30, spool), frame(body)).message()
    assert isinstance(found, Spooled)
    assert found.size_bytes == len(body)
    assert b"".join(found.chunks()) == body == b"".join(found.chunks())
    facts = os.fstat(found.fd)
    assert (facts.st_nlink, facts.st_mode & 0o777) == (0, 0o600)
    assert os.listdir(tmp_path) == []
    found.close()
    found.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        next(found.chunks())


def test_a_frame_of_exactly_the_threshold_is_read_as_before(spool: Spool) -> None:
    """Nothing that was answered from memory is slower for it."""
    body = b'{"v":"' + b"x" * (SPOOL_BYTES - 8) + b'"}'
    assert len(body) == SPOOL_BYTES
    assert isinstance(fed(FrameReader(1 << 30, spool), frame(body)).message(), dict)
    longer = b'{"v":"x' + b"x" * (SPOOL_BYTES - 8) + b'"}'
    found = fed(FrameReader(1 << 30, spool), frame(longer)).message()
    assert isinstance(found, Spooled)
    found.close()


def test_what_nobody_takes_is_closed(tmp_path: Path) -> None:
    """A call that was cancelled would leave its descriptor, and the room on disk behind it."""
    before = set(os.listdir("/proc/self/fd"))
    reader = fed(FrameReader(1 << 30, Spool(str(tmp_path))), b"\0" * 8 + b"x" * LARGE)
    assert set(os.listdir("/proc/self/fd")) - before
    reader.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    # Without a spool there is nothing to close, or to flush.
    plain = fed(FrameReader(100), frame(b"{}"))
    plain.flush()
    plain.close()
    assert plain.message() == {}


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        (frame(b"x" * LARGE)[:-1], "the frame ended after"),
        (frame(b"x" * LARGE) + b"y", "1 bytes after the frame"),
        (frame(b"x" * (LARGE + 1)), f"a frame of {LARGE + 1} bytes; at most {LARGE}"),
    ],
)
def test_a_large_frame_that_is_not_whole_is_refused(spool: Spool, sent: bytes, rule: str) -> None:
    """Half of a result on disk is as little a result as in memory."""
    found = fed(FrameReader(LARGE, spool), sent).message()
    assert isinstance(found, BrokenRule)
    assert rule in found.rule


def test_a_frame_of_too_many_values_is_left_to_somebody_else(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller who allowed the bytes did not mean to refuse them for being numbers."""
    monkeypatch.setattr(decode, "ITEMS_MAX", 10)
    body = b'{"v":[' + b"1," * 20 + b"1]}"
    found = fed(FrameReader(1_000, spool), frame(body)).message()
    assert isinstance(found, Spooled)
    assert b"".join(found.chunks()) == body
    found.close()
    alone = fed(FrameReader(1_000), frame(body)).message()
    assert isinstance(alone, TooManyValues)
    assert decode.parse(body, items_max=0) == {"v": [1] * 21}


@pytest.mark.parametrize("answer", [errno.EOPNOTSUPP, errno.EISDIR])
def test_where_there_are_no_unnamed_files_the_name_is_gone_at_once(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """Some file systems have none (open(2), O_TMPFILE)."""
    real = os.open

    def without(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(answer, "no")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", without)
    spool.write(b"abc")
    found = spool.take()
    assert isinstance(found, Spooled)
    assert os.fstat(found.fd).st_nlink == 0
    assert list(found.chunks()) == [b"abc"]
    found.close()


def test_a_spool_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """Otherwise a result of hundreds of megabytes is gone without a word."""
    spool = Spool(str(tmp_path / "none"))
    spool.write(b"abc")
    found = spool.take()
    assert isinstance(found, Unspooled)
    assert found.why == "No such file or directory"


def test_a_full_disk_is_remembered_and_the_rest_dropped(tmp_path: Path) -> None:
    """The writer is a jail: it must not stop for our want of room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    spool = Spool(str(tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        spool.write(b"x" * 900)
        spool.write(b"x" * 900)
        spool.write(b"x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    found = spool.take()
    assert isinstance(found, Unspooled)
    assert found.why == "File too large"
    spool.close()


def test_a_spooled_file_that_shrank_is_an_error(spool: Spool) -> None:
    """A reader that is given less than was promised must not take it for the end."""
    spool.write(b"x" * 100)
    found = spool.take()
    assert isinstance(found, Spooled)
    os.ftruncate(found.fd, 10)
    with pytest.raises(OSError, match="shorter than it was"):
        list(found.chunks())
    found.close()
