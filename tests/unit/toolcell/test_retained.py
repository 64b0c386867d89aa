"""What is retained: whole, in pages, for the session that made it, for a time, within a total."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell import _retained_store as files
from toolcell._answered import Asked, SupervisorRef, answer
from toolcell.bounding import Bounds, is_within
from toolcell.builtin import builtin_tools
from toolcell.builtin.retained import PAGE_BYTES_MAX, read_retained
from toolcell.calls import CallContext
from toolcell.errors import ToolError
from toolcell.markers import Returned
from toolcell.registry import ToolRegistry
from toolcell.results import Retained
from toolcell.retained import NotRetained, RetainedStore, Retainer, Unretained

HANDLE = re.compile(r"ret_[a-z2-7]{26}")
TEXT = "first é line\n" * 100


@pytest.fixture
def store(tmp_path: Path) -> RetainedStore:
    return RetainedStore(str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "retained"


def kept(store: RetainedStore, data: bytes | str = TEXT, session: str = "s") -> Retained:
    return store.put(
        data.encode() if isinstance(data, str) else data, session=session, what="content"
    )


def whole(store: RetainedStore, handle: str, limit: int, session: str = "s") -> str:
    """All pages, one after the other."""
    found, offset = "", 0
    while True:
        page = store.read(handle, offset, limit, session=session)
        assert page.offset == offset
        found += page.text
        if page.next_offset is None:
            return found
        assert page.next_offset > offset
        offset = page.next_offset


def age(path: Path, seconds: float) -> None:
    then_s = time.time() - seconds
    os.utime(path, (then_s, then_s))


# -- putting and reading -----------------------------------------------------------------------


def test_what_is_put_is_read_back_by_an_opaque_handle(store: RetainedStore, folder: Path) -> None:
    """The handle goes to a model: it says nothing about this machine."""
    found = kept(store)
    assert HANDLE.fullmatch(found.handle)
    assert (found.what, found.size_bytes, found.media_type) == (
        "content", len(TEXT.encode()), "text/plain",
    )  # fmt: skip
    assert whole(store, found.handle, 100) == TEXT
    assert kept(store).handle != found.handle
    assert str(folder) not in json.dumps(found.to_json())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.text(st.sampled_from("aé€𝄞\n"), min_size=1, max_size=60),
    limit=st.integers(1, 20),
    offset=st.integers(0, 240),
)
def test_pages_never_split_a_character(
    store: RetainedStore, text: str, limit: int, offset: int
) -> None:
    """Half a character is no text; and a page that does not go on never ends."""
    handle = kept(store, text).handle
    assert whole(store, handle, limit) == text
    data = text.encode()
    offset = min(offset, len(data))
    page = store.read(handle, offset, limit, session="s")
    assert offset - 3 <= page.offset <= offset
    assert data[page.offset :].startswith(page.text.encode())
    assert len(page.text.encode()) <= limit + 3
    assert page.text or offset == len(data)


def test_bytes_are_read_as_base64(store: RetainedStore) -> None:
    """An image has no characters to begin at."""
    data = bytes(range(256))
    found = store.put([data[:100], data[100:]], session="s", what="part", media_type="image/png")
    page = store.read(found.handle, 2, 7, session="s")
    assert base64.b64decode(page.text) == data[2:9]
    assert page.to_json() == {
        "text": page.text, "encoding": "base64", "offset": 2, "next_offset": 9,
        "size_bytes": 256, "media_type": "image/png",
    }  # fmt: skip


def test_a_page_has_a_largest_size(store: RetainedStore) -> None:
    """A limit of a gigabyte is a reader's slip, and would be the reader's memory."""
    handle = kept(store, "x" * (3 << 20)).handle
    assert len(store.read(handle, 0, 1 << 40, session="s").text) == 1 << 20


@pytest.mark.parametrize(
    ("offset", "limit"), [(-1, 1), (0, 0), (0, -5), (True, 1), (0, 1.0), ("0", 1), (10**6, 1)]
)
def test_an_offset_or_limit_that_means_nothing_is_refused(
    store: RetainedStore, offset: int, limit: int
) -> None:
    """A page of nothing reads like the end."""
    handle = kept(store).handle
    with pytest.raises(ValueError, match=r"whole number of at least|nothing at offset"):
        store.read(handle, offset, limit, session="s")


def test_the_end_is_an_empty_page(store: RetainedStore) -> None:
    """Whoever reads on at `size_bytes` is told that it is the end."""
    page = store.read(kept(store, "ab").handle, 2, 10, session="s")
    assert (page.text, page.next_offset) == ("", None)


# -- whose it is --------------------------------------------------------------------------------


def test_only_the_session_that_made_it_may_read_it(store: RetainedStore) -> None:
    """One agent's output, a secret in it, would be another's by a handle seen in a log."""
    mine, theirs = kept(store, session="mine"), kept(store, session="theirs")
    refusals = []
    for handle in (theirs.handle, "ret_" + "a" * 26):
        with pytest.raises(NotRetained) as caught:
            store.read(handle, 0, 10, session="mine")
        refusals.append(str(caught.value).replace(handle, "H"))
    # Nor can it tell that there is one.
    assert refusals[0] == refusals[1]
    assert store.read(mine.handle, 0, 5, session="mine").text == "first"
    assert store.read_as_operator(theirs.handle, 0, 5).text == "first"


def test_a_session_is_not_named_in_what_is_stored(store: RetainedStore, folder: Path) -> None:
    """A session's id may be all that it takes to be that session."""
    found = kept(store, session="very-secret-session")
    assert b"very-secret" not in (folder / found.handle).read_bytes()
    assert [one.session for one in store.entries()] == [files.session_digest("very-secret-session")]


