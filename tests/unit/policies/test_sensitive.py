"""The list of sensitive paths: complete, exact, and the same however a name is written."""

import time
import tomllib
from importlib.resources import files
from typing import Any

import pytest

from toolcell_policies import (
    Protection,
    Role,
    SensitiveList,
    SensitiveRule,
    default_sensitive_list,
    parse_sensitive_list,
)
from toolcell_policies._patterns import compile_patterns, expand_braces

HOME = "/home/me"
TEXT = (files("toolcell_policies") / "sensitive_paths.toml").read_text(encoding="utf-8")
ROWS: list[dict[str, Any]] = tomllib.loads(TEXT)["rule"]
LIST = default_sensitive_list()


def matched(path: str, role: Role, homes: tuple[str, ...] = (HOME,)) -> set[str]:
    return {rule.id for rule in LIST.match(path, role=role, homes=homes)}


def roles_of(row: dict[str, Any]) -> list[Role]:
    roles: list[Role] = ["read", "write"]
    kinds = [Protection(kind) for kind in row["kinds"]]
    return [role for role in roles if any(kind.speaks_about(role) for kind in kinds)]


def at_home(path: str) -> str:
    return path.replace("~", HOME, 1) if path.startswith("~") else path


def examples(key: str) -> list[Any]:
    return [
        pytest.param(row, at_home(path), id=f"{row['id']}-{path}")
        for row in ROWS
        for path in row[key]
    ]


@pytest.mark.parametrize(("row", "path"), examples("match"))
def test_a_sensitive_path_is_matched_by_its_row(row: dict[str, Any], path: str) -> None:
    """A row that does not match what it was written for protects nothing."""
    for role in roles_of(row):
        assert row["id"] in matched(path, role)


@pytest.mark.parametrize(("row", "path"), examples("not_match"))
def test_a_near_miss_is_not_matched(row: dict[str, Any], path: str) -> None:
    """A fence that falls on honest work is a fence that gets switched off."""
    for role in roles_of(row):
        assert row["id"] not in matched(path, role)


ALTERNATIVES = [
    pytest.param(row, alternative, id=f"{row['id']}-{alternative}")
    for row in ROWS
    for pattern in row["patterns"]
    for alternative in expand_braces(pattern)
]


@pytest.mark.parametrize(("row", "alternative"), ALTERNATIVES)
def test_every_alternative_of_a_pattern_has_an_example(
    row: dict[str, Any], alternative: str
) -> None:
    """A misspelt name among thirty good ones would never be noticed."""
    patterns = compile_patterns(alternative, below=row.get("below", True))
    rule = SensitiveRule(
        id="one", category="c", kinds=frozenset({Protection.RW}), patterns=patterns
    )
    alone = SensitiveList(rules=(rule,))
    assert any(alone.match(at_home(path), role="read", homes=(HOME,)) for path in row["match"])


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_row_says_where_it_is_written_and_has_both_kinds_of_example(
    row: dict[str, Any],
) -> None:
    """A refusal that cannot be looked up cannot be argued with."""
    (rule,) = (rule for rule in LIST.rules if rule.id == row["id"])
    file, _, line = (rule.source or "").partition(":")
    assert file == "sensitive_paths.toml"
    assert TEXT.splitlines()[int(line) - 1] == f'id = "{row["id"]}"'
    assert row["match"]
    assert row["not_match"]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "RW" in row["kinds"]], ids=lambda r: r["id"]
)
def test_what_is_protected_is_protected_with_all_below_it(row: dict[str, Any]) -> None:
    """`list_directory ~/.ssh` and `write_file .env/x` are the same harm by another name."""
    for path in row["match"]:
        below = at_home(path) + "/any/thing"
        assert row["id"] in matched(below, "read")
        assert row["id"] in matched(below, "write")


@pytest.mark.parametrize(
    "written",
    [
        ".ENV",
        ".Env",
        "\uff0eenv",
        ".\uff45\uff4e\uff56",
        ".e\u200bnv",
        ".env\ufe0f",
        ".\u2060env",
        ".env.",
        ".env ",
        ".env. .",
        "\uff0e\uff25\uff2e\uff36\uff0e",
        ".env/",
        ".env//",
        "./.env/.",
    ],
)
def test_case_37_a_name_written_in_another_way_is_still_the_name(written: str) -> None:
    """Some file system folds case or width, or drops the dot, and opens the secret."""
    assert "env.files" in matched(f"/srv/{written}", "read")


@pytest.mark.parametrize(
    "written",
    [
        ".cUrSor/mcp.json",
        ".CURSOR",
        ".cursor./mcp.json",
        ".cur\u017for/rules",
        "\uff0ecursor/mcp.json",
    ],
)
def test_case_37_a_control_file_in_another_case_is_still_one(written: str) -> None:
    """CVE-2025-59944: `.cUrSor/mcp.json` was written without a question."""
    assert "agents.control" in matched(f"/srv/{written}", "write")


@pytest.mark.parametrize("written", ["e\u0301", "\u00e9"])
@pytest.mark.parametrize("home", ["/home/Ren\u00e9", "/home/Rene\u0301"])
def test_case_37_a_home_in_either_normal_form_is_the_same_home(written: str, home: str) -> None:
    """macOS stores the one what was typed as the other."""
    assert "ssh.home" in matched(f"/home/Ren{written}/.ssh/config", "read", (home,))


