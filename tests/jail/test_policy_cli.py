"""Policies from the command line: what is said about a call, whether it is true, and what helps."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import trio

from toolcell import Executor
from toolcell.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOOLCELL = "import sys; from toolcell.cli import main; sys.exit(main())"
PATIENCE_S = 60.0
ALLOW, ASK, DENY, WRONG_CALL, USAGE, NOT_PERMITTED = 0, 10, 11, 3, 2, 4

RULES = """
[[rule]]
id = "no-force-push"
tool = "shell"
when.command = ["git", "push"]
when.flags = ["--force", "-f"]
outcome = "deny"
reason = "history that others have is not rewritten"
remedy = "push to a new branch"
match = ["git push --force"]
not_match = ["git push origin main"]

[[rule]]
id = "ask-migrations"
tool = "*"
when = { path = ["db/migrations/**"], role = "write" }
outcome = "ask"
reason = "a migration that was applied is not edited"
match = ["db/migrations/1.sql"]
not_match = ["db/seed.sql"]

[[rule]]
id = "docs-are-free"
tool = ["write_file", "edit_file"]
when.path = ["docs/**/*.md"]
outcome = "allow"
match = ["docs/a/b.md"]
not_match = ["docs/conf.py"]
"""
PROJECT = """
[[rule]]
id = "no-curl"
tool = "shell"
when.command = ["curl"]
outcome = "deny"
reason = "this project has no network"
match = ["curl x"]

[[rule]]
id = "sources-are-free"
tool = "write_file"
when.path = ["src/**"]
outcome = "allow"
match = ["src/a.py"]
not_match = ["a.py"]
"""


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def help(self) -> str:
        """What is said to help."""
        found = re.search(r"^  what would help: (.*)$", self.out, re.MULTILINE)
        return "" if found is None else found[1]


Run = Callable[..., Said]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project, with a policy file and a folder beside it, and nobody's configuration."""
    for name in ("ws/src", "ws/.github/workflows", "data", "home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/src/app.py").write_text("print(1)\n")
    (tmp_path / "ws/notes.txt").write_text("one\n")
    (tmp_path / "ws/.env").write_text("A=b\n")
    (tmp_path / "ws/link").symlink_to("../data/x")
    (tmp_path / "data/x").write_text("x\n")
    (tmp_path / "mine.toml").write_text(RULES)
    monkeypatch.setenv("TOOLCELL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TOOLCELL_POLICY", raising=False)
    monkeypatch.delenv("TOOLCELL_ISOLATION", raising=False)
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path


