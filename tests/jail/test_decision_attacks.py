"""Attacks on what was decided: between the decision and the run, and on what is told of a call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from toolcell import Answer, CallContext, Executor
from toolcell._command_facts import command_facts
from toolcell._executables import Programs
from toolcell.approval import ApprovalRequest
from toolcell.audit import read, redact, verify
from toolcell.builtin import builtin_tools
from toolcell.grants import Grants
from toolcell.prepared import Plan
from toolcell_policies import PathVerdict, Role
from toolcell_policies.shell import ShellCommand, Word, parse_command


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path.resolve()


def executor(place: Path, approver: Any = None, **options: Any) -> Executor:
    if approver is not None:
        options["approver"] = approver
    return Executor(workspace=place / "ws", state_dir=place / "state", **options)


def codes(result: Any) -> list[str]:
    return [reason.code for reason in result.decision.reasons]


def write(name: str) -> dict[str, str]:
    return {"path": name, "content": "new"}


# -- a parser against the shell it is about -------------------------------------------------

TRACED = ("cat", "ls", "rm", "id", "touch")
TRACER = r"""
    import glob, os, shutil, subprocess
    folder = os.getcwd() + "/bin"
    os.mkdir(folder)
    for name in traced:
        with open(f"{folder}/{name}", "w") as file:
            file.write("#!/bin/sh\n{ " + 'printf "%s\\0" "${0##*/}" "$@"; printf "\\n\\0";')
            file.write('} > "$LOG.$$"\n')
        os.chmod(f"{folder}/{name}", 0o755)
    for name in ("sh", "bash", "env", "find", "xargs"):
        os.symlink(shutil.which(name), f"{folder}/{name}")
    found = []
    for number, text in enumerate(texts):
        place, log = f"{os.getcwd()}/run{number}", f"{os.getcwd()}/log{number}"
        os.makedirs(f"{place}/sub")
        for name in ("a", "b"):
            open(f"{place}/{name}", "w").write("id")
        subprocess.run(
            ["bash", "-c", text], cwd=place, stdin=subprocess.DEVNULL, timeout=20,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": folder, "HOME": "/home/user", "LOG": log, "LANG": "C.UTF-8"},
        )
        # One file for each: those of a pipe run at once.
        said = "".join(open(name, "rb").read().decode() for name in glob.glob(f"{log}.*"))
        found.append([part.split("\0")[:-1] for part in said.split("\n\0")[:-1]])
    return found
