"""`toolcell retained`: what was too large to be shown, for the person whose state folder it is."""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell._exits import Refused
from toolcell._options import Output
from toolcell._retained_commands import RETAINED, _age, _seconds
from toolcell.retained import RetainedStore

TOOLCELL = [sys.executable, "-c", "import sys; from toolcell.cli import main; sys.exit(main())"]
JSON = Output(json=True)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def store(tmp_path: Path) -> RetainedStore:
    return RetainedStore(str(tmp_path / "state"))


@pytest.fixture
def toolcell(tmp_path: Path) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "TOOLCELL_STATE_DIR": str(tmp_path / "state")}
        return subprocess.run(
            [*TOOLCELL, "retained", *words],
            capture_output=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )

    return run


Words = Callable[..., str]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Words:
    """What a command of the group prints, run here."""
    monkeypatch.setenv("TOOLCELL_STATE_DIR", str(tmp_path / "state"))

    def run(name: str, *words: str, **flags: Any) -> str:
        code = trio.run(functools.partial(RETAINED[name], *words, **flags))
        out, err = capfd.readouterr()
        assert code == 0
        return str(out + err)

    return run


def test_a_person_lists_reads_and_sweeps_what_any_session_retained(
    toolcell: Run, said: Words, store: RetainedStore, tmp_path: Path
) -> None:
    """It is their disk, and their tools' output."""
    assert said("list") == "nothing is retained\n"
    assert said("sweep") == "removed 0\n"
    text = store.put("é\n\x1b[2J".encode() * 100, session="one", what="content")
    image = store.put(PNG, session="two", what="part", media_type="image/png")

    listed = json.loads(toolcell("list", "--json").stdout)
    assert listed["schema"] == 1
    found = {one["handle"]: one for one in listed["retained"]}
    assert set(found) == {text.handle, image.handle}
    assert found[image.handle]["media_type"] == "image/png"
    assert found[text.handle]["size_bytes"] == 700
    assert found[text.handle]["session"] != found[image.handle]["session"]
    assert text.handle in said("list")

    # As it is, where no terminal reads it; and where it goes on.
    page = toolcell("read", text.handle, "--offset", "1", "--limit", "6")
    assert (page.returncode, page.stdout) == (0, "é\n\x1b[2J".encode())
    assert b"693 bytes follow: --offset 7" in page.stderr
    as_json = json.loads(said("read", image.handle, output=JSON))
    assert (as_json["encoding"], as_json["next_offset"]) == ("base64", None)
    assert base64.b64decode(as_json["text"]) == PNG
    assert toolcell("read", image.handle).stdout == PNG

    old_s = time.time() - 3 * 86_400
    os.utime(tmp_path / "state" / "retained" / image.handle, (old_s, old_s))
    assert json.loads(said("sweep", older_than="4d", output=JSON))["removed"] == []
    swept = json.loads(toolcell("sweep", "--older-than", "2d", "--json").stdout)
    assert swept == {"schema": 1, "removed": [image.handle]}


def test_a_terminal_is_not_steered_by_what_a_tool_returned(
    said: Words, store: RetainedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An escape sequence in an output clears the screen, or writes what looks like ours."""
    text = store.put(b"a\n\x1b[2Jb", session="s", what="content")
    image = store.put(PNG, session="s", what="part", media_type="image/png")
    assert "\x1b" in said("read", text.handle)
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 1)
    assert "\x1b" not in said("read", text.handle)
    assert said("read", image.handle) == base64.b64encode(PNG).decode() + "\n"


def test_what_cannot_be_done_is_one_line(
    toolcell: Run, said: Words, store: RetainedStore, tmp_path: Path
) -> None:
    """A traceback is no answer to a handle with a typo."""
    handle = store.put(b"abc", session="s", what="content").handle
    for words, flags, text in (
        (("read", "ret_" + "a" * 26), {}, "nothing is retained as ret_aaa"),
        (("read", "../../etc/passwd"), {}, r"nothing is retained as \.\./\.\./etc"),
        (("read", handle), {"offset": 9}, "it has 3 bytes"),
        (("read", handle), {"limit": 0}, "limit is a whole number of at least 1"),
        (("sweep",), {"older_than": "soon"}, "write seconds, or a number with s, m, h or d"),
    ):
        with pytest.raises(Refused, match=text) as caught:
            said(*words, **flags)
        assert caught.value.code == 2
    (tmp_path / "state" / "retained").chmod(0o777)
    done = toolcell("list")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"the state folder cannot be used" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("36h", 129_600), ("5m", 300), ("9s", 9), ("0", 0)]
)
def test_an_age_is_written_with_its_unit(text: str, seconds: int) -> None:
    """A day that is read as a second removes everything."""
    assert _seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1d", "1w", "1.5d", "1 d", "\u0661d"])
def test_what_is_no_age_removes_nothing(text: str) -> None:
    """`--older-than 1w` must not be one second."""
    with pytest.raises(Refused):
        _seconds(text)


def test_an_age_is_shown_in_its_largest_unit() -> None:
    """604,800 s is nothing that a person reads."""
    ages = [_age(seconds) for seconds in (-5, 59, 60, 7_300, 90_000, 700_000)]
    assert ages == ["0 s", "59 s", "1 m", "2 h", "1 d", "8 d"]