@pytest.fixture
def toolcell(place: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the command line in this process: what costs a third of a second is its start."""
    log = logging.getLogger("toolcell")
    before = log.propagate, list(log.handlers)

    def run(*words: str) -> Said:
        capfd.readouterr()
        code = main([word.replace("PLACE", str(place)) for word in words])
        out, err = capfd.readouterr()
        return Said(code, out, err)

    yield run
    log.propagate, log.handlers[:] = before


# -- check --------------------------------------------------------------------------------

MINE = ("--policy", "PLACE/mine.toml")
SHELL, WRITE = ("check", "shell"), ("check", "write_file", "content=x")
WORKFLOW = "path=.github/workflows/ci.yml"

SCREENS: dict[str, tuple[tuple[str, ...], int, list[str], str]] = {
    # what is checked, the exit code, what is said, what is said to help
    "a read": (("check", "read_file", "path=notes.txt"), ALLOW, ["only reads"], ""),
    "a secret": (
        ("check", "read_file", "path=.env"),
        DENY,
        [r"because '.env' is protected .*\[env.files, sensitive_paths.toml:\d+\]", "besides read_"],
        "",
    ),
    "outside": (
        ("check", "read_file", "path=PLACE/data/x"),
        DENY,
        ["is outside the workspace"],
        r"use a path inside the workspace, or grant its folder: --read DIR \(read=\)",
    ),
    "a link out": (("check", "read_file", "path=link"), DENY, ["by a link"], "--read DIR"),
    "a write": (
        (*WRITE, "path=a"),
        ASK,
        ["asked, once, if the answer is for the session or project", "writes to the workspace"],
        r"^an approver \(.*--yes`\), or policy \"coding\" \(policy= / `--policy coding`\)$",
    ),
    "a write, trusted": (
        (*WRITE, "path=a", "--policy", "coding"),
        ALLOW,
        ["would run and be logged, and what it changes would be judged", "because the jail keeps"],
        "",
    ),
    "a write, strict": ((*WRITE, "path=a", "--policy", "strict"), ASK, ["level 2"], "an approver"),
    "a write in plan": (
        (*WRITE, "path=a", "--mode", "plan"),
        DENY,
        ["because write_file writes to the workspace, and mode plan only reads"],
        r"^mode \"build\" .*; and then an approver",
    ),
    "a write in explore": (
        (*WRITE, "path=a", "--mode", "explore", "--policy", "coding"),
        ALLOW,
        ["in an empty workspace of its own", "workspace mode scratch"],
        "",
    ),
    "what a project runs": (
        (*WRITE, WORKFLOW),
        ASK,
        [r"and again before what it wrote is kept", r"\[project.runs, sensitive_paths.toml:\d+\]"],
        "^an approver .*--yes`\\)$",
    ),
    "what a project runs, trusted": (
        (*WRITE, WORKFLOW, "--policy", "coding"),
        ALLOW,
        ["and a person would be asked before what it wrote is kept"],
        "",
    ),
    "a granted folder": (
        (*WRITE, "path=PLACE/data/y", "--write", "PLACE/data", "--policy", "coding"),
        ASK,
        ["in a folder granted for writing: nothing there is undone", "write .*/data"],
        # Without that folder the path would be outside.
        "^an approver .*--yes`\\)$",
    ),
    "code": (
        ("check", "python", "code=print(1)"),
        ASK,
        ["level 3", "asked, each time", "runs commands or code"],
        'an approver .*or policy "coding"',
    ),
    "code, with nobody to ask": (
        ("check", "python", "code=1", "--policy", "ci", "--network", "loopback"),
        DENY,
        ["because python runs", "because policy ci has nobody to ask"],
        r"^no network \(leave out",
    ),
    "a reader in place": (
        (*SHELL, "command=cat notes.txt | wc -l", "--policy", "coding", "--workspace-mode=direct"),
        ALLOW,
        ["level 0", "every part of the command only reads"],
        "",
    ),
    "a writer in place": (
        (*SHELL, "command=rm -rf build", "--policy", "coding", "--workspace-mode", "direct"),
        ASK,
        ["level 2", "'rm' writes 'build'"],
        "a transaction .*`--workspace-mode transaction`",
    ),
    "a compound with a network": (
        (*SHELL, "command=cd src && git push | tee x", "--policy=coding", "--network", "host"),
        ASK,
        ["git push speaks", "'tee' writes 'src/x'", "shares the host's network"],
        "no network",
    ),
    "a waiver": (
        (*SHELL, "command=ls", "--waive", "memory_limited", "--policy", "coding"),
        ASK,
        ["may do without what was waived: memory_limited", "; waived memory_limited"],
        "all guarantees .*leave out .*`--waive`",
    ),
    "the root": ((*SHELL, "command=rm -rf /", "--policy", "coding"), DENY, ["removes '/'"], ""),
    "a secret by a command": (
        (*SHELL, "command=cat .env | base64", "--policy", "coding"),
        ALLOW,
        [
            "because the jail keeps",
            r"although .*'.*/\.env' is protected: the jail does not show it",
        ],
        "",
    ),
    "a secret by a command in place": (
        (*SHELL, "command=cat .env | base64", "--policy=coding", "--workspace-mode", "direct"),
        DENY,
        [r"because '.*/\.env' is protected .*\[env.files, "],
        "",
    ),
    "many secrets": (
        (*SHELL, f"command=cat {' '.join(f'{n}/.env' for n in range(30))}", "--policy", "coding"),
        ALLOW,
        ["although .*; and 28 more$"],
        "",
    ),
    "more secrets than a screen has": (
        (
            *(*SHELL, f"command=cat {' '.join(f'{n}/.env' for n in range(30))}"),
            *("--policy", "coding", "--workspace-mode", "direct"),
        ),
        DENY,
        ["  and 18 more reasons: --json has them all\n"],
        "",
    ),
    "too long": (
        (*WRITE[:2], json.dumps({"path": "a", "content": "x" * 70_000}), "--policy", "coding"),
        ASK,
        ["too long to be shown whole"],
        "an approver",
    ),
    "a rule that denies": (
        (*SHELL, "command=cd src && git push --force", *MINE),
        DENY,
        [r"because a rule denies 'git push --force': history .* \[no-force-push, .*mine.toml:2\]"],
        "^push to a new branch$",
    ),
    "what a rule that denies may be about": (
        (*SHELL, "command=$X push --force", *MINE),
        ASK,
        [r"only a run of it can tell: .* \[no-force-push, .*mine.toml:2\]"],
        "an approver",
    ),
    "a rule that asks": (
        (*SHELL, "command=echo > db/migrations/1.sql", *MINE),
        ASK,
        [r"a rule asks about '.*/1.sql': a migration .* \[ask-migrations, .*mine.toml:13\]"],
        "an approver",
    ),
    "a rule that allows": (
        (*WRITE, "path=docs/a.md", *MINE),
        ALLOW,
        [r"because a rule allows '.*/docs/a.md' \[docs-are-free, .*:22\]", "although write_file"],
        "",
    ),
    "a file's policy": (
        (*WRITE, "path=a", *MINE),
        ASK,
        ["writes to the workspace"],
        r"policy \"coding\" \(`extends = \"coding\"` in '.*mine.toml'\)",
    ),
}


@pytest.mark.parametrize("name", SCREENS)
def test_check_says_on_one_screen_what_would_happen_why_and_what_helps(
    toolcell: Run, name: str
) -> None:
    """Who has to guess why turns the whole policy off."""
    words, code, said, helps = SCREENS[name]
    found = toolcell(*words)
    assert found.code == code, found
    assert len(found.out.splitlines()) <= 24
    for one in said:
        assert re.search(one, found.out, re.MULTILINE), (one, found.out)
    if helps:
        assert re.search(helps, found.help), (helps, found.help)
    else:
        assert found.help == ""


HELPED: dict[str, tuple[tuple[str, ...], str, tuple[str, ...], int]] = {
    # what is checked, what is said to help, the same with that, what it then comes to
    "another policy": (
        (*SHELL, "command=make"),
        "`--policy coding`",
        (*SHELL, "command=make", "--policy", "coding"),
        ALLOW,
    ),
    "a folder to read": (
        ("check", "read_file", "path=PLACE/data/x"),
        "--read DIR",
        ("check", "read_file", "path=PLACE/data/x", "--read", "PLACE/data"),
        ALLOW,
    ),
    "a folder to write in": (
        (*WRITE, "path=PLACE/data/y"),
        "--write DIR",
        (*WRITE, "path=PLACE/data/y", "--write", "PLACE/data"),
        ASK,
    ),
    "another mode": (
        (*WRITE, "path=a", "--mode", "plan", "--policy", "coding"),
        "`--mode build`",
        (*WRITE, "path=a", "--mode", "build", "--policy", "coding"),
        ALLOW,
    ),
    "a transaction": (
        (*SHELL, "command=make", "--policy", "coding", "--workspace-mode", "direct"),
        "`--workspace-mode transaction`",
        (*SHELL, "command=make", "--policy", "coding", "--workspace-mode", "transaction"),
        ALLOW,
    ),
    "no network": (
        (*SHELL, "command=make", "--policy", "ci", "--network", "loopback"),
        "leave out network= / `--network`",
        (*SHELL, "command=make", "--policy", "ci"),
        ALLOW,
    ),
    "no folder": (
        (*SHELL, "command=make", "--policy", "coding", "--write", "PLACE/data"),
        "leave out write= / `--write`",
        (*SHELL, "command=make", "--policy", "coding"),
        ALLOW,
    ),
    "two changes": (
        (*SHELL, "command=make", "--workspace-mode", "direct"),
        "`--policy coding`) and a transaction",
        (*SHELL, "command=make", "--policy", "coding"),
        ALLOW,
    ),
}


@pytest.mark.parametrize("name", HELPED)
def test_what_is_said_to_help_helps(toolcell: Run, name: str) -> None:
    """A change that does not help costs a person an hour, and their trust in the rest."""
    words, named, changed, outcome = HELPED[name]
    before, after = toolcell(*words), toolcell(*changed)
    assert named in before.help
    assert after.code == outcome
    assert after.code < before.code


def test_a_files_own_policy_is_loosened_in_the_file_and_its_rules_stay(
    toolcell: Run, place: Path
) -> None:
    """`--policy coding` in its place would have dropped the rules that deny."""
    words = (*WRITE, "path=a", *MINE)
    assert "`--policy coding`" not in toolcell(*words).help
    (place / "mine.toml").write_text(f'extends = "coding"\n{RULES}')
    assert toolcell(*words).code == ALLOW
    assert toolcell(*SHELL, "command=git push -f", *MINE).code == DENY
    # The usual file of a person counts with each policy that has a name.
    (place / "config/toolcell").mkdir(parents=True)
    (place / "config/toolcell/policy.toml").write_text(RULES)
    assert "`--policy coding`" in toolcell(*WRITE, "path=a").help
    assert toolcell(*WRITE, "path=a", "--policy", "coding").code == ALLOW
    assert toolcell(*SHELL, "command=git push -f", "--policy", "coding").code == DENY


def test_what_a_person_has_to_see_afterwards_is_not_said_to_need_a_policy(
    toolcell: Run, place: Path
) -> None:
    """Under `coding` the call runs, and what it wrote is refused where nobody can be asked."""
    run = ("run", "write_file", WORKFLOW, "content=x")
    refused = toolcell(*run, "--policy", "coding", "--approve", "never")
    assert refused.code == NOT_PERMITTED
    assert "effects_refused" in refused.err
    assert not (place / "ws/.github/workflows/ci.yml").exists()
    assert toolcell(*run, "--yes").code == 0
    assert (place / "ws/.github/workflows/ci.yml").read_text() == "x"


def test_the_json_of_check_has_all_that_the_screen_has(toolcell: Run, place: Path) -> None:
    """A program that asks must not have to read prose."""
    (place / "ws/.toolcell").mkdir()
    (place / "ws/.toolcell/policy.toml").write_text(PROJECT)
    told = json.loads(toolcell(*SHELL, "command=git push -f", *MINE, "--json").out)
    assert told["schema"] == 1
    assert (told["tool_name"], told["outcome"], told["error"]) == ("shell", "deny", None)
    rule = next(one for one in told["reasons"] if one["code"] == "rule_deny")
    assert (rule["rule"], rule["source"]) == ("no-force-push", f"{place / 'mine.toml'}:2")
    assert told["remedy"] == "push to a new branch"
    assert told["jail"]["workspace_mode"] == "transaction"
    assert set(told["jail"]["hidden"]) == {".env", ".toolcell"}
    assert [one["rule"] for one in told["not_counted"]] == ["sources-are-free"]
    asked = json.loads(toolcell(*WRITE, "path=a", "--json").out)
    assert asked["remember_options"] == ["session", "project"]
    assert len(asked["plan_hash"]) == 64
    wrong = toolcell("check", "read_file", "pth=x", "--json")
    assert wrong.code == WRONG_CALL
    assert json.loads(wrong.out)["error"]["kind"] == "invalid_arguments"


# -- a project's file ---------------------------------------------------------------------


def test_a_projects_file_tightens_at_once_and_loosens_once_it_is_trusted(
    toolcell: Run, place: Path
) -> None:
    """A repository that was just cloned must not decide what may run."""
    (place / "ws/.toolcell").mkdir()
    file = place / "ws/.toolcell/policy.toml"
    file.write_text(PROJECT)
    curl, write = (*SHELL, "command=curl x", "--policy", "coding"), (*WRITE, "path=src/b.py")
    assert "[no-curl, " in toolcell(*curl).out
    before = toolcell(*write)
    assert before.code == ASK
    note = next(line for line in before.out.splitlines() if line.startswith("  note: "))
    assert "a rule that allows does not count" in note
    assert f"toolcell trust '{file}' [sources-are-free, {file}:10]" in note
    trusted = toolcell(*shlex.split(note.partition("and then: toolcell ")[2])[:2])
    assert trusted.code == 0
    assert "may now loosen: sources-are-free" in trusted.out
    after = toolcell(*write)
    assert after.code == ALLOW
    assert "sources-are-free" in after.out
    assert "note: " not in after.out
    assert toolcell(*curl).code == DENY
    file.write_text(f"{PROJECT}\n# another content\n")
    assert toolcell(*write).code == ASK


def test_a_projects_file_is_read_as_one_by_lint_too(toolcell: Run, place: Path) -> None:
    """What the linter lets pass should not stop the next start."""
    (place / "ws/.toolcell").mkdir()
    (place / "ws/.toolcell/policy.toml").write_text('waive = ["net_blocked"]\n')
    for words in (("policy", "lint"), ("policy", "test"), ("trust",)):
        assert (
            "a project's file may not hold waivers" in toolcell(*words, ".toolcell/policy.toml").err
        )
    assert "may not hold waivers" in toolcell("check", "read_file", "path=notes.txt").err


# -- what is wrong ------------------------------------------------------------------------

READ = ("check", "read_file", "path=notes.txt")
WRONG: dict[str, tuple[str | None, tuple[str, ...], int, list[str]]] = {
    # the file, the words, the exit code, what is said
    "no policy": (None, ("--policy", "codding"), USAGE, ["'codding' is not", "coding, ci, strict"]),
    "no file": (None, ("--policy", "./no.toml"), USAGE, ["'./no.toml' does not exist"]),
    "a folder": (None, ("--policy", "PLACE/data/"), USAGE, ["it is no regular file"]),
    "a link": (None, ("--policy", "PLACE/ws/link"), USAGE, ["is a link; name the file that it"]),
    "no mode": (None, ("--mode", "biuld"), USAGE, ["--mode", "explore", "plan", "build"]),
    "no word": ('outcome = "alow"', (), USAGE, ["wrong.toml:4:11: unknown outcome", "^^^^^^"]),
    "no TOML": ('outcome = "allow', (), USAGE, ["wrong.toml:4:17: not TOML", "^"]),
    "no example": ('outcome = "allow"', (), USAGE, ["wrong.toml:2:1: a rule that allows needs"]),
    "an example": (
        'outcome = "deny"\nreason = "x"\nmatch = ["ls"]',
        (),
        USAGE,
        ["wrong.toml:6:10: this example should match, and does not", '    match = ["ls"]', "^^^^"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place_and_nothing_runs(
    toolcell: Run, place: Path, name: str
) -> None:
    """The file that is not understood may be the one that denies."""
    rule, words, code, said = WRONG[name]
    if rule is not None:
        text = f'\n[[rule]]\nid = "x"\n{rule}\ntool = "shell"\nwhen.command = ["rm"]\n'
        (place / "wrong.toml").write_text(text)
        words = ("--policy", "PLACE/wrong.toml")
    found = toolcell(*READ, *words)
    assert (found.code, found.out) == (code, "")
    for one in said:
        assert one in found.err, found.err
    assert "\\n  " not in found.err
    lines = found.err.splitlines()
    if rule is not None:
        # A caret stands below what it is about, or right behind it.
        assert len(lines) == 3
        assert len(lines[1]) - len(lines[1].lstrip()) <= lines[2].index("^") <= len(lines[1])
    else:
        assert len(lines) == 1


def test_a_policy_of_the_environment_is_taken_and_named_where_it_is_wrong(
    toolcell: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody finds a typing error in a variable that the message does not name."""
    monkeypatch.setenv("TOOLCELL_POLICY", "coding")
    assert toolcell(*SHELL, "command=make").code == ALLOW
    assert toolcell(*SHELL, "command=make", "--policy", "standard").code == ASK
    monkeypatch.setenv("TOOLCELL_POLICY", "codding")
    assert toolcell(*READ).err.startswith("toolcell: TOOLCELL_POLICY 'codding' is not offered")


def test_a_line_of_a_caller_does_not_become_a_line_of_ours(toolcell: Run, place: Path) -> None:
    """It could say that something else was decided."""
    for words in (
        ("--policy", "a\ntoolcell: allow"),
        ("--policy", "a\ntoolcell: allow.toml"),
        ("--workspace", "a\ntoolcell: allow"),
    ):
        found = toolcell(*READ, *words)
        assert found.code == USAGE
        assert found.err.count("\n") == 1
    # The control: what a file says has lines of its own, set in and escaped.
    (place / "a.toml").write_text('x = "\\u001b[2J\x7f"\n'.replace("\x7f", "\u202e"))
    found = toolcell(*READ, "--policy", "PLACE/a.toml")
    assert [line[:2] for line in found.err.splitlines()] == ["to", "  ", "  "]
    assert "\u202e" not in found.err


def test_a_denied_call_says_its_rule_once_and_with_its_place(toolcell: Run) -> None:
    """The same sentence twice hides the one that matters."""
    found = toolcell("run", "shell", "command=git push -f", *MINE, "--approve", "never")
    assert found.code == NOT_PERMITTED
    assert found.err.count("history that others have") == 1
    assert re.search(r"\[no-force-push, .*mine.toml:2\]", found.err)
    assert found.err.splitlines()[-1] == "  fix: push to a new branch"


# -- lint and test ------------------------------------------------------------------------

MEANT_OTHERWISE = """
[[rule]]
id = "typo"
tool = "shel"
when.command = ["rm"]
outcome = "deny"
reason = "no"
match = ["rm x"]

[[rule]]
id = "secret"
tool = "read_file"
when.path = [".env"]
outcome = "allow"
match = [".env"]
not_match = ["x"]
"""


def test_lint_names_what_is_not_meant(toolcell: Run, place: Path) -> None:
    """A rule that never fires is believed for years."""
    (place / "odd.toml").write_text(MEANT_OTHERWISE)
    found = toolcell("policy", "lint", "PLACE/odd.toml")
    assert found.code == 1
    assert re.search(r"odd.toml:2 +typo +unknown_tool +.*did you mean shell\?", found.out)
    assert re.search(r"odd.toml:10 +secret +never_fires +.*leave that path out", found.out)
    told = json.loads(toolcell("policy", "lint", "PLACE/odd.toml", "--json").out)
    assert [one["code"] for one in told["findings"]] == ["unknown_tool", "never_fires"]
    fine = toolcell("policy", "lint", "PLACE/mine.toml")
    assert (fine.code, fine.out) == (0, "nothing to say about 3 rules\n")
    assert toolcell("policy", "lint", "PLACE/none.toml").code == USAGE


def test_test_runs_the_examples_and_names_the_one_that_does_not_hold(
    toolcell: Run, place: Path
) -> None:
    """It is the author's own word for what the rule does."""
    fine = toolcell("policy", "test", "PLACE/mine.toml")
    assert (fine.code, fine.out) == (0, "6 of 6 examples hold, of 3 rules\n")
    (place / "bad.toml").write_text(RULES.replace('"docs/conf.py"', '"docs/\u202econf.md"'))
    bad = toolcell("policy", "test", "PLACE/bad.toml")
    assert bad.code == 1
    assert re.search(
        r"bad.toml:28: rule docs-are-free matches .*conf.md, and should not\n", bad.out
    )
    assert "\u202e" not in bad.out
    assert bad.out.endswith("5 of 6 examples hold, of 3 rules\n")
    whole = toolcell("policy", "test", "PLACE/bad.toml", "-v")
    assert "rule no-force-push does not match git push origin main\n" in whole.out
    assert len(whole.out.splitlines()) == 7
    told = json.loads(toolcell("policy", "test", "PLACE/bad.toml", "--json").out)
    assert [one["holds"] for one in told["examples"]] == [True] * 5 + [False]


# -- on a terminal ------------------------------------------------------------------------

# A session leader that opens a terminal without O_NOCTTY gets it as its controlling one (tty(4)).
TAKE_TERMINAL = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(fd, number)
os.execv(sys.argv[2], sys.argv[2:])
"""


def on_terminal(*words: str, types: str = "", at: str = "stop:") -> Said:
    """`toolcell WORDS` on a terminal of 100 columns and 24 lines; `types` answers its question."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    seen = ""
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", TAKE_TERMINAL, os.ttyname(slave)),
            *(sys.executable, "-c", TOOLCELL, *words),
        ],
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        start_new_session=True,
    )
    pidfd = os.pidfd_open(process.pid)
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while True:
            ready, _, _ = select.select(
                [master, pidfd], [], [], max(0.0, deadline_s - time.monotonic())
            )
            assert ready, f"it never ended: {seen}"
            if master in ready:
                seen += os.read(master, 65536).decode("utf-8", "replace")
                if types and at in seen:
                    os.write(master, types.encode())
                    types = ""
            elif pidfd in ready:
                return Said(process.wait(), seen.replace("\r\n", "\n"), "")
    finally:
        process.kill()
        process.wait()
        for fd in (pidfd, master, slave):
            os.close(fd)