"""

TEXTS = [
    r"$'\x72m' a",
    'r"m" a; r\\m b',
    "{rm,-rf,a}",
    "rm${IFS}a",
    "x='rm a'; $x",
    "x=ls; x=rm; $x a",
    "x=ls; true && x=rm; $x a",
    "x=ls; for x in rm; do :; done; $x a",
    "x=ls; : ${x:=rm}; $x a",
    "x=ls; read x <<< rm; $x a",
    "x=ls; printf -v x rm; $x a",
    "x=ls; declare 'x=rm'; $x a",
    "x=ls; (x=rm); $x a",
    "readonly x=rm; declare x=ls; $x a",
    "x=rm; local x=ls; $x a",
    "x=ls; time read x <<< rm; $x a",
    "declare -l x; x=LS; $x a",
    "_=ls; : rm; $_ a",
    "ls `rm a`",
    'ls "${x:-`rm a`}"',
    "ls <(rm a)",
    "ls $((a[$(rm a)]))",
    "x='a[$(rm a)]'; ls $((x))",
    "x='a[$(rm a)]'; [[ x -eq 1 ]]",
    "[[ -v 'a[$(rm a)]' ]]",
    "test -v 'a[$(rm a)]'",
    "[ -v 'a[$(rm a)]' ]",
    "op=-v; x='a[$(rm a)]'; [ $op $x ]",
    "printf -v 'a[$(rm a)]' x",
    "read 'a[$(rm a)]' <<< x",
    "unset 'a[$(rm a)]'",
    "declare 'a[$(rm a)]=1'",
    "declare -i x='a[$(rm a)]'",
    "let 'x=a[$(rm a)]'",
    "wait -n -p 'a[$(rm a)]'",
    "x='$(rm a)'; ls ${x@P}",
    "mapfile -C 'rm a' -c 1 x < a",
    "jobs -x rm a",
    "trap 'rm a' EXIT",
    "eval $'rm\\x20a'",
    "alias ls='rm a'\nls",
    "ls() { rm a; }; ls",
    "command_not_found_handle() { rm a; }; nosuch",
    "PS4='$(rm a)'; set -x; ls",
    "exec -a ls rm a",
    "coproc rm a; wait",
    "cat <<E\n$(rm a)\nE",
    "cat <<'E'\n$(rm a)\nE\nrm b",
    "cat <<E\nx\\\nE\nrm a\nE",
    'cat <<"E\nF"\nE\nF\nrm a',
    "ls # ; rm a\nrm b",
    "ls $'\\'; rm a'",
    'ls "${x#\'}"; rm a',
    "ls a\\\n#; rm a",
    "ls \\\r\nrm a",
    "ls\u00a0;rm a",
    "case x in $(rm a)) ;; esac",
    "env -S 'rm a'",
    "find . -name a -exec rm {} +",
    "echo a | xargs -I x sh -c 'rm x'",
    r"""sh -c "ls \$'\\' ; rm a # '" """,
    "sh -c 'cat &>f rm a'",
    "sh -c 'ls | cat a; touch c'",
    "bash -c 'rm $1' x a",
    "echo rm a | bash",
    "for i in a b; do rm $i; done > new",
    "cd sub && touch c || rm a",
    "if [ -f a ] && [[ -f b ]]; then cat a b; fi",
]


def told(argv: list[str], command: ShellCommand) -> bool:
    """Whether a segment is what ran; a word that only a run can tell stands for any."""

    def fits(words: list[str], known: tuple[Word, ...]) -> bool:
        if not known:
            return not words
        if known[0].text is None or known[0].glob:
            return any(fits(words[at:], known[1:]) for at in range(len(words) + 1))
        return bool(words) and words[0] == known[0].text and fits(words[1:], known[1:])

    return any(segment.argv and fits(argv, segment.argv) for segment in command.segments)


async def test_what_a_shell_runs_was_told_or_the_text_asks(jail: Any) -> None:
    """A command that the words do not show would run without anybody having been asked."""
    outcome = await jail.python(
        f"def handler(texts, traced):{TRACER}", {"texts": TEXTS, "traced": TRACED}, wall_s=60
    )
    assert outcome.failure is None, outcome.failure
    missed, seen = [], 0
    for text, ran in zip(TEXTS, outcome.value, strict=True):
        command = parse_command(text)
        seen += len(ran)
        if command.level < 3:
            missed += [(text, argv) for argv in ran if not told(argv, command)]
    assert missed == []
    assert seen > len(TEXTS) // 2, "the tracer traces"
    by_text = dict(zip(TEXTS, outcome.value, strict=True))
    assert ["rm", "a"] in by_text["jobs -x rm a"]
    assert not told(["rm", "a"], parse_command("ls a")), "and a lie would show"
    assert parse_command(TEXTS[-1]).level == 0, "what only reads is told as such"


# -- what changes between the decision and the run ----------------------------------------


@pytest.mark.parametrize("other", ["t", "unrelated"])
async def test_a_reason_to_ask_that_nobody_was_told_stops_the_call(place: Path, other: str) -> None:
    """A yes to one file would write to each name that it was given while the person read."""
    for name in ("t", "unrelated"):
        (place / "ws" / name).write_text("old")

    async def links(request: ApprovalRequest) -> Answer:
        os.link(place / "ws" / other, place / "second")
        return Answer.once()

    async with executor(place, links) as box:
        result = await box.call("write_file", write("t"))
    assert result.success is (other == "unrelated")
    assert (place / "ws" / "t").read_text() == ("new" if result.success else "old")
    assert codes(result) == (["access_write"] if result.success else ["plan_changed"])


@pytest.mark.parametrize("linked", [False, True])
async def test_an_answer_that_comes_later_is_to_the_reasons_that_were_shown(
    place: Path, linked: bool
) -> None:
    """A person who was told of one reason has not said yes to the next."""
    (place / "ws" / "t").write_text("old")
    async with executor(place) as box:
        plan = await box.prepare("write_file", write("t"))
        assert isinstance(plan, Plan)
        if linked:
            os.link(place / "ws" / "t", place / "second")
        result = await box.resume(plan, Answer.once())
    assert result.success is not linked
    assert not linked or codes(result) == ["plan_changed"]


@pytest.mark.parametrize("revoked", [False, True])
async def test_a_grant_that_is_revoked_holds_for_nobody_who_waits(
    place: Path, revoked: bool
) -> None:
    """Who takes a yes back has to be sure that nothing starts on it any more."""
    async with executor(place, Answerer(Answer.remember("project"))) as box:
        assert (await box.call("write_file", write("first"))).success
    results = []
    async with executor(place, max_concurrency=1) as box, trio.open_nursery() as nursery:

        async def waits() -> None:
            results.append(await box.call("write_file", write("second")))

        async with box._slots:
            nursery.start_soon(waits)
            while not box._slots.statistics().tasks_waiting:
                await trio.lowlevel.checkpoint()
            if revoked:
                with Grants.open(place / "state") as grants:
                    assert grants.revoke("all") == 1
    assert results[0].success is not revoked
    assert (place / "ws" / "second").exists() is not revoked


class Answerer:
    """An approver that answers the same each time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def __call__(self, request: ApprovalRequest) -> Answer:
        return self.answer


