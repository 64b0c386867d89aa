"""The corpus of paths (`path_corpus.toml`): the check, the executor, the jail, and races.

One real tree with links, loops, pipes, sockets and names of every kind. The same rows are put to
`check_path`, to `executor.check`, to calls that are refused, and to the file tools in a jail.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import socket
import stat
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from toolcell import Answer, Decision, Executor
from toolcell.approval import from_callback
from toolcell_policies import (
    FileFacts,
    Filesystem,
    PathVerdict,
    RealFilesystem,
    Role,
    check_path,
    default_sensitive_list,
)
from toolcell_policies.paths import StillFilesystem

from . import path_races
from .tools_of_paths import use_all

CORPUS: Final = tomllib.loads((Path(__file__).parent / "path_corpus.toml").read_text("utf-8"))
VERDICTS: Final[dict[str, str]] = CORPUS["verdicts"]
LIST: Final = default_sensitive_list()
LONG: Final = "\u540d" * 85
"""255 bytes in 85 characters."""
ROLES: Final[tuple[Role, ...]] = ("read", "write")
HIDDEN_WORDS: Final = ("SECRET", "BESIDE")
TELLTALE: Final = re.compile("|".join(HIDDEN_WORDS))
# What a jail has of its own, or shows to everybody.
JAILS_OWN: Final = re.compile(
    r"/(proc|dev|etc|usr|sys|tmp)|/*$|to_(proc|fd|stdin|null|cwd|etc|root)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One path, and what has to be said about it; `comes_to` in a jail, where it is called."""

    path: str
    read: str
    write: str
    comes_to: str | None = None

    def outcome(self, role: Role) -> str:
        return self._words(role)[0]

    def codes(self, role: Role) -> set[str]:
        return set(self._words(role)[1:])

    def _words(self, role: Role) -> list[str]:
        return VERDICTS[self.read if role == "read" else self.write].split()

    @property
    def is_text(self) -> bool:
        """Whether a caller can say it at all: arguments are JSON, without NUL."""
        return not any(f"{{{name}}}" in self.path for name in _NAMED)


_NAMED: Final = {"byte": "\udcff", "half": "\ud800", "nul": "\0"}
ROWS: Final = [
    Row(path=row[0], read=row[1], write=row[2], comes_to=row[3] if len(row) > 3 else None)
    for group in CORPUS["group"]
    for row in group["rows"]
]
CALLED: Final = [row for row in ROWS if row.comes_to is not None]


class Tree:
    """The tree on disk, made once for all tests: none of them may change it."""

    def __init__(self, top: Path) -> None:
        self.top, self.ws, self.out, self.home = top, top / "ws", top / "out", top / "home"
        said = CORPUS["tree"]
        for kind, word in (
            ("plain", "PLAIN"),
            ("secret", "SECRET"),
            ("asked", "ASKED"),
            ("beside", "BESIDE"),
            ("private_key", "SECRET -----BEGIN PRIVATE KEY-----"),
            ("shut_files", "SECRET"),
        ):
            for name in said[kind]:
                place = self.place(name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(f"{word} {name!a}\n")
        for name in said["folders"]:
            self.place(name).mkdir()
        for name in said["fifos"]:
            os.mkfifo(self.place(name))
        for name in said["sockets"]:
            self._bind(name)
        for name in said["shut_files"]:
            self.place(name).chmod(0)
        for name, target in said["hard_links"].items():
            os.link(self.place(target), self.place(name))
        for name, target in said["links"].items():
            os.symlink(self.fill(target), self.place(name))

    def _bind(self, name: str) -> None:
        # By a short name, since sun_path holds 108 bytes (unix(7)).
        place = self.place(name)
        folder = os.open(place.parent, os.O_PATH)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"/proc/self/fd/{folder}/{place.name}")
        finally:
            os.close(folder)

    def place(self, name: str) -> Path:
        return self.top / self.fill(name)

    def fill(self, text: str) -> str:
        named = _NAMED | {name: str(getattr(self, name)) for name in ("top", "ws", "out", "home")}
        text = re.sub(r"\{(\w+)\}", lambda found: named.get(found[1], found[0]), text)
        return re.sub(r"\{([^{}*]+)\*(\d+)\}", lambda found: found[1] * int(found[2]), text)

    def check(self, text: str, role: Role, workspace: Path | None = None) -> PathVerdict:
        homes = (str(self.home),)
        return check_path(self.fill(text), role, str(workspace or self.ws), homes, LIST)

    def state(self) -> dict[str, object]:
        """Every entry with what it is and holds, to be compared with later."""
        found: dict[str, object] = {}
        for folder, folders, files in os.walk(self.top):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                facts = os.lstat(path)
                held = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else None
                times = None if stat.S_ISDIR(facts.st_mode) else facts.st_mtime_ns
                found[path] = (facts.st_mode, facts.st_ino, facts.st_size, times, held)
        return found


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    # Resolved, since a temporary folder may itself lie below a link.
    return Tree(Path(os.path.realpath(tmp_path_factory.mktemp("paths"))))


