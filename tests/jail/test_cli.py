"""The command line from outside: words in; streams and an exit code out."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell.audit import read
from toolcell.builtin import builtin_tools
from toolcell.dialects import schemas_of

ROOT = Path(__file__).resolve().parents[2]
TOOLCELL = [sys.executable, "-c", "import sys; from toolcell.cli import main; sys.exit(main())"]
PATIENCE_S = 120.0

Words = str | bytes
Done = subprocess.CompletedProcess[bytes]
Run = Callable[..., Done]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TOOLCELL_STATE_DIR": str(tmp_path / "state")}


@pytest.fixture
def toolcell(workspace: Path, environment: dict[str, str]) -> Run:
    """Runs `toolcell WORDS` in the workspace, without a terminal."""

    def run(*words: Words, cwd: Path = workspace, env: Any = None, **more: Any) -> Done:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if "input" not in more:
            streams["stdin"] = subprocess.DEVNULL
        return subprocess.run(
            [*TOOLCELL, *words],
            cwd=cwd,
            env={**environment, **(env or {})},
            start_new_session=True,  # without a controlling terminal
            timeout=PATIENCE_S,
            check=False,
            **{**streams, **more},
        )

    return run


def records(tmp_path: Path) -> list[tuple[str, str, str | None]]:
    found = read(tmp_path / "state")
    return [(r["record"], r["tool_name"], r.get("kind")) for r in found]


def one_line(done: Done) -> str:
    """What stderr says, which is one line and nothing on stdout."""
    text = done.stderr.decode()
    assert done.stdout == b""
    assert text.count("\n") == 1, text
    assert text.startswith("toolcell: ")
    assert "Traceback" not in text
    return text


# -- run ----------------------------------------------------------------------------------


def test_a_result_is_plain_text_without_a_terminal(toolcell: Run) -> None:
    """`toolcell run read_file … > copy` has to be the file, byte for byte."""
    done = toolcell("run", "read_file", "path=notes.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\ntwo\n", b"")


def test_json_is_one_object_of_schema_1(toolcell: Run) -> None:
    """Programs read this; its shape is promised."""
    done = toolcell("run", "read_file", "path=notes.txt", "--json")
    result = json.loads(done.stdout)
    assert result["schema"] == 1
    assert result["output"] == "one\ntwo\n"
    assert result["error"] is None
    assert result["receipt"]["isolation"] == "standard"
    assert set(result["stdout"]) >= {"text", "kept_bytes", "seen_bytes", "lost_bytes", "closed"}
    assert done.stdout.isascii()


def test_output_is_counted_to_the_byte(toolcell: Run) -> None:
    """CASES 1, 6: what is left out is known, and the caps are the flags'."""
    code = 'import os\nos.write(1, b"x" * 10_000_000)\nprint(6 * 7)'
    done = toolcell(
        "run", "python", json.dumps({"code": code}), "--yes", "--json", "--capture", "101"
    )
    out = json.loads(done.stdout)["stdout"]
    assert out["seen_bytes"] == 10_000_003 == out["kept_bytes"] + out["lost_bytes"]
    assert (out["head_bytes"], out["tail_bytes"]) == (51, 50)


@pytest.mark.parametrize("place", ["before", "after", "between"])
def test_flags_may_stand_anywhere(toolcell: Run, place: str) -> None:
    """A person adds `--json` at the end, a program at the start."""
    words = ["run", "read_file", "path=notes.txt"]
    words.insert({"before": 1, "between": 2, "after": 3}[place], "--json")
    assert json.loads(toolcell(*words).stdout)["success"] is True


def test_arguments_come_from_standard_input_and_from_a_file(toolcell: Run, workspace: Path) -> None:
    """CASES 27: what is longer than a command line, or a secret, is no word of it."""
    text = "x" * 300_000
    arguments = json.dumps({"path": "big.txt", "content": text}).encode()
    (workspace / "arguments.json").write_bytes(arguments)
    assert toolcell("run", "write_file", "-", "--yes", input=arguments).returncode == 0
    assert (workspace / "big.txt").read_text() == text
    assert toolcell("run", "write_file", "@arguments.json", "--yes").returncode == 0


def test_a_nonzero_exit_of_a_command_is_a_success_of_run(toolcell: Run) -> None:
    """The exit code is data; only `exec` makes it its own."""
    done = toolcell("run", "shell", "command=echo out; exit 3", "--yes")
    assert (done.returncode, done.stdout) == (0, b"out\nexit code 3\n")


