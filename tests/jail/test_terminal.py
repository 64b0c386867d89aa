"""The question on the terminal, asked through a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolcell.audit import read

# A session leader that opens a terminal without O_NOCTTY gets it as its controlling one (tty(4)).
TAKE_TERMINAL = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(fd, number)
os.execv(sys.argv[2], sys.argv[2:])
"""
TOOLCELL = "import sys; from toolcell.cli import main; sys.exit(main())"
QUESTION = "Run it?"
PATIENCE_S = 30.0


class Terminal:
    """A pseudo-terminal with a program on it: what it shows, and what a person types."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str]) -> None:
        self.master, slave = os.openpty()
        self.before = termios.tcgetattr(slave)
        self.seen = ""
        self._told = 0
        # Held until the end: a terminal that nobody has open forgets what was written to it.
        self._slave = slave
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, os.ttyname(slave), *argv],
            cwd=cwd,
            env=env,
            start_new_session=True,
        )

    def until(self, text: str) -> str:
        """Read until `text` was shown once more; what came since the last time."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (end := self.seen.find(text, self._told)) < 0:
            assert self._read([], deadline_s), f"never showed {text!r}:\n{self.seen}"
        shown = self.seen[self._told : end + len(text)]
        self._told = end + len(text)
        return shown

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ends(self) -> int:
        """Read to the end of the program; its exit code."""
        deadline_s = time.monotonic() + PATIENCE_S
        pidfd = os.pidfd_open(self._process.pid)
        try:
            while self._read([pidfd], deadline_s):
                pass
        finally:
            os.close(pidfd)
        return self._process.wait(max(0, deadline_s - time.monotonic()))

    def hangs_up(self) -> None:
        """What the kernel tells a session leader whose window was closed."""
        self._process.send_signal(signal.SIGHUP)

    def now(self) -> list[object]:
        """The terminal's settings as they are."""
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self.master)
        os.close(self._slave)

    def _read(self, others: list[int], deadline_s: float) -> bool:
        """Take what is shown; false at the deadline, or when only one of `others` is ready."""
        wait_s = max(0, deadline_s - time.monotonic())
        ready, _, _ = select.select([self.master, *others], [], [], wait_s)
        if self.master not in ready:
            return False
        self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        return True