@pytest.fixture
def boxes(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes executors over the tree, for a person whose home is in it."""
    monkeypatch.setenv("HOME", str(tree.home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TOOLCELL_POLICY", "TOOLCELL_ISOLATION"):
        monkeypatch.delenv(name, raising=False)

    def make(workspace: Path | None = None, **options: Any) -> Executor:
        state = tmp_path.resolve() / "state"
        options.setdefault("approver", from_callback(_yes))
        return Executor(workspace=workspace or tree.ws, state_dir=state, tools=[use_all], **options)

    return make


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of the test's own, without links above it, with an empty workspace in it."""
    found = tmp_path.resolve()
    (found / "ws").mkdir()
    return found


def _yes(request: Any) -> Answer:
    """Yes, and for the session where that may be said."""
    options = request.remember_options
    return Answer.remember("session") if "session" in options else Answer.once()


def kind(result: Any) -> str | None:
    return None if result.error is None else result.error.kind


def codes(found: PathVerdict | Decision) -> set[str]:
    return {reason.code for reason in found.reasons}


# ---------------------------------------------------------------- the corpus itself


def test_the_corpus_is_large_and_says_each_thing_once(tree: Tree) -> None:
    """A corpus that shrinks unseen protects less with every change."""
    assert len(ROWS) >= 300
    assert [path for path, times in Counter(row.path for row in ROWS).items() if times > 1] == []
    count = Counter(row.outcome(role) for row in ROWS for role in ROLES)
    assert min(count["allow"], count["deny"]) >= 200, count
    assert count["ask"] >= 35, count
    assert len(CALLED) * 4 > len(ROWS)


def test_every_rule_of_the_list_is_met_by_a_row(tree: Tree) -> None:
    """A category that no input ever meets may have been dropped without anybody knowing."""
    met = {
        reason.rule
        for row in ROWS
        for role in ROLES
        for reason in tree.check(row.path, role).reasons
        if reason.rule is not None
    }
    assert {rule.id for rule in LIST.rules} - met == set()


# ---------------------------------------------------------------- check_path


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("row", [pytest.param(r, id=ascii(r.path)[1:50]) for r in ROWS])
def test_a_path_gets_the_verdict_of_the_corpus_and_no_other_reason(
    tree: Tree, row: Row, role: Role
) -> None:
    """One wrong allow is a secret lost; one wrong deny is a tool switched off."""
    found = tree.check(row.path, role)
    said = "deny" if found.denied else "ask" if found.level_floor else "allow"
    assert (said, codes(found)) == (row.outcome(role), row.codes(role))
    assert found.inside or found.denied
    for reason in found.reasons:
        assert reason.text.isprintable(), reason
        assert str(tree.top) not in reason.text or str(tree.top) in tree.fill(row.path)


def test_what_is_let_through_is_where_the_kernel_goes(tree: Tree) -> None:
    """A tool that opens the resolved path must open the file that was judged."""
    for row in ROWS:
        found = tree.check(row.path, "read")
        if not found.denied:
            given = os.path.join(tree.ws, tree.fill(row.path))
            assert found.resolved == os.path.realpath(given), row


@pytest.mark.parametrize("given", ["ws-link", "./ws/.", "ws-link/../ws", "out/../ws"])
def test_a_workspace_reached_by_a_link_gives_the_same_verdicts(tree: Tree, given: str) -> None:
    """Otherwise the same project is another one by its other name, and nothing in it is inside."""
    for row in ROWS:
        if not row.path.startswith(("{", "..", "/")):
            found = tree.check(row.path, "write", Path(f"{tree.top}/{given}"))
            assert codes(found) == row.codes("write"), row


def test_nothing_is_looked_up_without_bound(tree: Tree, tmp_path: Path) -> None:
    """Forty links of 4 KB were 31,000 look-ups; the supervisor does nothing else meanwhile."""
    ws = Path(os.path.realpath(tmp_path))
    (ws / "a").mkdir()
    (ws / "end").write_text("x")
    modules = "x.git/modules/"
    for name, body in {
        "dots": "a/../" * 700,
        "stay": "./" * 2000,
        "git": (modules + "../../") * 180,
        "wide": "\ufdfa/../" * 580,
        "long": f"{'n' * 250}/../" * 16,
    }.items():
        os.symlink("end", ws / f"{name}0")
        for number in range(1, 40):
            os.symlink(f"{body}{name}{number - 1}", ws / f"{name}{number}")
    counted = _Counted()
    for text in ("dots39", "stay39", "git39", "wide39", "long39", modules * 32, f"{'a/' * 62}b"):
        counted.count = 0
        check_path(text, "write", str(ws), (), LIST, counted)
        assert counted.count < 2_000, text
    assert check_path("stay39", "read", str(ws), (), LIST).inside
    assert check_path("dots1", "read", str(ws), (), LIST).inside
    for text in ("dots39", "git39", "wide39", "long39"):
        assert codes(check_path(text, "read", str(ws), (), LIST)) == {"path_unresolvable"}


def test_a_path_that_is_judged_twice_at_one_moment_leads_to_one_place(place: Path) -> None:
    """Judged for writing here and for reading there, a tool would write where it may only read."""
    ws, fs = place / "ws", StillFilesystem()
    (ws / ".git").mkdir()
    (ws / "p").symlink_to("real")

    def swap() -> None:
        (ws / "spare").symlink_to(".git/config")
        (ws / "spare").rename(ws / "p")
        (ws / "late").symlink_to("real")

    def looks(fs: Filesystem) -> list[str | None]:
        found = [check_path(text, "write", str(ws), (), LIST, fs) for text in ("p", "late")]
        return [one.resolved if not one.level_floor else None for one in found]

    before = looks(fs)
    swap()
    assert before == looks(fs) == [f"{ws}/real", f"{ws}/late"]
    assert looks(RealFilesystem()) == [None, f"{ws}/real"]
    shut = StillFilesystem(fs)
    for _ in range(2):
        with pytest.raises(OSError, match="Invalid argument"):
            shut.readlink(str(ws))


class _Counted(RealFilesystem):
    """The real one, with a count of what it was asked."""

    count = 0

    def lstat(self, path: str) -> FileFacts:
        self.count += 1
        return super().lstat(path)

    def readlink(self, path: str) -> str:
        self.count += 1
        return super().readlink(path)


def test_a_folder_that_may_not_be_entered_ends_the_way(tmp_path: Path) -> None:
    """What lies behind it cannot be proven to lie inside; root in its own right would see it."""
    ws = Path(os.path.realpath(tmp_path))
    (ws / "shut" / "in").mkdir(parents=True)
    (ws / "shut" / "in" / "f").write_text("x")
    (ws / "link").symlink_to("shut/in/f")
    program = textwrap.dedent("""
        import json, sys
        from toolcell_policies import check_path, default_sensitive_list
        rules, found = default_sensitive_list(), []
        for text in ("shut", "shut/in", "shut/in/f", "link", "shut/../f"):
            one = check_path(text, "read", sys.argv[1], (), rules)
            found.append([one.inside, *(reason.code for reason in one.reasons)])
        print(json.dumps(found))
        """)
    # In a user namespace of its own nobody has a right to override (user_namespaces(7)).
    argv = ["unshare", "--user", sys.executable, "-c", program, str(ws)]
    (ws / "shut").chmod(0)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    finally:
        (ws / "shut").chmod(0o755)
    assert done.returncode == 0, done.stderr
    refused = [False, "path_unresolvable"]
    assert json.loads(done.stdout) == [[True], refused, refused, refused, [True]]


# ---------------------------------------------------------------- the executor's own word


async def test_the_executor_says_of_each_path_what_the_check_says(tree: Tree, boxes: Any) -> None:
    """Otherwise the table is about a function that nobody calls."""
    box = boxes()
    for row in ROWS:
        path = tree.fill(row.path)
        reading = box.check("read_file", {"path": path})
        writing = box.check("write_file", {"path": path, "content": "x"})
        if not row.is_text:
            assert not isinstance(reading, Decision), row
            assert not isinstance(writing, Decision), row
            continue
        outcomes = {row.outcome("read"), row.outcome("write")}
        assert reading.outcome.value == row.outcome("read"), (row, reading)
        assert writing.outcome.value == ("deny" if "deny" in outcomes else "ask"), (row, writing)
        expected = row.codes("read") | row.codes("write")
        if "deny" not in row.outcome("write") and "path_write_asks" in expected:
            # In a transaction a person sees it after the run, with the diff.
            expected = expected - {"path_write_asks"} | {"path_write_judged"}
        assert row.codes("read") <= codes(reading), row
        assert expected <= codes(writing), row
        said = {code for code in codes(writing) if code.startswith("path_")}
        # Where the running interpreter lies, which differs by machine, is sealed besides.
        assert said - {"path_sealed"} == expected, row


async def test_what_is_denied_is_not_told_by_a_call_and_changes_nothing(
    tree: Tree, boxes: Any
) -> None:
    """A refusal that quotes the file, or is given after it was read or written, is none."""
    before = tree.state()
    denied_rows = [row for row in ROWS if row.outcome("write") == "deny"]
    async with boxes() as box:
        for number, row in enumerate(denied_rows):
            path = tree.fill(row.path)
            calls: list[tuple[str, dict[str, str]]] = []
            # A part of them for writing: each leaves two records on the disk.
            if number % 4 == 0:
                calls.append(("write_file", {"path": path, "content": "WRITTEN"}))
            if row.outcome("read") == "deny":
                calls.append(("read_file", {"path": path}))
            for name, arguments in calls:
                result = await box.call(name, arguments)
                expected = "denied" if row.is_text else "invalid_arguments"
                assert kind(result) == expected, (row, result.content)
                assert not TELLTALE.search(json.dumps(result.to_json())), row
                assert not result.files_read, row
    assert tree.state() == before


# ---------------------------------------------------------------- in jails


async def test_a_call_by_the_whole_road_comes_to_what_the_corpus_says(
    tree: Tree, boxes: Any
) -> None:
    """Otherwise the check says one thing and the jail shows another."""
    async with boxes() as box:
        for text in ("README.md", "l1", "in_deep/../a.py", "innocent.txt", "cert.pem", "host.pem"):
            row = next(row for row in ROWS if row.path == text)
            _assert_comes_to(tree, row, await _read(box, text))
        where = await box.call("shell", {"command": "pwd", "cwd": "in_deep/.."})
    # A link's parent is that of where it leads (path_resolution(7)), for a command as well.
    assert where.output["stdout"] == f"{tree.ws}/src\n"


async def _read(box: Executor, path: str) -> tuple[str, str]:
    result = await box.call("read_file", {"path": path})
    return ("told", str(result.output)) if result.success else (str(kind(result)), result.content)


def _assert_comes_to(tree: Tree, row: Row, found: tuple[str, str]) -> None:
    how, text = found
    assert not TELLTALE.search(text), (row, text)
    if row.comes_to == "told":
        real = os.path.realpath(os.path.join(tree.ws, tree.fill(row.path)))
        assert (how, text) == ("told", Path(real).read_text()), row
        assert text.startswith(("PLAIN", "ASKED"))
    else:
        assert how == "tool_error", (row, text)
        assert ("does not exist" in text) == (row.comes_to == "missing"), (row, text)


async def test_the_file_tools_in_a_jail_come_to_what_the_corpus_says(
    tree: Tree, boxes: Any
) -> None:
    """A third of the corpus, opened by the tools' own code, as it is decided, under every mask."""
    places = {}
    for row in CALLED:
        path = tree.fill(row.path)
        places[path] = tree.check(row.path, "read").resolved
    async with boxes() as box:
        result = await box.call("use_all", {"places": places})
    assert result.success, result.content
    assert list(result.output) == list(places)
    for row in CALLED:
        how, text = result.output[tree.fill(row.path)]
        _assert_comes_to(tree, row, (how, text))


async def test_case_39_a_list_and_a_search_tell_no_denied_file_nor_its_name(
    tree: Tree, boxes: Any
) -> None:
    """A tool that walks by itself sees what no argument ever named."""
    async with boxes() as box:
        listed = await box.call("list_directory", {"depth": 60})
        found = await box.call("search", {"pattern": "PLAIN|ASKED|SECRET|BESIDE", "limit": 1000})
        below = await box.call("search", {"pattern": "SECRET", "path": "sub"})
    names = {entry["path"] for entry in listed.output["entries"]}
    lines = {match["path"]: match["text"] for match in found.output["matches"]}
    for said in (listed, found, below):
        assert said.success, said.content
        assert not TELLTALE.search(json.dumps(said.to_json()))
    homes = (str(tree.home),)
    for name in (*names, *lines):
        rules = LIST.match(f"{tree.ws}/{name}", role="read", homes=homes)
        assert not any(rule.forbids("read") for rule in rules), name
    # Both do see all the rest: what asks for being named is no secret.
    plain = [name.removeprefix("ws/") for name in CORPUS["tree"]["plain"]]
    shown = {os.fsencode(tree.fill(name)).decode("utf-8", "replace") for name in plain}
    assert shown - {name for name in shown if name.startswith(".git/")} <= names
    assert {name for name in shown if not name.startswith(".git/")} <= set(lines)
    assert "cert.pem" in lines
    assert not {"host.pem", "innocent.txt", "from_home.txt"} & (names | set(lines))


async def test_a_shell_in_a_jail_reads_none_of_what_is_denied(tree: Tree, boxes: Any) -> None:
    """The check is a courtesy: who does not ask is kept from the same files by the jail."""
    denied = [
        tree.fill(row.path)
        for row in ROWS
        if row.outcome("read") == "deny" and row.is_text and len(row.path) < 500
        if not JAILS_OWN.match(row.path)
        if row.read not in ("control", "hidden")
    ]
    denied += [name.removeprefix("ws/") for name in CORPUS["tree"]["secret"]]
    denied += ["innocent.txt", "from_home.txt", "host.pem"]
    script = textwrap.dedent("""
        exec 2>>/tmp/errors
        cat README.md > /tmp/control
        for path in "$@"; do cat -- "$path" >> /tmp/named; done
        find . -type f -exec cat {} + > /tmp/found
        find / -xdev -path /proc -prune -o -type f -name '*.key' -exec cat {} + >> /tmp/found
        grep -r '' . > /tmp/searched
        tar cf - . > /tmp/packed
        { ls -aR .; echo .*/.* * ./*/*; find . -iname '.env*'; } > /tmp/names
        cat "/proc/self/root$PWD/.env" /proc/self/cwd/.env ./sub/../.env sub/.[eE]* > /tmp/tricks
        (cd sub && cat .env ./.ENV) >> /tmp/tricks
        ln .env linked; ln -s .env soft; cat linked soft >> /tmp/tricks
        mv sub moved; cat moved/.env moved/.ENV moved/credentials.yaml >> /tmp/tricks
        cp -a . /tmp/copy; cat /tmp/copy/.env /tmp/copy/tls.key >> /tmp/tricks
        for file in control named found searched packed tricks; do
            told=$(grep -aoE 'SECRET|BESIDE' /tmp/$file | wc -l)
            echo "$file $told $(grep -ac PLAIN /tmp/$file)"
        done
        told=$(grep -aciE '(^|/)\\.env$|tls\\.key$|(^|/)id_rsa|innocent' /tmp/names)
        echo "names $told $(grep -c README /tmp/names)"
        """)
    words = " ".join(map(shlex.quote, denied))
    before = tree.state()
    async with boxes() as box:
        # As words that nobody reads before it runs: those that do are not what is tried here.
        hidden_words = base64.b64encode(f"set -- {words}\n{script}".encode()).decode()
        command = f'eval "$(echo {hidden_words} | base64 -d)"'
        result = await box.call("shell", {"command": command})
    # What it did is refused as well: a link to a secret, and secrets that would go unseen.
    assert kind(result) == "effects_refused", result.content
    assert tree.state() == before
    told = {line.split()[0]: line.split()[1:] for line in result.stdout.text().splitlines()}
    hidden = {name: int(counts[0]) for name, counts in told.items()}
    plain = {name: int(counts[1]) for name, counts in told.items()}
    assert set(told) == {"control", "named", "found", "searched", "packed", "tricks", "names"}
    assert not any(hidden.values()), hidden
    assert not TELLTALE.search(result.content)
    assert all(plain[name] for name in ("control", "found", "searched", "packed", "names")), plain


async def test_what_is_written_goes_where_it_was_decided_and_w_names_ask(
    tree: Tree, boxes: Any, place: Path
) -> None:
    """An allowed write that lands elsewhere, or a control file that changes unasked, is a loss."""
    ws = place / "ws"
    (ws / "src").mkdir()
    (ws / "a.txt").write_text("PLAIN")
    os.symlink("src/new.py", ws / "dangling_in")
    os.symlink(f"{tree.out}/new.txt", ws / "dangling_out")
    os.symlink("a.txt", ws / "in")
    stages: list[tuple[str, str]] = []

    def approve(request: Any) -> Answer:
        stages.append((request.stage, request.arguments["path"]))
        return _yes(request) if request.stage == "before" else Answer.reject("no")

    async with boxes(ws, approver=from_callback(approve)) as box:
        found = {
            path: await box.call("write_file", {"path": path, "content": f"new {path}\n"})
            for path in ("in", "n/e/w", LONG, "dangling_out", ".claude/settings.json", "src/.env")
        }
    ends = {path: kind(result) for path, result in found.items()}
    assert ends == {
        "in": None,
        "n/e/w": None,
        LONG: None,
        "dangling_out": "denied",
        ".claude/settings.json": "effects_rejected",
        "src/.env": "denied",
    }
    assert [one for one in stages if one[0] == "after"] == [("after", ".claude/settings.json")]
    assert ((ws / "a.txt").read_text(), (ws / "in").is_symlink()) == ("new in\n", True)
    assert (ws / "n/e/w").read_text() == "new n/e/w\n"
    assert not (tree.out / "new.txt").exists()
    assert not (ws / "src/.env").exists()
    assert not (ws / ".claude").exists()


async def test_a_workspace_that_was_moved_or_replaced_shows_nothing(
    boxes: Any, place: Path
) -> None:
    """By its name alone another folder would be taken for it, and be read."""
    (place / "ws/f").write_text("PLAIN")
    (place / "other").mkdir()
    (place / "other/f").write_text("BESIDE")
    (place / "other/g").write_text("BESIDE")
    async with boxes(place / "ws") as box:
        control = await box.call("read_file", {"path": "f"})
        (place / "ws").rename(place / "moved")
        gone = await box.call("read_file", {"path": "f"})
        (place / "ws").symlink_to("other")
        linked = await box.call("read_file", {"path": "g"})
        (place / "ws").unlink()
        (place / "other").rename(place / "ws")
        replaced = await box.call("read_file", {"path": f"{place}/ws/g"})
    assert control.output == "PLAIN"
    for result in (gone, linked, replaced):
        assert kind(result) in ("confinement_failed", "denied"), result.content
        assert "BESIDE" not in json.dumps(result.to_json())
    assert kind(replaced) == "confinement_failed"


# ---------------------------------------------------------------- races


@pytest.fixture
def arena(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.chdir(place)  # a race changes the folder: undone with this
    return f"{place}/ws", f"{place}/beside"


def test_a_link_that_is_swapped_between_check_and_use_leads_nowhere_else(
    arena: tuple[str, str],
) -> None:
    """Judged inside, opened outside: a moment is all it takes, and a loop makes many."""
    told = path_races.raced(*arena, 1_000, 7)
    assert told["wrong"] == []
    assert told["checks"] == told["denied"] + told["done"] + told["refused"] == 1_000
    # The race was one: paths were judged both ways, and what was let through did work.
    assert min(told["denied"], told["done"]) > 10, told


def test_nor_does_a_path_that_is_written_in_another_way(arena: tuple[str, str]) -> None:
    """`./f` and `f/` are `f` by the time a tool has its `Path`: what was decided must be found."""
    told = path_races.raced(*arena, 1_000, 8, path_races.ODD)
    assert told["wrong"] == []
    assert told["done"] > 10, told


def test_who_checks_and_opens_the_name_again_is_led_outside(arena: tuple[str, str]) -> None:
    """The control: without it, a race that never happens would pass for one that is won."""
    told = path_races.raced(*arena, 50_000, 9, naive=True)
    assert {found.split()[0] for found in told["wrong"]} == {"read", "write"}


async def test_nor_is_a_swapped_path_followed_in_a_jail(boxes: Any, place: Path) -> None:
    """The same code on the jail's own layer, where whoever swaps is a tool."""
    ws = str(place / "ws")
    async with boxes(place / "ws") as box:
        result = await box.call("python", {"code": path_races.program(ws, 1_000, 11)})
    assert result.success, result.content
    plain, odd, naive = result.output["value"]
    for told in (plain, odd):
        assert told["wrong"] == []
        assert min(told["denied"], told["done"]) > 10, told
    assert naive["wrong"]
    assert os.listdir(ws) == []


async def test_nor_does_a_call_tell_what_was_swapped_in_on_the_host(
    boxes: Any, place: Path
) -> None:
    """From the decision to the opening in a jail there is time for many swaps."""
    ground = path_races.Ground(str(place / "ws"), str(place / "beside"))
    ends = []
    async with boxes(place / "ws") as box:
        await box.call("read_file", {"path": "real"})
        with ground.swapping():
            for path in ("link", "room/f", "plain", "way/f"):
                result = await box.call("read_file", {"path": path})
                assert not TELLTALE.search(json.dumps(result.to_json())), result.content
                ends.append(kind(result))
        (place / "ws/still").symlink_to("real")
        control = await box.call("read_file", {"path": "still"})
    assert set(ends) <= {None, "denied", "tool_error", "confinement_failed"}, ends
    assert control.output == "INSIDE"