def test_on_a_terminal_nothing_is_wider_than_it(place: Path) -> None:
    """A line that the terminal breaks in the middle of a word is read twice."""
    shown = on_terminal("check", "shell", "command=make", "--workspace-mode", "direct")
    assert shown.code == ASK
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 24
    assert [line for line in lines if line.startswith("      ")]


def test_a_yes_for_30_days_is_listed_not_asked_again_and_revoked(
    toolcell: Run, place: Path
) -> None:
    """What was agreed to once has to be seen, and to be ended, by whoever agreed."""
    first = on_terminal("run", "write_file", "path=a", "content=1", types="p\n")
    assert first.code == 0
    assert "[p] yes, for 30 days" in first.out
    assert f"every call of write_file in {place / 'ws'}" in first.out
    quiet = ("--approve", "never")
    assert toolcell("run", "write_file", "path=b", "content=2", *quiet).code == 0
    again = toolcell("check", "write_file", "path=c", "content=3")
    assert again.code == ALLOW
    listed = toolcell("grants", "list")
    (number,) = re.findall(r"^([0-9a-f]{8})  project  write_file  build ", listed.out, re.MULTILINE)
    assert f"agreed to before, by grant {number}" in again.out
    # Not for what is more than was agreed to.
    assert toolcell(*WRITE, "path=c", "--workspace-mode", "direct").code == ASK
    assert toolcell(*WRITE, "path=c", "--network", "host").code == ASK
    recorded = toolcell("audit", "show")
    assert re.search(r"write_file  2 +project +success", recorded.out)
    assert re.search(r"write_file  2 +grant +success", recorded.out)
    assert toolcell("audit", "verify").out.startswith("whole; 4 records fit\n")
    assert toolcell("grants", "revoke", number).out == "revoked 1 grant\n"
    assert toolcell("run", "write_file", "path=c", "content=3", *quiet).code == NOT_PERMITTED
    assert not (place / "ws/c").exists()