@pytest.mark.parametrize("tool", ["write_file", "shell"])
async def test_a_grant_is_for_the_host_folders_that_it_was_given_with(
    place: Path, tool: str
) -> None:
    """What was agreed to in a box is not agreed to where a host folder can be written as well."""
    options: dict[str, Any] = {}
    arguments = write("b")
    if tool == "shell":
        options = {"policy": "coding", "workspace_mode": "direct"}
        arguments = {"command": "cp a b"}
    (place / "ws" / "a").write_text("x")
    (place / "data").mkdir()
    async with executor(place, Answerer(Answer.remember("project")), **options) as box:
        assert (await box.call(tool, arguments)).success
    async with executor(place, **options) as box:
        assert (await box.call(tool, arguments)).success, "the control"
    async with executor(place, write=[place / "data"], **options) as box:
        result = await box.call(tool, arguments)
    assert result.error is not None
    assert result.error.kind == "approval_unavailable"


async def test_an_approver_that_changes_the_call_gets_none(place: Path) -> None:
    """What runs would not be what anybody was asked about."""

    async def changes(request: ApprovalRequest) -> Answer:
        request.arguments["path"] = "other"  # type: ignore[index]  # that it can is the attack
        return Answer.once()

    async with executor(place, changes) as box:
        result = await box.call("write_file", write("a"))
    assert codes(result) == ["plan_changed"]
    assert os.listdir(place / "ws") == []


async def test_a_caller_that_changes_its_arguments_changes_nothing(place: Path) -> None:
    """An agent could have one path approved, and another written."""
    arguments = write("shown")

    async def changes(request: ApprovalRequest) -> Answer:
        arguments["path"] = "other"
        return Answer.once()

    async with executor(place, changes) as box:
        assert (await box.call("write_file", arguments)).success
    assert os.listdir(place / "ws") == ["shown"]