Start = Callable[..., Terminal]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def start(workspace: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts `toolcell WORDS`, or a script of ours, on a terminal of its own."""
    opened: list[Terminal] = []
    env = {**os.environ, "TOOLCELL_STATE_DIR": str(tmp_path / "state"), "TERM": "xterm"}

    def begin(*words: str, script: str = TOOLCELL) -> Terminal:
        terminal = Terminal([sys.executable, "-c", script, *words], workspace, env)
        opened.append(terminal)
        return terminal

    yield begin
    for terminal in opened:
        terminal.close()


def records(tmp_path: Path) -> list[tuple[str, str | None]]:
    return [(one["record"], one.get("kind")) for one in read(tmp_path / "state")]


def test_once_runs_exactly_this_call(start: Start, workspace: Path) -> None:
    """The whole call is shown, with every reason, before anybody says yes."""
    terminal = start("run", "write_file", "path=a.txt", "content=one\ntwo\n")
    shown = terminal.until(QUESTION)
    for part in ("write_file", '"a.txt"', "    | one", "    | two", "writes to the workspace"):
        assert part in shown
    assert not (workspace / "a.txt").exists()
    terminal.types("y\n")
    assert terminal.ends() == 0
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


def test_no_does_not_run_and_tells_why(start: Start, workspace: Path) -> None:
    """The reason goes to the model, who can act on it."""
    terminal = start("run", "write_file", "path=a.txt", "content=x", "--json")
    terminal.until(QUESTION)
    terminal.types("n use b.txt\n")
    assert terminal.ends() == 4
    assert '"kind": "approval_rejected"' in terminal.seen
    assert '"why": "use b.txt"' in terminal.seen
    assert not (workspace / "a.txt").exists()


def test_what_would_go_is_shown_before_it_is_kept_and_no_leaves_all(
    start: Start, workspace: Path
) -> None:
    """Who said yes to the command has not said yes to what it came to."""
    (workspace / "folder").mkdir()
    (workspace / "folder" / "deep.txt").write_text("deep\n")
    (workspace / "a.txt").write_text("one\n")
    terminal = start("run", "shell", '{"command":"rm -rf ./*"}', "--yes", "--review")
    shown = terminal.until("Keep it?")
    for part in ("3 deleted", "- a.txt", "- folder", "- folder/deep.txt", "-one"):
        assert part in shown
    terminal.types("n\n")
    assert terminal.ends() == 4
    assert "effects_rejected" in terminal.seen
    assert (workspace / "folder" / "deep.txt").read_text() == "deep\n"
    assert (workspace / "a.txt").read_text() == "one\n"


def test_a_yes_after_the_run_keeps_it(start: Start, workspace: Path) -> None:
    """The other half of the promise."""
    (workspace / "a.txt").write_text("one\n")
    terminal = start("run", "shell", "command=rm a.txt; echo two > b.txt", "--yes", "--review")
    terminal.until("Keep it?")
    terminal.types("y\n")
    assert terminal.ends() == 0
    assert not (workspace / "a.txt").exists()
    assert (workspace / "b.txt").read_text() == "two\n"


def test_a_call_that_changed_nothing_is_not_asked_about(start: Start) -> None:
    """A question about nothing teaches a person to say yes."""
    terminal = start("run", "shell", "command=rm -rf .", "--yes", "--review")
    assert terminal.ends() == 0
    assert "nothing was changed" in terminal.seen
    assert "Keep it?" not in terminal.seen


def test_a_diff_cannot_act_on_the_terminal_that_it_is_shown_on(start: Start) -> None:
    """It is what a hostile tool wrote, word for word."""
    command = r"printf 'a\033]0;owned\007b\n' > 'evil.txt'"
    terminal = start("run", "shell", f"command={command}", "--yes", "--review")
    shown = terminal.until("Keep it?")
    assert "\x1b]0;" not in shown
    assert r"\x1b]0;owned\x07" in shown
    terminal.types("n\n")
    assert terminal.ends() == 4


def test_stop_proposes_to_end_the_agent(start: Start) -> None:
    """A person who says stop does not want the next question."""
    terminal = start("run", "shell", "command=true", "--json")
    terminal.until(QUESTION)
    terminal.types("q\n")
    assert terminal.ends() == 4
    assert '"terminate": true' in terminal.seen


TWO_WRITES = """
import trio
from toolcell import Executor
from toolcell.approval import ask_terminal

async def main():
    async with Executor(workspace=".", approver=ask_terminal) as executor:
        for name in ("first", "second"):
            result = await executor.call("write_file", {"path": name, "content": name})
            print(name, "ok" if result.ok else result.error.kind)

trio.run(main)
"""


def test_session_is_offered_for_a_first_use_and_not_asked_again(
    start: Start, workspace: Path
) -> None:
    """Asked for each of a hundred writes, a person stops reading."""
    terminal = start(script=TWO_WRITES)
    shown = terminal.until(QUESTION)
    assert "[s] and [p] also allow, later on: every call of write_file in " in shown
    assert "[s]" in terminal.until("stop:")
    terminal.types("s\n")
    assert terminal.ends() == 0
    assert terminal.seen.count(QUESTION) == 1
    assert "first ok" in terminal.seen
    assert "second ok" in terminal.seen


def test_once_is_asked_again(start: Start) -> None:
    """Yes to one call is not yes to the next."""
    terminal = start(script=TWO_WRITES)
    terminal.until(QUESTION)
    terminal.types("y\n")
    terminal.until(QUESTION)
    terminal.types("n\n")
    assert terminal.ends() == 0
    assert "second approval_rejected" in terminal.seen


def test_session_is_not_offered_for_what_always_asks(start: Start) -> None:
    """A yes to one command is never a yes to all commands, also when it is typed."""
    terminal = start("run", "shell", "command=true")
    terminal.until(QUESTION)
    assert "[s]" not in terminal.until("stop:")
    terminal.types("s\n")
    terminal.until("stop:")
    terminal.types("n\n")
    assert terminal.ends() == 4


@pytest.mark.parametrize("typed", ["\n", "perhaps\n", "yy\n", "y es\n"])
def test_what_is_no_clear_yes_is_a_no(start: Start, typed: str) -> None:
    """Enter pressed by habit, or a closed terminal, must run nothing."""
    terminal = start("run", "shell", "command=true", "--json")
    for _ in range(3):
        terminal.until("stop:")
        terminal.types(typed)
    assert terminal.ends() == 4
    assert "no clear answer" in terminal.seen


def test_the_end_of_input_is_a_no_at_once(start: Start) -> None:
    """Who presses Ctrl-D has left; asking again would wait for nobody."""
    terminal = start("run", "shell", "command=true", "--json")
    terminal.until("stop:")
    terminal.types("\x04")
    assert terminal.ends() == 4
    assert "closed without an answer" in terminal.seen


def test_the_words_of_the_answers_are_answers(start: Start) -> None:
    """`once` is what the documents call it."""
    terminal = start("run", "shell", "command=true")
    terminal.until("stop:")
    terminal.types("once\n")
    assert terminal.ends() == 0


def test_what_was_typed_before_the_question_does_not_answer_it(start: Start) -> None:
    """An answer meant for another program, or for the question before, is no answer."""
    terminal = start("run", "shell", "command=true")
    terminal.types("y\n")
    terminal.until("stop:")
    terminal.types("n\n")
    assert terminal.ends() == 4


def test_what_acts_on_a_terminal_is_shown_and_does_not_act(start: Start) -> None:
    """Otherwise the arguments could clear the screen and show another call."""
    command = "echo \x1b[2J\x1b[1;1Hls \u202eevil\u2066 \x9b31m a\x07b\rRun it?"
    terminal = start("run", "shell", json.dumps({"command": command}))
    shown = terminal.until("[y]")
    for hidden in ("\x1b", "\u202e", "\u2066", "\x9b", "\x07"):
        assert hidden not in shown
    for escape in (r"\u001b[2J", r"\u202e", r"\u2066", r"\x9b31m", r"\u0007"):
        assert escape in shown
    assert not any(line.startswith("Run it?") for line in shown.split("\n")[:-1])
    terminal.types("n\n")
    assert terminal.ends() == 4


def test_ctrl_c_at_the_question_cancels_the_call(start: Start, tmp_path: Path) -> None:
    """The usual way out has to be one, and leaves its record."""
    terminal = start("run", "shell", "command=true", "--json")
    terminal.until("stop:")
    terminal.types("\x03")
    assert terminal.ends() == 130
    assert '"kind": "cancelled"' in terminal.seen
    assert records(tmp_path) == [("intent", None), ("terminal", "cancelled")]


@pytest.mark.parametrize("answer", ["n\n", "\x03"])
def test_the_terminal_is_as_it_was(start: Start, answer: str) -> None:
    """A terminal left in another mode is a broken shell."""
    terminal = start("run", "shell", "command=true")
    attributes = list(terminal.before)
    attributes[3] &= ~termios.ECHO  # as a program that was there before left it
    termios.tcsetattr(terminal.master, termios.TCSANOW, attributes)
    terminal.until("stop:")
    assert terminal.now()[3] & termios.ECHO  # type: ignore[operator]  # the flags are an int
    terminal.types(answer)
    terminal.until("toolcell:")
    assert terminal.now() == attributes
    assert terminal.ends() in (4, 130)


TWO_AT_ONCE = """
import trio
from toolcell import Executor
from toolcell.approval import ask_terminal

async def main():
    async with Executor(workspace=".", approver=ask_terminal) as executor:
        async with trio.open_nursery() as nursery:
            for word in ("red", "blue"):
                nursery.start_soon(executor.call, "shell", {"command": f"echo {word}"})

trio.run(main)
"""


def test_two_calls_ask_one_after_the_other(start: Start) -> None:
    """Two questions mixed on one screen, and a yes goes to the wrong one."""
    terminal = start(script=TWO_AT_ONCE)
    first = terminal.until("stop:")
    assert ("echo red" in first) is not ("echo blue" in first)
    terminal.types("n\n")
    second = terminal.until("stop:")
    assert ("echo red" in second) is not ("echo red" in first)
    terminal.types("n\n")
    assert terminal.ends() == 0


def test_a_background_process_does_not_stop_at_the_question(start: Start) -> None:
    """Reading a terminal from its background stops a process until somebody notices."""
    script = (
        "import os, signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], 'run', 'shell', "
        "'command=true', '--approve', 'ask', '--json'], process_group=0)\n"
        "sys.exit(child.wait())\n"
    )
    terminal = start(TOOLCELL, script=script)
    assert terminal.ends() == 4
    assert '"kind": "approval_unavailable"' in terminal.seen
    assert "background" in terminal.seen


def test_output_of_a_tool_cannot_act_on_the_terminal(start: Start, workspace: Path) -> None:
    """A file that is only read must not be able to type, or to hide what was said."""
    (workspace / "evil.txt").write_text("a\x1b]0;owned\x07\u202eb\n\tc\n")
    terminal = start("run", "read_file", "path=evil.txt")
    assert terminal.ends() == 0
    assert "\x1b" not in terminal.seen
    assert "\u202e" not in terminal.seen
    assert r"a\x1b]0;owned\x07\u202eb" in terminal.seen
    assert "\tc" in terminal.seen or "        c" in terminal.seen


def test_a_call_of_more_than_a_second_shows_that_it_runs(start: Start, workspace: Path) -> None:
    """A silent terminal looks like a hang."""
    os.mkfifo(workspace / "go")
    code = "open('go').read()"
    terminal = start("run", "python", f"code={code}", "--yes", "--workspace-mode", "direct")
    terminal.until("running python, 1 s")
    (workspace / "go").write_text("now")
    assert terminal.ends() == 0
    assert terminal.seen.endswith("1 s\r\x1b[Know\r\n")


def test_colour_is_for_terminals_that_want_it(start: Start) -> None:
    """NO_COLOR is a person's wish."""
    terminal = start("run", "nothing")
    assert terminal.ends() == 3
    assert "\x1b[1;31m" in terminal.seen
    plain = start(script=f"import os; os.environ['NO_COLOR'] = '1'\n{TOOLCELL}")
    plain.ends()
    assert "\x1b[1;31m" not in plain.seen


def test_a_hangup_ends_the_call(start: Start, tmp_path: Path) -> None:
    """A window that was closed is no yes, and leaves nothing behind."""
    terminal = start("run", "shell", "command=true")
    terminal.until("stop:")
    terminal.hangs_up()
    assert terminal.ends() == 130
    assert records(tmp_path)[-1] == ("terminal", "cancelled")