@pytest.mark.parametrize(
    "written", [".env.\uff45xample", ".env.exam\u200bple", ".env.example\ufe0f", ".env.example."]
)
def test_an_exception_has_to_hold_in_every_form(written: str) -> None:
    """A wide letter makes it the sample file only for a reader that folds widths."""
    assert "env.files" in matched(f"/srv/{written}", "read")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/srv/.env.example", False),
        ("/srv/.env.example/notes", False),
        ("/srv/.env/.env.example", True),
        ("/srv/.env.local/.env.sample", True),
        ("/srv/.env.example/.env", True),
    ],
)
def test_an_exception_excuses_its_own_name_only(path: str, expected: bool) -> None:
    """Otherwise a sample beside the secret would open the folder."""
    assert ("env.files" in matched(path, "read")) is expected


def test_known_hosts_is_read_and_never_written() -> None:
    """A written known_hosts lets somebody else answer for a host."""
    assert "ssh.home" not in matched(f"{HOME}/.ssh/known_hosts", "read")
    assert "ssh.home" in matched(f"{HOME}/.ssh/known_hosts", "write")
    assert "ssh.home" in matched(f"{HOME}/.ssh/known_hosts2", "read")
    assert "ssh.home" in matched(f"{HOME}/.ssh/x/known_hosts", "read")


def test_every_home_counts_and_only_homes() -> None:
    """A root supervisor has more than one home to lose."""
    homes = ("/root", HOME, "relative", "")
    assert "ssh.home" in matched("/root/.ssh/id", "read", homes)
    assert "ssh.home" in matched(f"{HOME}/.ssh/id", "read", homes)
    assert "ssh.home" not in matched("/home/.ssh/id", "read", homes)
    assert "ssh.home" not in matched(f"{HOME}2/.ssh/id", "read", homes)
    assert "ssh.home" not in matched("relative/.ssh/id", "read", homes)


def test_a_list_with_paths_of_the_executor_protects_them() -> None:
    """Who can write the grants grants himself everything."""
    more = LIST.with_paths(["/srv/State", "/srv/a*b{c}"], id="own", category="ours")
    for path in ("/srv/state", "/srv/STATE/grants.db", "/srv/a*b{c}/x"):
        assert [rule.id for rule in more.match(path, role="read", homes=())] == ["own"]
    for path in ("/srv/state2", "/srv", "/srv/axbc", "/srv/a*bc", "/x/srv/state"):
        assert more.match(path, role="read", homes=()) == ()
    assert LIST.match("/srv/state", role="read", homes=()) == ()


def test_a_sealed_path_is_read_and_not_written() -> None:
    """A jail that writes the interpreter it runs from runs the next call."""
    more = LIST.with_paths(
        ["/srv/venv"], id="python", category="interpreter", kind=Protection.SEALED
    )
    (rule,) = more.match("/srv/venv/bin/python", role="write", homes=())
    assert rule.forbids("write")
    assert not rule.forbids("read")
    assert more.match("/srv/venv/bin/python", role="read", homes=()) == ()


@pytest.mark.parametrize("path", ["relative", "", "/", "//", "/./"])
def test_a_path_that_protects_nothing_or_everything_is_refused(path: str) -> None:
    """A state folder of "" would protect every call to death."""
    with pytest.raises(ValueError, match=r"absolute|root"):
        LIST.with_paths([path], id="own", category="ours")


def test_an_id_is_used_once() -> None:
    """A reason that names a rule has to name one rule."""
    with pytest.raises(ValueError, match="same id"):
        LIST.with_paths(["/srv/x"], id="env.files", category="ours")


@pytest.mark.parametrize(
    "text",
    [
        "[[rule",
        '[[rule]]\nid = "a"\n',
        '[[rule]]\ncategory = "c"\nkinds = ["RW"]\npatterns = ["a"]\n',
        '[[rule]]\nid = "a"\ncategory = "c"\nkinds = ["R"]\npatterns = ["a"]\n',
        '[[rule]]\nid = "a"\ncategory = "c"\nkinds = []\npatterns = ["a"]\n',
        '[[rule]]\nid = "a"\ncategory = "c"\nkinds = ["W"]\npatterns = []\n',
        '[[rule]]\nid = "a"\ncategory = "c"\nkinds = ["W"]\npatterns = ["**"]\n',
        '[[rule]]\nid = "a"\ncategory = "c"\nkinds = ["W"]\npatterns = ["a"]\nexcpet = ["b"]\n',
    ],
)
def test_a_list_that_cannot_be_read_whole_is_not_read_at_all(text: str) -> None:
    """A misspelt row that is skipped is a secret less, and nobody is told."""
    with pytest.raises(ValueError, match=r".+"):
        parse_sensitive_list(text)


def test_a_row_without_a_line_of_its_own_still_names_its_file() -> None:
    """An id written in another way must not cost the load."""
    row = 'rule = [{id = "a", category = "c", kinds = ["W"], patterns = ["a"]}]'
    (rule,) = parse_sensitive_list(row, file="mine.toml").rules
    assert rule.source == "mine.toml"


def test_the_default_list_is_loaded_once() -> None:
    """Compiling hundreds of patterns for each call would cost more than the call."""
    assert default_sensitive_list() is LIST
    assert SensitiveList(rules=()).match("/srv/.env", role="read", homes=()) == ()


def test_a_thousand_paths_are_matched_in_well_under_a_second() -> None:
    """A listing of a large folder asks about each name."""
    start = time.perf_counter()
    for number in range(1000):
        LIST.match(f"/srv/project/src/module{number}/file.py", role="read", homes=(HOME,))
    assert time.perf_counter() - start < 1
