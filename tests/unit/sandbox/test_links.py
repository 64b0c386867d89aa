"""Messages between our own processes: whole, or an error; and no file of one that is none."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator

import pytest

from toolcell_sandbox._child import links


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def open_files() -> Iterator[None]:
    """Fails a test that leaves one open."""
    before = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == before


def rights(count: int) -> list[tuple[int, int, bytes]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{count}i", *[0] * count))]


@pytest.mark.parametrize("long", [False, True])
def test_a_message_arrives_with_its_files(
    open_files: None, pair: tuple[socket.socket, socket.socket], long: bool
) -> None:
    """The control: short and long ones are the same to whoever reads them."""
    told = {"a": "x" * (links.INLINE_BYTES if long else 1)}
    links.send(pair[0], links.pack(told), [0, 0])
    message, files = links.receive(pair[1])
    assert message == told
    assert [os.fstat(fd).st_ino for fd in files] == [os.fstat(0).st_ino] * 2
    for fd in files:
        os.close(fd)
    pair[0].close()
    assert links.receive(pair[1]) == (None, [])


def test_a_text_that_is_cut_is_an_error(
    open_files: None, pair: tuple[socket.socket, socket.socket]
) -> None:
    """What is left of it may be JSON, and say less than was said."""
    pair[0].sendmsg([b"1" * (links.INLINE_BYTES + 1)], rights(2))
    with pytest.raises(links.Truncated):
        links.receive(pair[1])


def test_files_that_are_lost_are_an_error(
    open_files: None, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Whoever takes the rest for all gives a handler the wrong stream."""
    pair[0].sendmsg([b"{}"], rights(links.FILES_MAX + 3))
    with pytest.raises(links.Truncated):
        links.receive(pair[1])


@pytest.mark.parametrize("room", [0, 1])
def test_files_that_find_no_room_are_an_error(
    open_files: None, pair: tuple[socket.socket, socket.socket], room: int
) -> None:
    """The kernel leaves out what is too many for the process, and says so by a flag alone."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    pair[0].sendmsg([b"{}"], rights(2))
    free = os.dup(0)
    os.close(free)
    # Only if nothing is free below, which is so unless somebody has closed one out of turn.
    taken = []
    while (fd := os.dup(0)) < pair[1].fileno() + 20:
        taken.append(fd)
    taken.append(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1 + room, limits[1]))
    try:
        with pytest.raises(links.Truncated):
            links.receive(pair[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in taken:
            os.close(fd)


@pytest.mark.parametrize("text", [b"no json", b"\0", b"{"])
def test_what_is_no_message_is_an_error(
    open_files: None, pair: tuple[socket.socket, socket.socket], text: bytes
) -> None:
    """Its files would stay open for as long as the process lives."""
    with open(os.devnull, "rb") as file:
        pair[0].sendmsg(
            [text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file.fileno()))]
        )
        with pytest.raises(ValueError, match="Expecting"):
            links.receive(pair[1])
    pair[0].sendall(text)
    with pytest.raises(ValueError, match="Expecting"):
        links.receive(pair[1])