@pytest.mark.parametrize(
    "handle", ["", "../x", "ret_short", "ret_" + "A" * 26, "ret_" + "a" * 25 + "/"]
)
def test_what_is_no_handle_opens_nothing(store: RetainedStore, handle: str) -> None:
    """A handle is a model's word; it is no path."""
    kept(store)
    with pytest.raises(NotRetained):
        store.read(handle, 0, 1, session="s")


def test_files_and_folder_are_the_owners_alone(store: RetainedStore, folder: Path) -> None:
    """What tools printed is nobody else's to read."""
    old = os.umask(0)
    try:
        handle = kept(store).handle
    finally:
        os.umask(old)
    assert folder.stat().st_mode & 0o7777 == 0o700
    assert (folder / handle).stat().st_mode & 0o7777 == 0o600


def test_a_folder_that_others_may_write_in_is_not_used(store: RetainedStore, folder: Path) -> None:
    """They could put their own entries there."""
    handle = kept(store).handle
    folder.chmod(0o777)
    with pytest.raises(OSError, match="others may write"):
        kept(store)
    with pytest.raises(OSError, match="not a folder of ours alone"):
        store.read(handle, 0, 1, session="s")


def test_a_folder_that_is_a_link_is_not_used(store: RetainedStore, folder: Path) -> None:
    """Whoever made the link chose where our files go."""
    folder.parent.mkdir(mode=0o700)
    (folder.parent / "other").mkdir(mode=0o700)
    folder.symlink_to("other")
    with pytest.raises(OSError, match=r"no folder|Not a directory"):
        kept(store)


# -- damage -------------------------------------------------------------------------------------


