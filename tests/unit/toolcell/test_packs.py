"""Packs: what comes out of the describing jail is believed in nothing."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolcell import packs
from toolcell.schema import Validated, validate
from toolcell.tools import HandlerRef
from toolcell_policies.vocabulary import Priority
from toolcell_sandbox.failures import Timeout
from toolcell_sandbox.spec import JailSpec, PythonHandler

CONTENT = b"x = 1\n"
GOOD: dict[str, Any] = {
    "name": "greet",
    "description": "Greet.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    "access_mode": "readonly",
    "danger_level": "safe",
    "aliases": ["hi"],
    "path_params": {"path": "read"},
    "qualname": "greet",
    "limits": None,
    "timeout_s": None,
}


@dataclass
class Outcome:
    value: Any = None
    failure: Any = None


class FakeJail:
    """Stands for `run_in_jail`: remembers what it was asked, answers what it was told."""

    def __init__(self, value: Any = None, failure: Any = None) -> None:
        self.outcome = Outcome(value, failure)
        self.asked: list[tuple[PythonHandler, JailSpec]] = []

    async def __call__(self, handler: PythonHandler, spec: JailSpec) -> Outcome:
        self.asked.append((handler, spec))
        return self.outcome


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    file = tmp_path.resolve() / "my-pack.py"
    file.write_bytes(CONTENT)
    return file


async def test_a_packs_tool_is_bound_to_the_files_content(pack: Path) -> None:
    """Otherwise the file could change between its description and its run."""
    jail = FakeJail([GOOD])
    (made,) = await packs.load_pack(pack, run=jail)
    digest = hashlib.sha256(CONTENT).hexdigest()
    path = str(pack)
    assert made.handler == HandlerRef("toolcell_pack_my_pack", "greet", path, digest)
    handler, spec = jail.asked[0]
    assert (handler.file, handler.digest, handler.qualname) == (path, digest, "")
    assert handler.adapter == "toolcell._worker:describe_pack"
    assert (spec.workspace, spec.network.kind) == (None, "none")
    assert not any(mount.writable for mount in spec.mounts)


async def test_a_pack_cannot_lower_its_own_level(pack: Path) -> None:
    """It says that it is readonly and safe; so would a thief."""
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, "level_floor": 0}]))
    assert made.level_floor == 3
    assert made.trusted is False
    assert isinstance(validate(made, {"path": "a"}), Validated)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a b"}, "cannot name a tool"),
        ({"name": 5}, "name is not text"),
        ({"name": "x" * 65}, "name is not text"),
        ({"description": None}, "description"),
        ({"description": "x" * 10_000}, "description"),
        ({"access_mode": "root"}, "root"),
        ({"danger_level": -1}, "danger_level"),
        ({"aliases": "hi"}, "aliases"),
        ({"aliases": [1]}, "aliases"),
        ({"aliases": ["a"] * 17}, "aliases"),
        ({"aliases": ["a", "a"]}, "twice"),
        ({"path_params": {"nope": "read"}}, "path_params"),
        ({"path_params": {"path": "delete"}}, "path_params"),
        ({"path_params": {"path": []}}, "path_params"),
        ({"qualname": "os.system"}, "top level"),
        ({"qualname": ""}, "top level"),
        ({"limits": {"evil": 1}}, "limits"),
        ({"limits": 5}, "limits"),
        ({"limits": {"wall_s": -1}}, "wall_s"),
        ({"timeout_s": "1"}, "timeout_s"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"input_schema": {"type": "object", "properties": {"x": {"$ref": "#"}}}}, "ref"),
        ({"output_schema": {"$ref": "http://elsewhere/x"}}, "ref"),
        ({"output_schema": 5}, "output schema is a JSON object"),
        ({"keywords": "one"}, "keywords are not"),
        ({"keywords": ["k"] * 65}, "keywords are not"),
        ({"stages": ["s" * 201]}, "stages are not"),
        ({"examples": [5]}, "examples are not"),
        ({"priority": True}, "priority is not"),
        ({"priority": 9}, "9"),
        ({"cost_tier": "gratis"}, "gratis"),
        ({"permission_tier": 9}, "permission_tier"),
        ({"execution_category": "root"}, "root"),
        ({"category": 5}, "category is not text"),
        ({"phases": ["nowhere"]}, "no phase"),
        ({"phases": ["editing", "nowhere"]}, "no phase"),
        ({"phases": ["investigating"], "access_mode": "execute"}, "no phase"),
    ],
)
async def test_a_hostile_description_is_one_line_of_error(
    pack: Path, change: dict[str, Any], words: str
) -> None:
    """A traceback, or worse a tool, is what it hopes for."""
    with pytest.raises(packs.PackError, match=words) as caught:
        await packs.load_pack(pack, run=FakeJail([{**GOOD, **change}]))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not a list"),
        ({}, "not a list"),
        ([], "no tool at the top level"),
        ([5], "not an object"),
        ([GOOD] * 201, "more than 200"),
        ([GOOD, GOOD], "greet is used by greet"),
        ([GOOD, {**GOOD, "name": "other"}], "hi is used by greet and by other"),
    ],
)
async def test_a_hostile_answer_is_one_line_of_error(pack: Path, value: Any, words: str) -> None:
    """The answer comes from code that nobody trusts."""
    with pytest.raises(packs.PackError, match=words):
        await packs.load_pack(pack, run=FakeJail(value))


async def test_a_pack_that_hangs_or_fails_is_one_line_of_error(pack: Path) -> None:
    """Its message may hold escape codes for the terminal."""
    failure = Timeout(message="took\ntoo \x1b[31mlong", limit_s=1, elapsed_s=1)
    with pytest.raises(packs.PackError, match="could not be described: took too") as caught:
        await packs.load_pack(pack, run=FakeJail(failure=failure))
    assert str(caught.value).isprintable()


async def test_what_is_no_python_file_never_reaches_a_jail(tmp_path: Path) -> None:
    """A FIFO would block, /dev/zero never ends."""
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "text.txt").touch()
    (tmp_path / "large.py").write_bytes(b"#" * (packs.FILE_BYTES_MAX + 1))
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    for name in ("fifo.py", "text.txt", "large.py", "zero.py", "missing.py", ".", "nul\0.py"):
        jail = FakeJail([GOOD])
        with pytest.raises(packs.PackError):
            await packs.load_pack(f"{tmp_path}/{name}", run=jail)
        assert not jail.asked


WORDS: dict[str, Any] = {
    "keywords": ["k"], "stages": ["s"], "priority": 2, "cost_tier": "high", "category": "c",
    "execution_category": "compute", "is_idempotent": True, "fills_defaults": True,
    "takes_context": True, "has_metadata": True, "permission_tier": 1, "phases": ["editing"],
    "output_schema": {"type": "integer"},
}  # fmt: skip


async def test_a_packs_words_about_its_selection_are_data(pack: Path) -> None:
    """Without them a pack's tools would rank behind all others, whatever is asked for."""
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, **WORDS}]))
    for name, value in WORDS.items():
        assert getattr(made, name) == (tuple(value) if isinstance(value, list) else value), name


