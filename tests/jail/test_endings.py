"""Every ending that a real process can have, each with the kind that it must get."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from toolcell_sandbox import CommandHandler, run_in_jail
from toolcell_sandbox.spec import Limits

from .test_cases import kind

DO = {
    "raise": "raise ValueError('on purpose')",
    "exit": "import os; os._exit(7)",
    "abort": "import os; os.abort()",
    "kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}
AT = {
    "import": "{do}\ndef handler(): return 1",
    "decode": "def adapt(target, arguments, context):\n    {do}\ndef handler(): return 1",
    "run": "def handler():\n    {do}",
    "encode": "class Odd:\n    def model_dump(self, mode):\n        {do}\n"
    "def handler(): return Odd()",
    "flush": "import sys\nclass Odd:\n    def flush(self):\n        {do}\n"
    "    def write(self, text): return 0\n"
    "def handler():\n    sys.stdout = Odd()\n    return 1",
}


@pytest.mark.parametrize("way", DO)
@pytest.mark.parametrize("stage", AT)
async def test_each_crash_point_is_typed_with_its_stage(jail, stage, way):
    """Otherwise "it failed" is all that anybody knows, and a retry is a guess."""
    handler = jail.handler(AT[stage].format(do=DO[way]))
    if stage == "decode":
        handler = dataclasses.replace(handler, adapter=f"{handler.module}:adapt")
    outcome = await run_in_jail(handler, jail.spec())
    failure = outcome.failure
    assert failure is not None
    assert failure.stage == stage
    match way:
        case "raise":
            assert (failure.kind, failure.type) == ("exception", "ValueError")
            assert failure.message == "ValueError: on purpose"
        case "exit":
            assert (failure.kind, failure.exit_code) == ("exited", 7)
        case "abort":
            assert (failure.kind, failure.signal) == ("crashed", "SIGABRT")
        case "kill":
            assert (failure.kind, failure.signal) == ("crashed", "SIGKILL")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise SystemExit", (None, None)),
        ("raise SystemExit(0)", (None, None)),
        ("raise SystemExit(3)", ("exited", 3)),
        ("raise SystemExit('sorry')", ("exception", "SystemExit: sorry")),
        ("raise KeyboardInterrupt", ("exception", "KeyboardInterrupt")),
        ("def again(): again()\nagain()", ("exception", "RecursionError: ")),
        ("raise type('Odd', (BaseException,), {})('x')", ("exception", "Odd: x")),
        ("class Odd(Exception):\n    def __str__(self): 1/0\nraise Odd",
         ("exception", "Odd: (its own message raised ZeroDivisionError)")),
        ("raise ExceptionGroup('two', [ValueError(), OSError()])", ("exception", "two")),
        ("import os; os.execv('/bin/true', ['true'])", ("exited", 0)),
        ("import os; os.close(3); return 1", ("exited", 1)),
    ],
)  # fmt: skip
async def test_what_a_handler_raises_has_one_documented_ending(jail, body, expected):
    """Otherwise SystemExit passes for success, or a hostile exception for a defect of ours."""
    outcome = await jail.python(body)
    wanted, detail = expected
    assert kind(outcome) == wanted
    if wanted == "exited":
        assert outcome.failure.exit_code == detail
    elif wanted == "exception":
        assert detail in outcome.failure.message


async def test_an_enormous_exception_message_is_cut(jail):
    """Otherwise one exception is a gigabyte in the model's context."""
    outcome = await jail.python("raise ValueError('x' * (1 << 26))")
    assert kind(outcome) == "exception"
    assert len(outcome.failure.message) < 10_000
    assert len(outcome.failure.traceback) < 40_000


async def test_a_traceback_has_the_handlers_own_frames_only(jail):
    """Otherwise a model reads our internals instead of the bug."""
    outcome = await jail.python("def handler():\n    inner()\ndef inner():\n    return {}['no']")
    text = outcome.failure.traceback
    assert "in handler" in text
    assert "in inner" in text
    assert "_child" not in text


# -- the result channel --------------------------------------------------------------------