async def test_one_answer_runs_once_however_many_bring_it(place: Path) -> None:
    """Two workers of a web backend would deploy twice."""
    results: list[bool] = []
    async with executor(place) as one, executor(place) as other:
        plan = await one.prepare("write_file", write("a"))
        assert isinstance(plan, Plan)
        said = json.dumps(plan.to_json())
        async with trio.open_nursery() as nursery:
            for box in (one, other, one, other):

                async def brings(box: Executor = box) -> None:
                    result = await box.resume(Plan.from_json(json.loads(said)), Answer.once())
                    results.append(result.success)

                nursery.start_soon(brings)
    assert sorted(results) == [False, False, False, True]


async def test_an_answer_that_comes_later_remembers_no_level_3(place: Path) -> None:
    """A yes to one command, brought back as `remember`, must not become a yes to all."""
    async with executor(place) as box:
        for answer, runs in ((Answer.remember("project"), False), (Answer.once(), True)):
            plan = await box.prepare("shell", {"command": "true"})
            assert isinstance(plan, Plan)
            assert (await box.resume(plan, answer)).success is runs
    with Grants.open(place / "state") as grants:
        assert grants.list(0) == ()


# -- what a command names -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("workspace", "text", "expected"),
    [
        ("/development/ws", "cat .env", ["/development/ws/.env"]),
        ("/processes/ws", "cat .env", ["/processes/ws/.env"]),
        ("/system/ws", "cat .env", ["/system/ws/.env"]),
        ("/srv/ws", "cat link/../../../dev/x", ["/srv/ws/link/../../../dev/x"]),
        ("/srv/ws", "cat /dev/../etc/shadow", ["/dev/../etc/shadow"]),
        ("/srv/ws", "cat /dev/stdin //proc/./cpuinfo /sys/x", []),
    ],
)
def test_only_what_is_surely_the_jails_own_is_not_looked_at(
    workspace: str, text: str, expected: list[str]
) -> None:
    """In a workspace below `/development` no secret would be one."""
    shell = next(tool for tool in builtin_tools() if tool.name == "shell")
    looked: list[str] = []

    def judge(path: str, role: Role) -> PathVerdict:
        looked.append(path)
        return PathVerdict(
            path_as_given=path, resolved=path, role=role, inside=True, denied=False, reasons=(),
            level_floor=0, links=(),
        )  # fmt: skip

    command_facts(
        shell,
        {"command": text},
        workspace=workspace,
        environment={"PATH": "/usr/bin"},
        programs=Programs(writable=()),
        judge=judge,
        must_hash=False,
        settled={},
    )
    assert looked == expected


RULES = """
extends = "coding"
[[rule]]
id = "no-push"
tool = "shell"
outcome = "deny"
reason = "no"
when.command = ["git", "push"]
when.flags = ["--force"]
"""


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("git push --force", "deny"),
        ("git push --for*", "ask"),
        ("git push; x='a", "ask"),
        ("while git push", "ask"),
        ("git push", "allow"),
        ("git log --for*", "allow"),
    ],
)
def test_a_rule_is_asked_about_a_call_as_about_its_examples(
    place: Path, text: str, outcome: str
) -> None:
    """A rule whose examples hold would not hold for calls: a broken text was no command at all."""
    (place / "p.toml").write_text(RULES)
    box = executor(place, policy=str(place / "p.toml"))
    decision: Any = box.check("shell", {"command": text})
    assert decision.outcome.value == outcome


@pytest.mark.parametrize(
    "code",
    [
        "import shutil; shutil.rmtree('.tool' + 'cell')",
        "import os; os.rename('.tool' + 'cell', 'x')",
        "open('.tool' + 'cell/policy.toml', 'w').write('')",
        "import os; os.makedirs('s/.tool' + 'cell'); open('s/.tool' + 'cell/policy.toml', 'w')",
    ],
)
async def test_no_code_changes_the_rules_of_its_project(place: Path, code: str) -> None:
    """A tool would lift what a repository forbids, at the next start."""
    rules = place / "ws" / ".toolcell"
    rules.mkdir()
    (rules / "policy.toml").write_text('extends = "strict"\n')
    async with executor(place, Answerer(Answer.once())) as box:
        result = await box.call("python", {"code": code})
        assert not result.success
        near = await box.call("python", {"code": code.replace("cell", "cell-notes")})
    assert (rules / "policy.toml").read_text() == 'extends = "strict"\n'
    assert os.listdir(place / "ws") == [".toolcell"] or near.success