async def test_a_packs_words_that_would_lower_a_guard_are_not_heard(pack: Path) -> None:
    """Its network is the executor's, its rules are by its name, and what it runs is in a jail."""
    said = {
        "network": "host", "permission_action": "edit", "escalation": True, "trusted": True,
        "in_jail": ["x"], "has_paths": True, "has_availability_check": 1, "content_bytes": 1 << 40,
    }  # fmt: skip
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, **said}]))
    assert (made.network, made.action, made.escalation) == (None, "greet", False)
    assert (made.trusted, made.content_bytes) == (False, None)
    assert (made.paths, made.availability_check) == (None, None)
    assert made.in_jail == {"paths"}
    forcing = {"priority": 1, "mandatory_keywords": ["the"], "keywords": ["k", "the"]}
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, **forcing}]))
    assert (made.priority, made.mandatory_keywords) == (Priority.HIGH, ())
    assert made.keywords == ("the", "k")
    wider = {"phases": ["investigating", "editing"], "access_mode": "write"}
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, **wider}]))
    assert made.phases == ("editing",)


@pytest.mark.parametrize(
    ("what", "answer", "found"),
    [
        ("availability_check", True, True),
        ("availability_check", 1, False),
        ("paths", ["a"], ("a",)),
        ("to_model_output", {"x": 1}, {"x": 1}),
    ],
)
async def test_what_a_pack_answers_about_itself_is_asked_in_a_bare_jail(
    pack: Path, what: str, answer: Any, found: Any
) -> None:
    """Asked here it would run as us; with a workspace, on what was not decided yet."""
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, f"has_{what}": True}]))
    jail = FakeJail(answer)
    assert await packs.ask_pack(made, what, {"x": 1}, run=jail) == found
    handler, spec = jail.asked[0]
    assert (handler.digest, handler.qualname) == (hashlib.sha256(CONTENT).hexdigest(), "greet")
    assert (spec.workspace, spec.network.kind, spec.limits.wall_s) == (None, "none", 10)
    assert not any(mount.writable for mount in spec.mounts)


@pytest.mark.parametrize("answer", [None, "a", [5], [""], ["a\0"], ["a"] * 1_001])
async def test_paths_that_a_pack_makes_up_are_refused(pack: Path, answer: Any) -> None:
    """The gate must not be handed what is no path."""
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, "has_paths": True}]))
    with pytest.raises(packs.PackError):
        await packs.ask_pack(made, "paths", {}, run=FakeJail(answer))


async def test_a_pack_that_cannot_answer_is_an_error_of_one_line(pack: Path) -> None:
    """Its message is untrusted, and shown."""
    (made,) = await packs.load_pack(pack, run=FakeJail([{**GOOD, "has_paths": True}]))
    failed = FakeJail(failure=Timeout(message="too\nlate", limit_s=1, elapsed_s=2))
    with pytest.raises(packs.PackError, match="too late"):
        await packs.ask_pack(made, "paths", {}, run=failed)
    with pytest.raises(ValueError, match="no to_model_output"):
        await packs.ask_pack(made, "to_model_output", 1, run=failed)