SEND = (
    "import os, struct\ndef send(body, length=None):\n"
    "    os.write(3, struct.pack('!Q', len(body) if length is None else length) + body)\n"
)
GOOD = 'b\'{"ok":true,"value":1}\''


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (f"send({GOOD})\n    return 2", "after the frame"),
        (f"send({GOOD})\n    os.write(3, b'x')\n    os._exit(0)", "after the frame"),
        ("os.write(3, b'abc')\n    os._exit(0)", "inside its length"),
        (f"send({GOOD}, 1000)\n    os._exit(0)", "of 1000 bytes"),
        ("send(b'', 1 << 63)\n    os._exit(0)", "at most"),
        ("send(b'', (1 << 64) - 1)\n    os._exit(0)", "at most"),
        ("send(b'{' * 10)\n    os._exit(0)", "not JSON"),
        ("send(b'[1]')\n    os._exit(0)", "must be a JSON object"),
        ("send(b'{\"ok\":true,\"value\":NaN}')\n    os._exit(0)", "not JSON"),
        ("send(b'{\"ok\":true,\"value\":1e400}')\n    os._exit(0)", "not JSON"),
        ("send(b'{\"ok\":true,\"value\":18446744073709551616}')\n    os._exit(0)", "64 bits"),
        ("send(b'{\"ok\":true,\"value\":1,\"value\":2}')\n    os._exit(0)", "same key"),
        ("send(b'{\"ok\":true,\"value\":\"\\\\ud800\"}')\n    os._exit(0)", "not JSON"),
        ("send(b'{\"ok\":true,\"value\":' + b'['*100000 + b']'*100000 + b'}')\n    os._exit(0)",
         "not JSON"),
        ("send(b'{\"ok\":true,\"value\":' + b'['*500 + b']'*500 + b'}')\n    os._exit(0)",
         "deeper"),
        ("send(b'{\"ok\":1}')\n    os._exit(0)", "neither"),
        ("send(b'{\"ok\":false,\"what\":\"denied\"}')\n    os._exit(0)", "neither"),
    ],
)  # fmt: skip
async def test_a_broken_frame_is_a_protocol_error_naming_the_rule(jail, body, rule):
    """Otherwise a hostile handler reaches our decoder's odd corners, or forges a kind."""
    outcome = await jail.python(f"{SEND}def handler():\n    {body}", result_bytes=1 << 20)
    assert kind(outcome) == "protocol_error"
    assert rule in outcome.failure.rule


async def test_one_byte_over_the_cap_is_refused_and_the_cap_is_not(jail):
    """Otherwise the cap is a hint."""
    at_most = len('{"ok":true,"value":""}')
    source = "def handler(n): return 'x' * n"
    fits = await jail.python(source, {"n": 1_000 - at_most}, result_bytes=1_000)
    assert (kind(fits), len(fits.value)) == (None, 1_000 - at_most)
    over = await jail.python(source, {"n": 1_001 - at_most}, result_bytes=1_000)
    assert kind(over) == "protocol_error"


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("os._exit(3)", "exited"),
        ("os.abort()", "crashed"),
        ("import signal; signal.pause()", "timeout"),
    ],
)
async def test_a_result_counts_only_when_the_process_then_exits_0(jail, then, expected):
    """Otherwise a handler that crashes in its clean-up is called a success."""
    wall_s = 3 if expected == "timeout" else 30
    source = f"{SEND}def handler():\n    send({GOOD})\n    {then}"
    outcome = await jail.python(source, wall_s=wall_s)
    assert kind(outcome) == expected
    assert outcome.value is None
    assert outcome.unconfirmed == {"ok": True, "value": 1}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("return {'a': [1, {2}]}", "$.a[1]"),
        ("return float('nan')", "$"),
        ("return [1 << 63]", "$[0]"),
        ("return '\\ud800'", "$"),
        ("return {1: 'a', '1': 'b'}", "$"),
        ("x = []; x.append(x); return x", "$" + "[0]" * 64),
    ],
)
async def test_a_value_without_a_json_form_is_invalid_output_naming_where(jail, body, where):
    """Otherwise the author of a tool is told that its protocol is broken."""
    outcome = await jail.python(body)
    assert kind(outcome) == "invalid_output"
    assert outcome.failure.problems[0]["path"] == where


async def test_rich_values_have_their_documented_json_form(jail):
    """Otherwise every tool converts its own."""
    outcome = await jail.python(
        """
        import dataclasses, datetime, enum, pathlib
        @dataclasses.dataclass
        class Point:
            x: int
        class Colour(enum.Enum):
            RED = "red"
        def handler():
            return [Point(1), Colour.RED, pathlib.Path("/a/b"), datetime.date(2026, 1, 2),
                    b"\\xff", (1, 2), None, True, 1.5, {"k": -1}]
        """
    )
    assert outcome.value == [
        {"x": 1}, "red", "/a/b", "2026-01-02", {"base64": "/w=="}, [1, 2], None, True, 1.5,
        {"k": -1},
    ]  # fmt: skip


# -- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["while True: pass", "import signal\nsignal.signal("
    "signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"])  # fmt: skip
async def test_using_up_the_processor_time_is_typed_also_when_the_signal_is_ignored(jail, body):
    """SIGXCPU can be caught; what follows it cannot."""
    outcome = await jail.python(body, cpu_s=1)
    assert kind(outcome) == "cpu_time_exceeded"
    assert outcome.failure.used_s >= 0.9


