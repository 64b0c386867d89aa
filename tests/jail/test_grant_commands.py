"""`toolcell grants` and `toolcell trust`: what was agreed to for longer, seen and taken back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell._exits import Refused
from toolcell._grant_commands import GRANTS, trust
from toolcell.grants import Grant, Grants

TOOLCELL = [sys.executable, "-c", "import sys; from toolcell.cli import main; sys.exit(main())"]
PATIENCE_S = 60.0

POLICY = """
[[rule]]
id = "docs-by-hand"
outcome = "deny"
tool = "write_file"
when = { path = ["docs/**"] }
reason = "a person writes the documentation"
match = ["docs/guide.md"]
not_match = ["src/docs.py"]

[[rule]]
id = "sources"
outcome = "allow"
tool = "write_file"
when = { path = ["src/**"] }
match = ["src/a.py"]
not_match = ["docs/a.py"]
"""

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def toolcell(tmp_path: Path, state: Path) -> Run:
    """Runs `toolcell WORDS` in a folder of the test's own."""
    (tmp_path / "ws").mkdir()

    def run(*words: str) -> Done:
        return subprocess.run(
            [*TOOLCELL, *words],
            cwd=tmp_path / "ws",
            env={**os.environ, "TOOLCELL_STATE_DIR": str(state)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run


def given(state: Path, number: int, **more: Any) -> Grant:
    told: dict[str, Any] = {
        "scope": "project",
        "session": "s",
        "mode": "build",
        "tool_name": "write_file",
        "shape": f"every call of write_file, number {number}\n\x1b[2Jmore",
        "workspace": "/ws",
        "agent_id": None,
        "now": time.time(),
    }
    with Grants.open(state) as grants:
        return grants.add(f"{number:064x}", **(told | more))


def left(state: Path) -> list[str]:
    with Grants.open(state) as grants:
        return [one.id for one in grants.list(time.time())]


def refused(done: Done) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def test_grants_are_listed_and_what_a_tool_said_is_escaped(toolcell: Run, state: Path) -> None:
    """Who cannot see what was agreed to cannot take it back; and a name must not draw on it."""
    empty = toolcell("grants", "list")
    assert (empty.returncode, empty.stderr) == (0, "")
    assert empty.stdout == "nothing is remembered: whatever needs a person is asked\n"
    one = given(state, 1)
    two = given(state, 2, scope="session", tool_name="evil\x1b]0;", agent_id="a1")
    given(state, 3, now=time.time() - 40 * 86_400)
    table = toolcell("grants", "list")
    assert table.stdout.isprintable() or "\x1b" not in table.stdout
    head, first, second = table.stdout.splitlines()
    assert head.split() == ["id", "scope", "tool", "mode", "expires", "workspace", "what"]
    assert first.startswith(f"{one.id}  project")
    assert first.endswith("every call of write_file, number 1")
    assert re.search(r"  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  /ws  ", first)
    assert second.startswith(f"{two.id}  session, agent a1  evil\\x1b]0;")
    told = json.loads(toolcell("grants", "list", "--json").stdout)
    assert told["schema"] == 1
    assert [grant["id"] for grant in told["grants"]] == [one.id, two.id]
    assert told["grants"][0]["shape"] == one.shape
    assert told["grants"][0]["created"].endswith("Z")


def test_a_grant_is_revoked_by_id_by_workspace_or_with_all_others(
    toolcell: Run, state: Path, tmp_path: Path
) -> None:
    """What a person takes back is taken back, and nothing beside it."""
    here, link = tmp_path / "ws", tmp_path / "link"
    link.symlink_to(here)
    ids = [given(state, 1).id]
    ids += [given(state, 2, workspace=f"{here}-evil").id]
    ids += [given(state, number, workspace=str(here)).id for number in (3, 4)]
    done = toolcell("grants", "revoke", ids[0])
    assert (done.returncode, done.stdout, left(state)) == (0, "revoked 1 grant\n", ids[1:])
    assert "toolcell grants list" in refused(toolcell("grants", "revoke", ids[0]))
    done = toolcell("grants", "revoke", "--workspace", str(link), "--json")
    assert json.loads(done.stdout) == {"schema": 1, "revoked": 2}
    assert left(state) == [ids[1]]
    assert toolcell("grants", "revoke", "--all").stdout == "revoked 1 grant\n"
    assert left(state) == []
    done = toolcell("grants", "revoke", "--all")
    assert (done.returncode, done.stdout) == (0, "there was nothing to revoke\n")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"grant": ""},
        {"grant": "all"},
        {"grant": "/ws"},
        {"grant": "ffffffff"},
        {"grant": "1234"},
        {"grant": "\udcff"},
        {"grant": "ffffffff", "every": True},
        {"every": True, "workspace": "/ws"},
        {"workspace": ""},
        {"workspace": "\0"},
    ],
    ids=repr,
)
async def test_what_names_no_grant_revokes_none_and_says_what_to_do(
    state: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """A person who mistypes must not think that a yes was taken back, or lose all of them."""
    monkeypatch.setenv("TOOLCELL_STATE_DIR", str(state))
    one = given(state, 1)
    words = dict(said)
    with pytest.raises(Refused, match=r"grants list|name a folder|no path") as raised:
        await GRANTS["revoke"](*([words.pop("grant")] if "grant" in words else []), **words)
    assert raised.value.code == 2
    assert left(state) == [one.id]


def test_a_store_that_was_set_aside_is_named(toolcell: Run, state: Path) -> None:
    """Otherwise a person sees an empty list, and no reason."""
    given(state, 1)
    (state / "grants.sqlite").write_bytes(b"garbage")
    done = toolcell("grants", "list")
    assert done.stdout.startswith("nothing is remembered")
    assert "set aside" in done.stderr
    (aside,) = state.glob("grants.sqlite.damaged-*Z")
    assert str(aside) in done.stderr
    state.chmod(0o777)
    assert "chmod 700" in refused(toolcell("grants", "list"))


# -- trust --------------------------------------------------------------------------------


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def trusted(state: Path) -> frozenset[str]:
    with Grants.open(state) as grants:
        return grants.trusted_digests()


def test_trust_is_given_to_the_content_that_was_shown_and_taken_back(
    toolcell: Run, state: Path, tmp_path: Path
) -> None:
    """Otherwise a repository could loosen its own rules after a person looked at them."""
    file = tmp_path / "ws" / "policy.toml"
    file.write_text(POLICY)
    first = digest_of(file)
    empty = toolcell("trust", "--list")
    assert (empty.returncode, empty.stderr) == (0, "")
    assert empty.stdout.startswith("no policy file is trusted")
    done = toolcell("trust", "policy.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(file) in done.stdout
    assert f"sha256 {first}" in done.stdout
    assert "a policy file with 2 rules (1 allow, 1 deny)" in done.stdout
    assert "may now loosen: sources (policy.toml:11)" in done.stdout
    assert trusted(state) == {first}
    file.write_text(POLICY + "# changed\n")
    assert trusted(state) == {first} != {digest_of(file)}
    told = json.loads(toolcell("trust", "policy.toml", "--json").stdout)
    assert told["schema"] == 1
    assert (told["digest"], told["path"]) == (digest_of(file), str(file))
    assert (told["kind"], told["rules"], told["extends"]) == (
        "policy",
        {"allow": 1, "deny": 1},
        None,
    )
    listed = toolcell("trust", "--list")
    assert listed.stdout.count(str(file)) == 2
    told = json.loads(toolcell("trust", "--list", "--json").stdout)
    assert {one["digest"] for one in told["trusted"]} == {first, digest_of(file)}
    # By path: every content that was trusted there.
    done = toolcell("trust", "policy.toml", "--revoke")
    assert (done.returncode, trusted(state)) == (0, frozenset())
    assert "toolcell trust --list" in refused(toolcell("trust", "policy.toml", "--revoke"))


@pytest.fixture
def inside(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this process is in: a command that runs here starts no interpreter."""
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOOLCELL_STATE_DIR", str(state))
    return folder


@pytest.mark.parametrize("way", ["moved", "digest", "gone"])
async def test_trust_is_taken_back_from_a_file_that_was_moved_or_is_gone(
    inside: Path, state: Path, way: str
) -> None:
    """Otherwise whoever moves a file keeps its trust for ever."""
    file = inside / "policy.toml"
    file.write_text(POLICY)
    assert await trust("policy.toml") == 0
    word = {"moved": "other.toml", "digest": digest_of(file), "gone": "policy.toml"}[way]
    if way == "moved":
        file.rename("other.toml")
    if way == "gone":
        file.unlink()
    assert len(trusted(state)) == 1
    assert await trust(word, revoke=True) == 0
    assert trusted(state) == frozenset()


async def test_what_is_no_policy_file_of_its_own_is_not_trusted(inside: Path, state: Path) -> None:
    """A link leads elsewhere the next time, and a FIFO hangs."""
    (inside / "good.toml").write_text(POLICY)
    (inside / "link.toml").symlink_to("good.toml")
    os.mkfifo(inside / "fifo.toml")
    (inside / "bytes.toml").write_bytes(b'x = "\xff"')
    (inside / "huge.toml").write_bytes(b"#" * (8 << 20))
    expected = {
        "": "name a policy file",
        "missing.toml": "cannot be read",
        "link.toml": "is a link",
        "fifo.toml": "no regular file",
        ".": "cannot be read",
        "bytes.toml": "not UTF-8",
        "huge.toml": "larger than",
    }
    for name, words in expected.items():
        with pytest.raises(Refused, match=words) as raised:
            await trust(name)
        assert raised.value.code == 2
    with pytest.raises(Refused, match="stands alone"):
        await trust("good.toml", listed=True)
    assert trusted(state) == frozenset()
    assert await trust("good.toml") == 0
    assert trusted(state) == {digest_of(inside / "good.toml")}
    assert stat.S_IMODE((state / "grants.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[[rule]]\nid = "a"\noutcome = "alow"\n', "3"),
        ('waive = ["net_blocked"]\n', "1"),
        (POLICY.replace('["src/a.py"]', '["lib/a.py"]'), "16"),
    ],
    ids=["a_word_that_is_none", "a_waiver", "an_example_that_fails"],
)
async def test_what_the_parser_refuses_is_not_trusted_and_its_words_are_shown(
    inside: Path, state: Path, capfd: pytest.CaptureFixture[str], text: str, where: str
) -> None:
    """A file that means something else than it says would be trusted for what it says."""
    (inside / "policy.toml").write_text(text)
    assert await trust("policy.toml") == 2
    out, err = capfd.readouterr()
    first, *more = err.splitlines()
    assert out == ""
    assert first.startswith(f"toolcell: not trusted: policy.toml:{where}:")
    assert "^" in more[-1]
    assert trusted(state) == frozenset()