def test_a_yes_for_the_session_ends_with_it(toolcell: Run, place: Path) -> None:
    """Each command of the command line is a session of its own."""
    first = on_terminal("run", "write_file", "path=a", "content=1", types="s\n")
    assert (first.code, (place / "ws/a").read_text()) == (0, "1")
    assert "[s] yes, for this session" in first.out
    assert "nothing is remembered" in toolcell("grants", "list").out
    assert toolcell(*WRITE, "path=b").code == ASK


def test_a_question_names_the_rule_that_asks_and_where_it_stands(place: Path) -> None:
    """Who is asked too often has to find the line that asks."""
    policy = str(place / "mine.toml")
    words = ("run", "write_file", "path=db/migrations/1.sql", "content=1", "--policy", policy)
    shown = on_terminal(*words, types="n\n")
    assert shown.code == NOT_PERMITTED
    assert f"[ask-migrations, {policy}:13]" in shown.out
    assert "[s]" not in shown.out  # not for what asks each time


# -- the documents ------------------------------------------------------------------------


def test_the_screen_in_the_document_is_the_one_that_is_shown(toolcell: Run) -> None:
    """Whoever compares the two should not wonder which is wrong."""
    text = (DOCS / "decisions.md").read_text(encoding="utf-8")
    found = re.search(r"^    \$ toolcell (.*)\n((?:    .*\n)+)", text, re.MULTILINE)
    assert found is not None
    (Path.cwd() / ".env").unlink()  # that project has none
    shown = toolcell(*shlex.split(found[1]))
    assert indent(shown.out, "    ") == found[2]


async def test_the_answer_that_comes_later_is_as_in_the_document(place: Path) -> None:
    """It is the only example of how a service asks."""
    text = (DOCS / "decisions.md").read_text(encoding="utf-8")
    found = re.search(r"^    plan = await(?:.*\n)+?(?=\n\S)", text, re.MULTILINE)
    assert found is not None
    kept: list[str] = []
    from toolcell.approval import Answer
    from toolcell.prepared import Plan

    steps = dedent(found[0]).replace("make deploy", "echo deployed").replace("...\n", "")
    names: dict[str, Any] = {"store": kept.append, "load": kept.pop, "Answer": Answer, "Plan": Plan}
    async with Executor(workspace=place / "ws", state_dir=place / "state") as executor:
        names["executor"] = executor
        body = f"async def steps():\n{indent(steps, '    ')}\n    return plan, result"
        exec(body, names)
        plan, result = await names["steps"]()
        assert plan.text.startswith("shell")
        assert plan.reasons
        assert result.ok, result.error
        assert "deployed" in result.content
        await trio.lowlevel.checkpoint()