async def test_processor_time_split_over_forks_counts_together(jail):
    """RLIMIT_CPU counts one process: forking would multiply it."""
    outcome = await jail.python(
        """
        import os
        def handler():
            while True:
                pid = os.fork()
                if pid == 0:
                    for _ in range(3_000_000): pass
                    os._exit(0)
                os.waitpid(pid, 0)
        """,
        cpu_s=2,
    )
    assert kind(outcome) == "cpu_time_exceeded"
    assert outcome.failure.evidence == "watch"


async def test_a_file_past_its_limit_is_typed_for_handlers_and_commands(jail):
    """Otherwise EFBIG is an exception of the tool's and SIGXFSZ a crash."""
    python = await jail.python(
        "with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
        file_size_bytes="4M",
    )
    assert kind(python) == "file_size_exceeded"
    command = await jail.command("dd", "if=/dev/zero", "of=/tmp/big", "bs=1M", file_size_bytes="4M")
    assert kind(command) == "file_size_exceeded"


async def test_a_flood_ends_the_call_only_where_the_caller_asked_for_it(jail):
    """Otherwise a caller who wants no more pays for a full wall limit; or a loud build is ended."""
    flooded = await jail.shell("while printf 0123456789; do :; done", output_bytes="64K", wall_s=60)
    assert kind(flooded) == "output_exceeded"
    assert flooded.failure.limit_bytes == 64 << 10
    assert flooded.failure.seen_bytes > 64 << 10
    assert flooded.stdout.seen_bytes == flooded.stdout.kept_bytes + flooded.stdout.lost_bytes
    # Both streams count together, up to the limit itself.
    words = "head -c 30000 /dev/zero; head -c 30000 /dev/zero >&2"
    for most, ends in ((60_000, None), (59_999, "output_exceeded")):
        assert kind(await jail.shell(words, output_bytes=most)) == ends
    assert kind(await jail.shell("head -c 5000000 /dev/zero")) is None
    with pytest.raises(ValueError, match="output_bytes"):
        Limits(output_bytes=-1)


async def test_a_full_scratch_is_disk_exceeded(jail):
    """Otherwise the tool is blamed for a limit that we set."""
    outcome = await jail.python(
        "with open('/tmp/big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
        disk_bytes="8M",
    )
    assert kind(outcome) == "disk_exceeded"


async def test_all_of_the_scratch_is_under_one_bound(jail):
    """/tmp, HOME and /dev/shm would otherwise be three times the limit."""
    outcome = await jail.shell(
        "for d in /tmp $HOME /dev/shm /var/tmp; do head -c 6000000 /dev/zero > $d/f; done;"
        "cat /tmp/f $HOME/f /dev/shm/f /var/tmp/f | wc -c",
        disk_bytes="8M",
    )
    assert 6_000_000 <= int(outcome.stdout.kept) <= 8 << 20


@pytest.mark.parametrize("name", ["SIGXCPU", "SIGXFSZ", "SIGKILL", "SIGSEGV", "SIGTERM"])
async def test_a_signal_that_a_handler_sends_itself_is_that_signal(jail, name):
    """A limit that was not reached must not be named."""
    limits = {"cpu_s": 30, "file_size_bytes": "1M"}
    command = await jail.shell(f"kill -{name.removeprefix('SIG')} $$", **limits)
    assert (kind(command), command.failure.signal) == ("crashed", name)
    python = await jail.python(
        f"import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        f"os.kill(os.getpid(), signal.{name})",
        **limits,
    )
    assert (kind(python), python.failure.signal, python.failure.stage) == ("crashed", name, "run")


async def test_ignoring_signals_does_not_outlast_the_deadline(jail):
    """SIGTERM first and hope later is how a tool outlives its time."""
    outcome = await jail.python(
        """
        import signal
        for number in signal.valid_signals():
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        while True:
            signal.pause()
        """,
        wall_s=1,
    )
    assert kind(outcome) == "timeout"
    assert 1 <= outcome.failure.elapsed_s < 6


async def test_a_stopped_tree_does_not_outlast_the_deadline(jail):
    """A stopped process takes no signal but SIGKILL."""
    outcome = await jail.shell("sleep 1000 & kill -STOP $! $$", wall_s=1)
    assert kind(outcome) == "timeout"


async def test_usage_says_what_was_used_and_who_measured_it(jail):
    """A figure without its source cannot be compared."""
    outcome = await jail.python("x = bytearray(60 << 20)\nfor _ in range(2_000_000): pass")
    usage = outcome.usage
    assert usage.peak_memory_bytes >= 60 << 20
    assert usage.memory_from in ("watch", "ru_maxrss", "cgroup")
    assert 0 < usage.cpu_s < 30
    assert 0 < usage.wall_s < 30