# -- what is recorded ---------------------------------------------------------------------

SECRET = "hunter2-not-for-the-log"


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": f"TOKEN=$'{SECRET}' x"},
        {"command": f"TOKEN=a' b {SECRET}' x"},
        {"command": f'TOKEN="a "{SECRET} x'},
        {"command": f"TOKEN=a\\\n{SECRET} x"},
        {"command": f"curl --user=me:{SECRET} host"},
        {"command": f"npm config set //host/:_authToken {SECRET}"},
        {"command": f"aws configure set aws_secret_access_key {SECRET}"},
        {"argv": ["curl", "-u", f"me:{SECRET}"]},
        {"argv": ["/usr/bin/mysql", f"-p{SECRET}", "db"]},
        {"argv": ["redis-cli", "-a", SECRET]},
        {"content": f"<server><password>{SECRET}</password></server>"},
    ],
)
def test_a_secret_is_not_recorded_in_a_shape_that_a_shell_reads(arguments: dict[str, Any]) -> None:
    """A log of calls would be a list of passwords."""
    said = json.dumps(redact(arguments))
    assert SECRET not in said
    assert "[redacted]" in said


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "x=$'a' y='b c'd e"},
        {"command": "curl --user-agent=x host"},
        {"command": "git config user.name me; npm config set registry host"},
        {"argv": ["cp", "-p", "a", "b"]},
        {"argv": ["curl", "-s", "host"]},
        {"content": "<name>token</name>"},
        {"content": "if token == 'a': pass"},
    ],
)
def test_what_is_no_secret_is_recorded_as_it_is(arguments: dict[str, Any]) -> None:
    """Otherwise nobody can tell from the log what was run."""
    said = redact(arguments)
    assert "[redacted]" not in json.dumps(said).replace("== '[redacted]': pass", "")
    assert list(said) == list(arguments)


async def test_every_end_has_both_records_and_no_secret_in_any_file(place: Path) -> None:
    """A call that was refused is the one that somebody will look for."""
    context = CallContext(session_id="s", agent_id="a")
    async with executor(place, Answerer(Answer.reject("no"))) as one, executor(place) as other:
        for box in (one, other):
            for name, arguments in (
                ("nosuch", {}),
                ("write_file", {"path": 5}),
                ("write_file", write("../out")),
                ("write_file", write("a")),
                ("shell", {"command": f"API_TOKEN='{SECRET}' x; curl -u me:{SECRET} h"}),
                ("list_directory", {"path": "."}),
            ):
                await box.call(name, arguments, context=context)
    state = str(place / "state")
    found = verify(state)
    assert found.ok
    assert found.records == 24, "an intent and a terminal for each of twelve calls"
    assert found.dangling == ()
    assert len({record["call_id"] for record in read(state)}) == 12
    for folder, _, names in os.walk(state):
        for name in names:
            assert SECRET.encode() not in (Path(folder) / name).read_bytes()


# -- what goes in circles -----------------------------------------------------------------


async def test_an_agent_that_is_stopped_stops_no_other(place: Path) -> None:
    """One that went astray would take the whole team down, or hide among its calls."""
    async with executor(place, policy="coding") as box:
        for number in range(5):
            astray = await box.call(
                "list_directory", {"path": "."}, context=CallContext(session_id="s", agent_id="a")
            )
            well = await box.call(
                "list_directory",
                {"path": ".", "depth": 1 + number % 5},
                context=CallContext(session_id="s", agent_id="b"),
            )
    assert well.success
    assert astray.decision is not None
    assert "loop" in codes(astray)
    assert not astray.success