ENDINGS = [
    (["run", "read_file", "path=missing"], 1, "tool_error"),
    (["run", "python", "code=1/0", "--yes"], 1, "exception"),
    (["run", "python", "code=import os; os._exit(0)", "--yes"], 1, "exited"),
    (["run", "reed_file", "path=x"], 3, "unknown_tool"),
    (["run", "read_file", "pth=x"], 3, "invalid_arguments"),
    (["run", "read_file", "path=../outside"], 4, "denied"),
    (["run", "shell", "command=true"], 4, "approval_unavailable"),
    (["run", "shell", "command=sleep 1000", "--yes", "--wall", "0.2"], 5, "timeout"),
    (
        ["run", "python", "code=bytearray(1 << 30)", "--yes", "--memory", "64M"],
        5,
        "memory_exceeded",
    ),
    (["run", "shell", "command=kill -SEGV $$", "--yes"], 6, "crashed"),
]


@pytest.mark.parametrize(("words", "code", "kind"), ENDINGS, ids=[e[2] for e in ENDINGS])
def test_an_ending_has_its_exit_code_and_its_object(
    toolcell: Run, words: list[str], code: int, kind: str
) -> None:
    """A script sees the code, a program the object, a person the line; they agree."""
    done = toolcell(*words, "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["kind"] == kind
    assert done.stderr == b""
    told = toolcell(*words)
    assert told.returncode == code
    assert f"toolcell: {kind}: " in told.stderr.decode()
    assert "toolcell/executor.py" not in told.stderr.decode()


@pytest.mark.parametrize("flags", [[], ["--approve", "ask"], ["--approve", "never"]])
def test_without_a_terminal_what_asks_is_refused_at_once(toolcell: Run, flags: list[str]) -> None:
    """CASES 35: headless and ask is a no, never a hang."""
    done = toolcell("run", "shell", "command=true", *flags, "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["error"]["kind"] == "approval_unavailable"


def test_an_unknown_tool_is_told_the_nearest_names(toolcell: Run) -> None:
    """A misspelling is the commonest mistake."""
    done = toolcell("run", "reed_file", "path=x")
    assert "read_file" in one_line(done)


def test_a_tool_gets_the_environment_that_was_named_and_no_other(toolcell: Run) -> None:
    """CASES 22: a token of the supervisor's is nobody else's business."""
    done = toolcell(
        "run", "shell", "command=env", "--yes", "--env", "A=1", "--env", "GIVEN",
        env={"GIVEN": "2", "SECRET_TOKEN": "hunter2"},
    )  # fmt: skip
    assert b"A=1\n" in done.stdout
    assert b"GIVEN=2\n" in done.stdout
    assert b"hunter2" not in done.stdout


@pytest.mark.parametrize("words", [["-v", "run"], ["run", "-v"]], ids=["first", "later"])
def test_verbose_says_what_was_decided_and_what_held(toolcell: Run, words: list[str]) -> None:
    """Whoever asks why gets the decision and the receipt, and stdout stays the result."""
    done = toolcell(*words, "read_file", "path=notes.txt")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")
    for part in (b"decided allow, level 0", b"read_file only reads", b"net_blocked"):
        assert part in done.stderr


@pytest.mark.parametrize("words", [[], ["--help"], ["run", "--help"], ["exec", "-h"]])
def test_help_is_on_stdout(toolcell: Run, words: list[str]) -> None:
    """Asked for, it is the output; and nothing runs."""
    done = toolcell(*words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Usage: toolcell")


# -- bad input ----------------------------------------------------------------------------

NUL = '{"path": "a\\u0000b"}'
SURROGATE = '{"path": "\\ud800"}'
BAD: list[tuple[list[Words], int]] = [
    (["frobnicate"], 2),
    (["run"], 2),
    (["run", "list_directory", "--nope"], 2),
    (["run", "read_file", "--wall"], 2),
    (["run", "read_file", ""], 2),
    (["run", "", "a=1"], 3),
    (["run", "read_file", "notes.txt"], 2),
    (["run", "read_file", "path=a", "path=b"], 2),
    (["run", "read_file", "{bad"], 2),
    (["run", "read_file", "[1]"], 2),
    (["run", "read_file", '{"path": "a", "path": "b"}'], 2),
    (["run", "read_file", '{"a":' * 20_000], 2),
    (["run", "read_file", NUL], 3),
    (["run", "read_file", SURROGATE], 3),
    (["run", "read_file", b"path=\xff\xfe"], 3),
    (["run", "read_file", b"\xff\xfe"], 2),
    (["run", b"\xff\x1b[2J"], 3),
    (["run", "read_file", "@missing"], 2),
    (["run", "read_file", "@."], 2),
    (["run", "read_file", "@binary"], 2),
    (["run", "read_file", "@/proc/self/mem"], 2),
    (["run", "shell", "command=true", "--memory", "lots"], 2),
    (["run", "shell", "command=true", "--memory", "-1"], 2),
    (["run", "shell", "command=true", "--memory", "9" * 400], 2),
    (["run", "shell", "command=true", "--wall", "nan"], 2),
    (["run", "shell", "command=true", "--wall", "soon"], 2),
    (["run", "shell", "command=true", "--processes", "1e3"], 2),
    (["run", "shell", "command=true", "--capture", ""], 2),
    (["run", "shell", "command=true", "--env", "=x"], 2),
    (["run", "shell", "command=true", "--env", "NOT_SET_HERE"], 2),
    (["run", "shell", "command=true", "--approve", "maybe"], 2),
    (["run", "list_directory", "--isolation", "strong"], 2),
    (["run", "list_directory", "--isolation", ""], 2),
    (["run", "list_directory", "--workspace-mode", "overlay"], 2),
    (["run", "list_directory", "--workspace-mode", "rw"], 2),
    (["run", "list_directory", "--network", "wifi"], 2),
    (["run", "list_directory", "--read", "missing"], 2),
    (["run", "list_directory", "--read", "/"], 2),
    (["run", "list_directory", "--read", ""], 2),
    (["run", "list_directory", "--write", "notes.txt"], 2),
    (["run", "list_directory", "--write", "."], 2),
    (["run", "list_directory", "--waive", "nets"], 2),
    (["run", "list_directory", "--waive", "fs_confined"], 2),
    (["exec", "--isolation", "strong", "--", "true"], 2),
    (["python", "-", "--isolation", "strong"], 2),
    (["check", "read_file", "path=notes.txt", "--isolation", "strong"], 2),
    (["tools", "--tools", "clash.py", "--isolation", "strong"], 2),
    (["doctor", "--isolation", "strong"], 2),
    (["run", "shell", "command=true", "--yes", "--approve", "never"], 2),
    (["run", "list_directory", "--tools", "missing.py"], 2),
    (["run", "list_directory", "--tools", "notes.txt"], 2),
    (["run", "list_directory", "--tools", "."], 2),
    (["run", "list_directory", "--tools", "broken.py"], 2),
    (["run", "list_directory", "--tools", "empty.py"], 2),
    (["run", "list_directory", "--tools", "clash.py"], 2),
    (["tools", "--tools", "clash.py"], 2),
    (["run", "list_directory", "--workspace", "/"], 2),
    (["run", "list_directory", "--workspace", os.path.expanduser("~")], 2),
    (["run", "list_directory", "--workspace", "/usr/bin"], 2),
    (["run", "list_directory", "--workspace", "missing"], 2),
    (["run", "list_directory", "--workspace", "notes.txt"], 2),
    (["run", "list_directory", "--workspace", "x" * 5_000], 2),
    (["python", "missing.py"], 2),
    (["python", "binary"], 2),
    (["exec"], 2),
    (["exec", "--"], 2),
    (["exec", "--", ""], 2),
    (["exec", "ls", "-l"], 2),
    (["exec", "--yes", "--", "echo", b"\xff"], 2),
    (["check"], 2),
    (["check", "nothing"], 3),
    (["check", "read_file", "{bad"], 2),
]  # fmt: skip


def _id(words: list[Words]) -> str:
    return " ".join(os.fsdecode(word)[:20] for word in words).encode("ascii", "replace").decode()


@pytest.mark.parametrize(("words", "code"), BAD, ids=[_id(words) for words, _ in BAD])
def test_bad_input_is_one_clear_line(
    toolcell: Run, workspace: Path, words: list[Words], code: int
) -> None:
    """A traceback tells a person nothing, and a program that nothing is wrong with it."""
    (workspace / "binary").write_bytes(b"\x00\xff\xfe")
    (workspace / "broken.py").write_text("raise RuntimeError('a\\x1b[2J')")
    (workspace / "empty.py").write_text("")
    (workspace / "clash.py").write_text(
        "from toolcell import tool\n@tool\ndef read_file() -> int:\n    return 1\n"
    )
    done = toolcell(*words)
    assert done.returncode == code, done
    line = one_line(done)
    assert line.isprintable() or line[:-1].isprintable()


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"[]"])
def test_standard_input_that_is_no_object_is_one_clear_line(toolcell: Run, content: bytes) -> None:
    """Likewise for what a pipe brings."""
    done = toolcell("run", "read_file", "-", input=content)
    assert done.returncode == 2
    one_line(done)


@pytest.mark.parametrize("place", ["file", "/proc/nowhere", "folder"])
def test_a_state_folder_that_cannot_be_used_is_one_clear_line(
    toolcell: Run, tmp_path: Path, place: str
) -> None:
    """No record, no call; and the way out is named."""
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "audit.sqlite").mkdir(parents=True)
    state = place if place.startswith("/") else str(tmp_path / place)
    done = toolcell("run", "list_directory", env={"TOOLCELL_STATE_DIR": state})
    assert done.returncode == 2
    assert "TOOLCELL_STATE_DIR" in one_line(done)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_no_accident(
    toolcell: Run, workspace: Path, closed: tuple[int, ...]
) -> None:
    """A pipe of the jail that got number 1 would end as somebody's output."""
    script = " ".join(f"{fd}>&-" for fd in closed)
    words = ["run", "write_file", "path=made", "content=x", "--yes"]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {script}', "sh", *TOOLCELL, *words],
        cwd=workspace,
        env={**os.environ, "TOOLCELL_STATE_DIR": str(workspace.parent / "state")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert (workspace / "made").read_text() == "x"


def test_a_reader_that_went_away_is_no_failure(toolcell: Run) -> None:
    """`toolcell run … | head -1` is an everyday thing."""
    read, write = os.pipe()
    os.close(read)
    done = toolcell("run", "list_directory", "--json", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_result_that_could_not_be_written_is_no_success(toolcell: Run) -> None:
    """A full disk under the output, and a script would go on without the result."""
    with open("/dev/full", "wb") as full:
        done = toolcell("run", "list_directory", "--json", stdout=full)
    assert done.returncode == 70
    assert done.stderr.count(b"\n") == 1


def test_a_defect_of_ours_is_one_line(workspace: Path, environment: dict[str, str]) -> None:
    """Whatever we did wrong, a person gets a line and a script a code; -v shows the rest."""
    script = (
        "import sys, toolcell.cli as cli\n"
        "def broken(words): raise ZeroDivisionError('planted')\n"
        "cli._run = broken\n"
        "sys.exit(cli.main())\n"
    )
    for words, lines in ((["run", "x"], 1), (["run", "x", "-v"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", script, *words],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 70
        assert b"ZeroDivisionError: planted" in done.stderr
        assert (b"Traceback" in done.stderr) is (lines > 1)


# -- exec ---------------------------------------------------------------------------------


def test_exec_passes_streams_and_exit_code_through(toolcell: Run, tmp_path: Path) -> None:
    """A script must not notice that the command runs in a jail."""
    done = toolcell("exec", "--yes", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert records(tmp_path) == [("intent", "exec", None), ("terminal", "exec", None)]


def test_exec_output_is_whole(toolcell: Run) -> None:
    """What is kept for a model is capped; what passes through is not."""
    done = toolcell("exec", "--yes", "--capture", "10", "--", "head", "-c", "20000000", "/dev/zero")
    assert done.stdout == bytes(20_000_000)


EXECS: list[tuple[list[str], int]] = [
    (["--yes", "--", "true"], 0),
    (["--yes", "--wall", "0.2", "--", "sleep", "1000"], 124),
    (["--yes", "--cpu", "0.2", "--", "sh", "-c", "while :; do :; done"], 124),
    (["--", "true"], 126),
    (["--yes", "--", "./notes.txt"], 126),
    (["--yes", "--", "no-such-program"], 127),
    (["--yes", "--", "./no-such-program"], 127),
    (["--yes", "--", "sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
    (["--yes", "--", "sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
    (["--yes", "--", "echo", "--json", "-v", "-"], 0),
]


@pytest.mark.parametrize(("words", "code"), EXECS, ids=[" ".join(words) for words, _ in EXECS])
def test_exec_has_the_codes_of_a_shell(toolcell: Run, words: list[str], code: int) -> None:
    """What a script does with `timeout`, `env` and `sh` works here as well."""
    assert toolcell("exec", *words).returncode == code


def test_what_stands_after_the_dashes_is_the_commands(toolcell: Run) -> None:
    """A flag of the command must not become one of ours."""
    done = toolcell("exec", "--yes", "--", "echo", "--json", "-v", "-", "--")
    assert done.stdout == b"--json -v - --\n"


def test_exec_json_is_one_object_instead(toolcell: Run) -> None:
    """Here our failures and the command's can be told apart."""
    done = toolcell("exec", "--yes", "--json", "--", "sh", "-c", "echo out; exit 126")
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (126, b"")
    assert (result["exit_code"], result["error"], result["stdout"]["text"]) == (126, None, "out\n")
    assert json.loads(toolcell("exec", "--json", "--", "true").stdout)["error"]["kind"] == (
        "approval_unavailable"
    )


@pytest.mark.parametrize("source", ["pipe", "file", "socket", "null", "closed"])
def test_exec_feeds_what_can_be_fed(toolcell: Run, tmp_path: Path, source: str) -> None:
    """CASES 3, 10: a filter works, and bare `cat` without input ends at once."""
    content = b"line\n" * 400_000
    more: dict[str, Any] = {"stdin": subprocess.DEVNULL}
    if source == "pipe":
        more = {"input": content}
    elif source == "file":
        file = tmp_path / "content"
        file.write_bytes(content)
        more = {"stdin": file.open("rb")}
    elif source == "socket":
        ours, theirs = socket.socketpair()
        ours.sendall(b"line\n")
        ours.close()
        content, more = b"line\n", {"stdin": theirs}
    done = toolcell("exec", "--yes", "--", "cat", **more)
    if hasattr(more.get("stdin"), "close"):
        more["stdin"].close()
    assert done.returncode == 0
    assert done.stdout == (content if source in ("pipe", "file", "socket") else b"")


def test_exec_ends_when_the_command_stops_reading(toolcell: Run) -> None:
    """`yes | toolcell exec -- head -1` would otherwise feed for ever."""
    read, write = os.pipe()
    feeder = subprocess.Popen(["yes"], stdout=write)
    os.close(write)
    done = toolcell("exec", "--yes", "--", "head", "-1", stdin=read)
    os.close(read)
    feeder.kill()
    feeder.wait()
    assert (done.returncode, done.stdout) == (0, b"y\n")


def test_exec_goes_on_when_nobody_reads(toolcell: Run, workspace: Path) -> None:
    """A closed pipe ends who writes to it, as everywhere, and not the rest of the work."""
    read, write = os.pipe()
    os.close(read)
    done = toolcell(
        "exec", "--yes", "--", "sh", "-c", "seq 1 1000000; echo done > made", stdout=write
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (workspace / "made").read_text() == "done\n"


def test_exec_says_when_output_was_lost(toolcell: Run) -> None:
    """The command thinks that all is well; whoever relies on its output must not."""
    with open("/dev/full", "wb") as full:
        done = toolcell("exec", "--yes", "--", "echo", "hello", stdout=full)
    assert done.returncode == 125
    assert b"No space left" in done.stderr


def test_exec_ends_when_nobody_reads_any_more(workspace: Path, environment: dict[str, str]) -> None:
    """`toolcell exec -- yes | head -1` would otherwise run on to the wall limit."""
    process = subprocess.Popen([*TOOLCELL, "exec", "--yes", "--", "yes"], cwd=workspace,
                               env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_exec_waits_for_a_slow_reader(workspace: Path, environment: dict[str, str]) -> None:
    """What a command left in the pipe belongs to whoever reads us, however slowly."""
    # Far more than the pipe between us and the reader holds, less than the jail's pipe and ours.
    words = ["exec", "--yes", "--", "head", "-c", "250000", "/dev/zero"]
    process = subprocess.Popen([*TOOLCELL, *words], cwd=workspace, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)  # longer than a drain without a reader may take
    assert len(process.stdout.read()) == 250_000
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()


# -- signals ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_call_and_leaves_its_record(
    workspace: Path, environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    """CASES 43: the tree is dead, the record is there, and the code says why."""
    script = "trap '' TERM INT HUP; echo ready; sleep 1000"
    process = subprocess.Popen(
        [*TOOLCELL, "exec", "--yes", "--", "sh", "-c", script],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert number.name.encode() in err
    assert records(tmp_path) == [("intent", "exec", None), ("terminal", "exec", "cancelled")]


def test_a_cancelled_run_prints_its_result(
    workspace: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """A program that asked for an object gets one, whatever happened."""
    os.mkfifo(workspace / "ready")
    code = "code=open('ready', 'w').write('x')\nimport time\ntime.sleep(1000)"
    process = subprocess.Popen(
        [*TOOLCELL, "run", "python", code, "--yes", "--json", "--workspace-mode", "direct"],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    with open(workspace / "ready") as ready:
        ready.read(1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    result = json.loads(out)
    assert result["error"]["kind"] == "cancelled"
    last = read(tmp_path / "state")[-1]
    assert (last["call_id"], last["kind"]) == (result["call_id"], "cancelled")


def test_a_signal_that_was_ignored_stays_ignored(
    workspace: Path, environment: dict[str, str]
) -> None:
    """`nohup toolcell …` is there to outlive its terminal."""
    words = ["exec", "--yes", "--", "sh", "-c", "echo ready; read line; echo $line"]
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *TOOLCELL, *words],
        cwd=workspace,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate(b"alive\n", timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, b"alive\n")


# -- the other commands -------------------------------------------------------------------


def test_python_runs_a_file_and_standard_input(toolcell: Run, workspace: Path) -> None:
    """A script in a file needs no quoting."""
    (workspace / "script.py").write_text("print('hi')\n6 * 7\n")
    assert toolcell("python", "--yes", "script.py").stdout == b"hi\n42\n"
    assert toolcell("python", "-", "--yes", input=b"6 * 7").stdout == b"42\n"
    assert toolcell("python", "script.py").returncode == 4


CHECKS = [
    (["read_file", "path=notes.txt"], 0, "allow"),
    (["shell", "command=true"], 10, "ask"),
    (["read_file", "path=/etc/shadow"], 11, "deny"),
]


@pytest.mark.parametrize(("words", "code", "outcome"), CHECKS, ids=[c[2] for c in CHECKS])
def test_check_says_what_would_be_decided_and_runs_nothing(
    toolcell: Run, tmp_path: Path, words: list[str], code: int, outcome: str
) -> None:
    """Whoever asks beforehand must hear the same as the call would."""
    done = toolcell("check", *words, "--json")
    decision = json.loads(done.stdout)
    assert done.returncode == code
    assert (decision["schema"], decision["outcome"], decision["error"]) == (1, outcome, None)
    assert len(decision["plan_hash"]) == 64
    assert decision["reasons"][0].keys() == {"code", "text", "rule", "source"}
    told = toolcell("check", *words)
    assert told.returncode == code
    assert told.stdout.decode().startswith(outcome)
    for reason in decision["reasons"]:
        assert reason["text"] in told.stdout.decode()
    assert read(tmp_path / "state") == []


def test_check_says_which_jail_it_is_about_and_what_of_it_asks(
    toolcell: Run, tmp_path: Path
) -> None:
    """A person who is to agree to a network or a waiver has to see it before the call."""
    (tmp_path / "share").mkdir()
    words = ["check", "read_file", "path=notes.txt"]
    flags = [
        *("--isolation", "container", "--network", "host", "--waive", "paths_masked"),
        *("--workspace-mode", "scratch", "--read", str(tmp_path / "share")),
    ]
    done = toolcell(*words, *flags, "--json")
    decision = json.loads(done.stdout)
    assert (done.returncode, decision["level"]) == (10, 3)
    assert {"network_host", "waived"} <= {reason["code"] for reason in decision["reasons"]}
    assert decision["jail"] == {
        "isolation": "container",
        "network": "host",
        "workspace_mode": "scratch",
        "waived": ["paths_masked"],
        "read": [str(tmp_path.resolve() / "share")],
        "write": [],
    }
    told = toolcell(*words, *flags)
    for part in (b"in a jail: isolation container", b"network host", b"waived paths_masked"):
        assert part in told.stdout
    plain = json.loads(toolcell(*words, "--json").stdout)
    assert (plain["level"], plain["jail"]["isolation"]) == (0, "standard")


def test_check_names_what_is_hidden_and_what_git_knows_of_it(
    toolcell: Run, workspace: Path
) -> None:
    """A person who wonders why a tool cannot find a file looks here first."""
    for name in (".env", "sub/tls.key"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("SECRET")
    git = ["git", "-C", str(workspace), "-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init", "-q"], ["add", ".env"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    told = json.loads(toolcell("check", "shell", "command=ls", "--json").stdout)["jail"]
    assert told["workspace_mode"] == "transaction"
    assert told["hidden"] == [".env", "sub/tls.key"]
    assert told["hidden_but_tracked_by_git"] == [".env"]
    waived = toolcell("check", "shell", "command=ls", "--json", "--waive", "paths_masked")
    assert json.loads(waived.stdout)["jail"]["hidden"] == []


# -- the jail's flags ---------------------------------------------------------------------

SHOW = "import os\nprint(sorted(os.listdir('.')), os.listdir({0!r}), os.environ['A'])"


@pytest.mark.parametrize("command", ["run", "exec", "python"])
@pytest.mark.parametrize("level", ["standard", "container"])
def test_the_jails_flags_are_applied_by_each_command(
    toolcell: Run, tmp_path: Path, workspace: Path, command: str, level: str
) -> None:
    """A flag that one of them ignores is a jail that nobody asked for."""
    share = tmp_path.resolve() / "share"
    share.mkdir()
    (share / "seen").write_text("")
    (workspace / "show.py").write_text(SHOW.format(str(share)))
    words = {
        "run": ["run", "shell", f"command=ls -A; ls {share}; echo $A"],
        "exec": ["exec"],
        "python": ["python", "show.py"],
    }[command]
    flags = [
        *("--isolation", level, "--workspace-mode", "scratch", "--read", str(share)),
        *("--env", "A=given", "--yes"),
    ]
    rest = ["--", "sh", "-c", f"ls -A; ls {share}; echo $A"] if command == "exec" else []
    done = toolcell(*words, *flags, *rest)
    assert done.returncode == 0, done
    said = done.stdout.decode().split()
    expected = ["[]", "['seen']", "given"] if command == "python" else ["seen", "given"]
    assert said[: len(expected)] == expected
    if command != "exec":
        result = json.loads(toolcell(*words, *flags, "--json").stdout)
        assert result["receipt"]["isolation"] == level


def test_a_write_grant_is_written(toolcell: Run, tmp_path: Path) -> None:
    """The flag that a denial names has to be the one that helps."""
    out = tmp_path.resolve() / "out"
    out.mkdir()
    call = ["run", "write_file", f"path={out}/x", "content=hi", "--yes"]
    denied = toolcell(*call)
    assert denied.returncode == 4
    assert b"--write DIR" in denied.stderr
    assert toolcell(*call, "--write", str(out)).returncode == 0
    assert (out / "x").read_text() == "hi"


def test_a_waiver_is_one_line_on_stderr(toolcell: Run) -> None:
    """A weakening says so each time, and stays out of the output."""
    words = ["run", "read_file", "path=notes.txt", "--yes", "--waive", "syscalls_filtered"]
    done = toolcell(*words)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("toolcell: ")
    assert "syscalls_filtered" in line
    verbose = toolcell(*words, "-v").stderr.decode()
    assert verbose.count("waived by name") == 1
    assert "given up by name: syscalls_filtered" in verbose


def test_what_a_level_cannot_give_has_its_exit_codes(toolcell: Run, workspace: Path) -> None:
    """Scripts tell "this host cannot" from "the tool failed"."""
    (workspace / ".env").write_text("TOKEN=1")
    flags = ["--isolation", "container"]
    done = toolcell("run", "read_file", "path=notes.txt", *flags)
    assert done.returncode == 7
    assert b"'.env'" in done.stderr
    assert b"--waive paths_masked" in done.stderr
    assert toolcell("exec", *flags, "--yes", "--", "true").returncode == 125
    looped = toolcell("run", "list_directory", *flags, "--network", "loopback", "--json")
    assert looped.returncode == 7
    (workspace / ".env").unlink()
    looped = toolcell("run", "list_directory", *flags, "--network", "loopback", "--json")
    error = json.loads(looped.stdout)["error"]
    assert (looped.returncode, error["guarantee"]) == (7, "net_loopback")


def test_the_level_of_the_environment_is_the_default(toolcell: Run, workspace: Path) -> None:
    """Set once for a host, it must hold for every command, packs and doctor included."""
    (workspace / "pack.py").write_text(PACK)
    env = {"TOOLCELL_ISOLATION": "container"}
    call = ["run", "greet", "name=you", "--tools", "pack.py", "--yes", "--json"]
    result = json.loads(toolcell(*call, env=env).stdout)
    assert (result["output"], result["receipt"]["isolation"]) == ("hello you", "container")
    named = json.loads(toolcell(*call, "--isolation", "standard", env=env).stdout)
    assert "pid namespace" in named["receipt"]["held"]["tree_killed"]
    for command in ("run", "doctor", "tour"):
        words = ["run", "list_directory"] if command == "run" else [command]
        refused = toolcell(*words, env={"TOOLCELL_ISOLATION": "strong"})
        assert refused.returncode == 2
        assert "TOOLCELL_ISOLATION 'strong' is not offered" in one_line(refused)


def test_check_of_a_wrong_call_is_3(toolcell: Run) -> None:
    """A call that cannot be made is neither allowed nor denied."""
    done = toolcell("check", "read_file", "pth=x", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["kind"] == "invalid_arguments"


PACK = '''
from toolcell import tool

@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"
'''


def test_a_pack_is_listed_and_run_at_level_3(toolcell: Run, workspace: Path) -> None:
    """No word of a pack's own brings it lower."""
    (workspace / "pack.py").write_text(PACK)
    listed = json.loads(toolcell("tools", "--tools", "pack.py", "--json").stdout)["tools"]
    assert [t["name"] for t in listed][-1] == "greet"
    assert listed[-1]["level"] == 3
    assert listed[-1]["input_schema"]["required"] == ["name"]
    call = ["run", "greet", "name=you", "--tools", "pack.py"]
    assert toolcell(*call).returncode == 4
    assert toolcell(*call, "--yes").stdout == b"hello you"


def test_tools_are_listed(toolcell: Run) -> None:
    """The built-in ones, each with its access and level, also where no workspace may be."""
    done = toolcell("tools", cwd=Path("/"))
    assert done.returncode == 0
    lines = {line.split()[0]: line.split()[1:3] for line in done.stdout.decode().splitlines()}
    assert lines["read_file"] == ["readonly", "0"]
    assert lines["write_file"] == ["write", "2"]
    assert lines["shell"] == ["execute", "3"]


def test_tools_are_told_as_a_model_is_told(toolcell: Run) -> None:
    """Otherwise a program that passes them on makes its provider refuse the request."""
    whole = schemas_of(builtin_tools())
    listed = json.loads(toolcell("tools", "--json", cwd=Path("/")).stdout)
    keys = ("name", "description", "input_schema")
    assert [{key: one[key] for key in keys} for one in listed["tools"]] == whole
    assert (listed["schema"], listed["dialect"]) == (1, "json-schema")
    words = ("tools", "--level", "stub", "--dialect", "openai")
    told = json.loads(toolcell(*words, cwd=Path("/")).stdout)
    assert told["tools"] == schemas_of(builtin_tools(), "stub", "openai")
    assert "gemini" in one_line(toolcell("tools", "--dialect", "gemini"))


def test_doctor_proves_each_guarantee_of_the_receipt(toolcell: Run) -> None:
    """A guarantee that a receipt lists and no probe attacks is only a word."""
    done = toolcell("doctor", "--json", cwd=Path("/"))
    report = json.loads(done.stdout)
    broken = [entry for entry in report["guarantees"] if not entry["held"]]
    assert (done.returncode, broken) == (0, [])
    receipt = json.loads(toolcell("run", "list_directory", "--json").stdout)["receipt"]
    proven = {entry["guarantee"]: entry["mechanism"] for entry in report["guarantees"]}
    assert proven.keys() >= receipt["held"].keys()
    assert all(mechanism in proven[name] for name, mechanism in receipt["held"].items())
    assert all(entry["tried"] and entry["happened"] for entry in report["guarantees"])
    told = toolcell("doctor")
    assert told.returncode == 0
    assert all(name.encode() in told.stdout for name in proven)


# A host of the test's own: a user namespace in which this user is root, where no further one may
# be made. For root it has ids to give away as well.
POOR_HOST = """
import os, sys
from toolcell_sandbox._child import ids, syscalls
ready, go = os.pipe()
pid = syscalls.clone(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
if pid == 0:
    os.read(ready, 1)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
own = os.geteuid()
more = "1 1500000000 65536\\n" if own == 0 else ""
ids.write_maps(pid, f"0 {own} 1\\n{more}", f"0 {os.getegid()} 1\\n{more}", ranged=own == 0)
os.write(go, b"1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_doctor_names_the_fix_where_there_are_no_namespaces(
    workspace: Path, environment: dict[str, str]
) -> None:
    """ "It does not work" helps nobody; the first line is what to do."""
    done = subprocess.run(
        [sys.executable, "-c", POOR_HOST, *TOOLCELL[1:], "doctor"],
        cwd=workspace,
        env=environment,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 1, done
    assert "fix: " in lines[0]
    assert "max_user_namespaces" in lines[0]
    assert "--isolation container" in lines[0]


def test_the_tour_ends_as_expected(toolcell: Run, workspace: Path) -> None:
    """It is the first thing that a newcomer runs, and it is a claim."""
    before = sorted(os.listdir(workspace))
    done = toolcell("tour", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["as_expected"] is True
    endings = {call["tool"]: call["ended"] for call in report["calls"]}
    assert endings["read_secret"] == endings["open_socket"] == "exception"
    assert endings["fork_without_end"] == "processes_exceeded"
    assert endings["fill_memory"] == "memory_exceeded"
    assert endings["flood_stdout"] == "success"
    assert endings["segfault"] == "crashed"
    assert endings["hang"] == "timeout"
    assert endings["forge_result"] == "protocol_error"
    assert sorted(os.listdir(workspace)) == before
    told = toolcell("tour", cwd=Path("/"))
    assert told.returncode == 0
    assert b"All 14 calls ended as expected." in told.stdout


def test_the_version_is_printed_without_loading_the_rest(environment: dict[str, str]) -> None:
    """Scripts ask for it often; and what is not loaded cannot break it."""
    script = (
        "import sys; from toolcell.cli import main; main(['--version'])\n"
        "print(sorted({'trio', 'cyclopts', 'pydantic', 'rich', 're2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=True
    )
    from toolcell import __version__

    assert done.stdout.decode().split("\n") == [__version__, "[]", ""]


def test_the_examples_of_the_readme_run(
    toolcell: Run, workspace: Path, environment: dict[str, str]
) -> None:
    """The first thing that somebody copies has to work."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    source, *_ = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (workspace / "README.md").write_text(readme)
    (workspace / "example.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=workspace,
        env=environment,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"{'")
    assert toolcell("run", "read_file", "path=README.md").returncode == 0
    assert toolcell("check", "shell", "command=rm -rf build").returncode == 10