async def test_the_sandbox_is_usable_alone_with_a_command_as_words(ledger):
    """Who wants a jail and nothing else should not have to learn what a tool is."""
    from toolcell_sandbox import JailSpec

    outcome = await run_in_jail(["sh", "-c", "pwd; cat; id -u"], JailSpec(), stdin=b"in\n")
    assert (kind(outcome), outcome.stdout.kept) == (None, b"/tmp\nin\n1000\n")


# -- commands ------------------------------------------------------------------------------


async def test_a_nonzero_exit_is_a_success_with_that_code(jail):
    """The exit code is data: grep's 1 is an answer."""
    outcome = await jail.command("false")
    assert (kind(outcome), outcome.exit_code) == (None, 1)


@pytest.mark.parametrize("argv", [("no-such-program",), ("./no-such",), ("/etc",), ("./plain",)])
async def test_a_command_that_cannot_be_started_is_a_tool_error(jail, argv):
    """It is nothing that the host lacks and nothing that we broke."""
    (jail.workspace / "plain").write_text("no program\n")
    outcome = await jail.command(*argv)
    assert kind(outcome) == "tool_error"
    assert outcome.exec_errno is not None


async def test_the_receipt_names_each_guarantee_of_this_version(jail):
    """A receipt that says nothing cannot be checked; one that says more is a lie."""
    held = {
        "fs_confined", "net_blocked", "tree_killed", "ipc_private", "env_scrubbed", "fds_closed",
        "no_new_privileges", "memory_limited", "cpu_limited", "files_limited", "processes_limited",
        "syscalls_filtered", "signals_scoped", "devices_minimal",
    }  # fmt: skip
    direct = (await jail.command("true")).receipt
    assert (direct.isolation, set(direct.held)) == ("standard", held)
    assert direct.waived == ("paths_masked", "writes_transactional", "disk_limited")
    spec = dataclasses.replace(jail.spec(), workspace_mode="read_only")
    bound = (await run_in_jail(CommandHandler(argv=("true",)), spec)).receipt
    assert (bound.isolation, bound.waived) == ("standard", ())
    assert set(bound.held) == held | {"disk_limited", "writes_transactional", "paths_masked"}
    spec = dataclasses.replace(jail.spec(), workspace_mode="transaction")
    judged = (await run_in_jail(CommandHandler(argv=("true",)), spec)).receipt
    assert (judged.isolation, judged.waived) == ("standard", ())
    assert set(judged.held) == set(bound.held)
    spec = dataclasses.replace(jail.spec(), workspace_mode="scratch")
    scratch = (await run_in_jail(CommandHandler(argv=("true",)), spec)).receipt
    assert (scratch.isolation, scratch.waived) == ("standard", ())


@pytest.mark.parametrize(("name", "why"), [("missing", "not exist"), ("file", "no folder")])
async def test_a_wrong_working_folder_is_the_callers_error(jail, name, why):
    """A model's typo is nothing that the host lacks; and nothing runs elsewhere instead."""
    (jail.workspace / "file").write_text("")
    spec = dataclasses.replace(jail.spec(), cwd=str(jail.workspace / name))
    outcome = await run_in_jail(CommandHandler(argv=("touch", "ran")), spec)
    assert kind(outcome) == "tool_error"
    assert why in outcome.failure.message
    assert os.listdir(jail.workspace) == ["file"]


async def test_a_full_table_of_files_names_that_limit(jail):
    """Told of bytes, its author would raise the wrong one."""
    outcome = await jail.python(
        "for n in range(300): open(f'/tmp/{n}', 'w').close()", disk_files=50
    )
    assert kind(outcome) == "disk_exceeded"
    assert (outcome.failure.reached, outcome.failure.limit_files) == ("files", 50)
    assert "50 files" in outcome.failure.message


async def test_peak_memory_is_read_at_the_reap_of_a_killed_call_too(jail):
    """A sampler misses what came and went between two looks."""
    outcome = await jail.python(
        """
        import os, signal
        def handler():
            if os.fork() == 0:
                x = bytearray(64 << 20)
                os._exit(0)
            os.wait()
            signal.pause()
        """,
        wall_s=3,
    )
    assert kind(outcome) == "timeout"
    assert outcome.usage.peak_memory_bytes >= 50 << 20


async def test_the_layer_of_a_transaction_is_inherited_by_no_other_process(jail):
    """A child of the host's program would hold all that a call wrote, and its memory with it."""
    upper: list[Any] = []
    spec = dataclasses.replace(jail.spec(), workspace_mode="transaction")
    await run_in_jail(CommandHandler(argv=("touch", "new")), spec, keep=upper.append)
    try:
        assert os.listdir(upper[0].fd) == ["new"]
        assert not os.get_inheritable(upper[0].fd)
    finally:
        upper[0].close()