def spoiled(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    match how:
        case "header":
            data[60] ^= 1
        case "magic":
            data[0] ^= 1
        case "short":
            del data[-1]
        case "long":
            data += b"x"
        case "unfinished":
            data[: files.HEADER_BYTES] = bytes(files.HEADER_BYTES)
        case "empty":
            data.clear()
        case "fields" | "types":
            import hashlib

            body = b'{"no":1}'
            if how == "types":
                body = b'{"session":[],"what":[],"media_type":0,"size_bytes":"5","made_s":""}'
            text = files.MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n"
            data[: files.HEADER_BYTES] = text.ljust(files.HEADER_BYTES, b"\0")
    path.write_bytes(data)


@pytest.mark.parametrize(
    "how",
    ["header", "magic", "short", "long", "unfinished", "empty", "fields", "types", "mode", "link",
     "folder"],
)  # fmt: skip
def test_a_damaged_or_foreign_entry_is_none(store: RetainedStore, folder: Path, how: str) -> None:
    """Half of an output, or somebody else's file, would be shown as what a tool returned."""
    good, bad = kept(store), kept(store)
    path = folder / bad.handle
    if how == "mode":
        path.chmod(0o644)
    elif how in ("link", "folder"):
        path.rename(folder / "elsewhere")
        path.symlink_to("elsewhere") if how == "link" else path.mkdir()
    else:
        spoiled(path, how)
    with pytest.raises(NotRetained):
        store.read(bad.handle, 0, 1, session="s")
    assert [one.handle for one in store.entries()] == [good.handle]
    assert store.read(good.handle, 0, 5, session="s").text == "first"


def test_nothing_is_there_before_it_is_finished(store: RetainedStore, folder: Path) -> None:
    """A page of what is still being written would have an end that is none."""
    with store.begin(session="s", what="output") as new:
        new.write(b"half")
        assert store.entries() == []
        with pytest.raises(NotRetained):
            store.read(new.handle, 0, 1, session="s")
        # A sweep that removes everything leaves it alone.
        assert store.sweep(keep_s=-1.0) == ()
        found = new.finish()
    assert store.read(found.handle, 0, 9, session="s").text == "half"
    assert os.listdir(folder) == [found.handle]


def test_what_is_not_finished_leaves_nothing(store: RetainedStore, folder: Path) -> None:
    """A call that was cancelled would fill the disk, a piece at a time."""
    with store.begin(session="s", what="output") as new:
        new.write(b"half")
    new.drop()
    assert os.listdir(folder) == []


def test_what_cannot_be_made_an_entry_leaves_nothing(store: RetainedStore, folder: Path) -> None:
    """A header that does not fit would be half of one, and the content there for ever."""
    with pytest.raises(OSError, match="description is too long"):
        store.put(b"abc", session="s", what="part", media_type="text/" + "x" * 600)
    assert os.listdir(folder) == []


def test_what_was_dropped_is_never_written_to_again(store: RetainedStore, folder: Path) -> None:
    """Otherwise a tool's output goes to whatever file has got that descriptor since."""
    new = store.begin(session="s", what="output")
    new.write(b"half")
    new.drop()
    held = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
    try:
        with pytest.raises(OSError, match="descriptor"):
            new.write(b"more")
    finally:
        for fd in held:
            os.close(fd)
    assert os.listdir(folder) == []


def test_the_last_of_the_disk_is_not_taken(store: RetainedStore, folder: Path) -> None:
    """Otherwise a tool that retains fills the disk, the audit log has no room, and nothing runs."""
    kept(store)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        free = os.fstatvfs(fd)
        with pytest.raises(OSError, match="No space left"):
            store.make_room(fd, free.f_bavail * free.f_frsize, spare="", session="s")
        store.make_room(fd, 1, spare="", session="s")
    finally:
        os.close(fd)


def test_an_entry_is_never_written_over(store: RetainedStore) -> None:
    """Whoever had guessed a handle would choose what its reader is told."""
    found = kept(store)
    with pytest.raises(FileExistsError):
        store.put(b"other", session="s", what="content", handle=found.handle)
    assert store.read(found.handle, 0, 5, session="s").text == "first"


# -- how long, and how much ---------------------------------------------------------------------


def test_it_is_kept_for_seven_days(store: RetainedStore, folder: Path) -> None:
    """Longer is a store of secrets; shorter breaks a handle that an agent still has."""
    young, old = kept(store), kept(store)
    age(folder / young.handle, 7 * 86_400 - 60)
    age(folder / old.handle, 7 * 86_400 + 60)
    # Before it is swept, too.
    with pytest.raises(NotRetained):
        store.read(old.handle, 0, 1, session="s")
    assert [one.handle for one in store.entries()] == [young.handle]
    assert store.sweep() == (old.handle,)
    assert os.listdir(folder) == [young.handle]


def test_over_the_total_the_oldest_goes_first(tmp_path: Path) -> None:
    """Without a cap a chatty tool fills the disk within a week."""
    store = RetainedStore(str(tmp_path / "state"), cap_bytes=10_000)
    folder = tmp_path / "state" / "retained"
    made = []
    for number in range(6):
        made.append(kept(store, "x" * 2_000).handle)
        age(folder / made[-1], 100 - number)
    assert [one.handle for one in store.entries()] == made[-3:]
    total = sum(path.stat().st_size for path in folder.iterdir())
    assert total <= 10_000


def test_over_the_total_a_session_pushes_out_its_own(tmp_path: Path) -> None:
    """Otherwise one hostile tool takes from every session what they have handles of."""
    store = RetainedStore(str(tmp_path / "state"), cap_bytes=100_000)
    folder = tmp_path / "state" / "retained"
    theirs = store.put(b"y" * 8_000, session="quiet", what="content").handle
    age(folder / theirs, 1_000)
    for number in range(40):
        new = store.put(b"x" * 10_000, session="loud", what="content")
        age(folder / new.handle, 100 - number)
    assert store.read(theirs, 0, 3, session="quiet").text == "yyy"
    assert store.read(new.handle, 0, 3, session="loud").text == "xxx"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 100_000


def test_one_thing_over_the_total_is_refused(tmp_path: Path) -> None:
    """It would take everything else's place, and not even fit."""
    store = RetainedStore(str(tmp_path / "state"), cap_bytes=10_000)
    other = kept(store, "x" * 100)
    with pytest.raises(OSError, match="larger than the 10000 bytes"):
        store.put([b"x" * 4_000] * 3, session="s", what="content")
    assert os.listdir(tmp_path / "state" / "retained") in ([other.handle], [])


def test_between_two_sweeps_not_every_entry_is_looked_at(
    store: RetainedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of entries would be listed at every large result."""
    swept: list[str] = []
    real = files.sweep

    def counted(folder: int, **options: Any) -> object:
        swept.append(options["spare"])
        return real(folder, **options)

    monkeypatch.setattr(files, "sweep", counted)
    for _ in range(5):
        kept(store)
    assert len(swept) == 1


def test_a_sweep_takes_what_a_dead_process_left_and_nothing_else(
    store: RetainedStore, folder: Path
) -> None:
    """What is no entry of ours is not ours to remove."""
    good = kept(store)
    age(folder / good.handle, 3_600)
    left = [folder / ("ret_" + letter * 26) for letter in "abcd"]
    for path in left:
        path.write_bytes(b"half")
        path.chmod(0o600)
        age(path, 3_600)
    young, written, open_to_all, _ = left
    os.utime(young)
    open_to_all.chmod(0o644)
    strangers = [folder / "notes.txt", folder / ("ret_" + "e" * 26)]
    strangers[0].write_text("mine")
    strangers[1].symlink_to("notes.txt")
    age(strangers[0], 10**8)
    with written.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert store.sweep() == (left[3].name,)
    found = {path.name for path in folder.iterdir()}
    assert found == {good.handle, *(p.name for p in (young, written, open_to_all, *strangers))}


def test_nothing_was_ever_retained(store: RetainedStore, tmp_path: Path) -> None:
    """Looking makes no folder, and is no error."""
    assert store.entries() == []
    assert store.sweep() == ()
    with pytest.raises(NotRetained):
        store.read("ret_" + "a" * 26, 0, 1, session="s")
    assert not (tmp_path / "state").exists()
    assert os.path.isdir(store.spool_folder)


def test_two_processes_share_one_folder(store: RetainedStore, folder: Path) -> None:
    """An agent and the person at the command line are two."""
    code = (
        "import sys\nfrom toolcell.retained import RetainedStore\n"
        "store = RetainedStore(sys.argv[1])\n"
        "print(store.put(b'theirs', session='s', what='output').handle)\n"
        "print(len(store.entries()), store.read(sys.argv[2], 0, 5, session='s').text)\n"
    )
    mine = kept(store)
    done = subprocess.run(
        [sys.executable, "-c", code, store.state_dir, mine.handle],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs, counted = done.stdout.splitlines()
    assert counted == "2 first"
    assert store.read(theirs, 0, 9, session="s").text == "theirs"


# -- what cannot be kept ------------------------------------------------------------------------


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may grow past 64 KiB (setrlimit(2)): a real refusal to write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("small_disk")
async def test_what_the_disk_refuses_is_said_and_leaves_nothing(
    store: RetainedStore, folder: Path
) -> None:
    """Otherwise a model is given a handle to half of an output."""
    retain = Retainer(store, "s")
    fits = await retain.put(b"x" * 1_000, what="content")
    assert isinstance(fits, Retained)
    refused = await retain.put(b"x" * 100_000, what="content")
    assert refused == Unretained(why="File too large")
    assert os.listdir(folder) == [fits.handle]


async def test_retaining_is_not_cut_off_by_a_cancel(store: RetainedStore) -> None:
    """Effects may have been kept by then: the result has to be had."""
    with trio.CancelScope() as scope:
        scope.cancel()
        found = await Retainer(store, "s").put(b"abc", what="content")
    assert isinstance(found, Retained)
    assert store.read(found.handle, 0, 9, session="s").text == "abc"


def test_an_error_without_words_is_named_by_its_type(store: RetainedStore) -> None:
    """`None` is no reason."""
    from toolcell.retained import unretained

    assert unretained(TimeoutError()).why == "TimeoutError"


# -- the tool -----------------------------------------------------------------------------------


def asked(store: RetainedStore, session: str = "s") -> Asked:
    return Asked(
        retain=Retainer(store, session), shown=ToolRegistry().snapshot(), context=CallContext()
    )


async def said(store: RetainedStore, session: str = "s", **arguments: object) -> object:
    (tool,) = (tool for tool in builtin_tools() if tool.name == "read_retained")
    assert isinstance(tool.handler, SupervisorRef)
    return await answer(tool.handler, arguments, asked(store, session))


async def test_the_tool_reads_pages_and_says_how_to_go_on(store: RetainedStore) -> None:
    """A model has nothing but the handle and what the last page said."""
    handle = kept(store, "ab" * 10_000).handle
    found = await said(store, handle=handle)
    assert isinstance(found, Returned)
    page = found.as_json()
    assert found.content is not None
    assert found.content.splitlines()[-1] == (
        "[toolcell: from byte 0 of 20,000; go on with offset=16384]"
    )
    assert "ret_" not in found.content
    last = await said(store, handle=handle, offset=16_384.0, limit=10**9)
    assert isinstance(last, Returned)
    assert last.content is not None
    assert last.content.endswith("[toolcell: from byte 16384 of 20,000; the end]")
    end = await said(store, handle=handle, offset=20_000)
    assert isinstance(end, Returned)
    assert end.content == "[toolcell: from byte 20000 of 20,000; the end]"
    assert page is not None


@pytest.mark.parametrize("size", [1_899, 1_900, 1_901, 1_902, 4_000])
async def test_a_page_of_many_lines_is_within_the_bounds_of_any_content(
    store: RetainedStore, size: int
) -> None:
    """It would be bounded in its turn, and its rest retained, and so on."""
    handle = kept(store, "\n" * size).handle
    read, offset = 0, 0
    while True:
        found = await said(store, handle=handle, offset=offset, limit=PAGE_BYTES_MAX)
        assert isinstance(found, Returned)
        assert found.content is not None
        assert is_within(found.content, Bounds())
        page = found.output
        assert isinstance(page, dict)
        read += len(page["text"])
        if page["next_offset"] is None:
            break
        offset = page["next_offset"]
    assert read == size


async def test_the_tool_says_that_bytes_are_base64(store: RetainedStore) -> None:
    """A model would read it as text."""
    handle = store.put(b"\xff\0", session="s", what="part", media_type="image/png").handle
    found = await said(store, handle=handle)
    assert isinstance(found, Returned)
    assert found.content == "/wA=\n[toolcell: from byte 0 of 2 (image/png, in base64); the end]"


async def test_the_tool_refuses_another_sessions_handle(store: RetainedStore, folder: Path) -> None:
    """The tool is how a model would try it."""
    handle = kept(store).handle
    found = await said(store, "other", handle=handle)
    assert isinstance(found, ToolError)
    assert "nothing is retained" in str(found)
    past = await said(store, handle=handle, offset=10**9)
    assert isinstance(past, ToolError)
    assert past.retryable == "maybe"
    os.chmod(folder, 0o777)
    broken = await said(store, handle=handle)
    assert isinstance(broken, ToolError)
    assert "cannot be read" in str(broken)
    assert str(folder) not in str(broken)


def test_the_tool_as_a_function_names_the_way() -> None:
    """It has no store of its own."""
    with pytest.raises(ToolError, match="answered by an executor"):
        read_retained("ret_x")
