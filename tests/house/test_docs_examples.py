"""The examples of the README and of docs/ do what the page says.

Two kinds of comment mark an example, and readers see neither:

    <!-- example NAME/FILE -->      the block that follows is FILE of the example NAME
    <!-- example NAME prints -->    the block that follows is what `python main.py` prints there

A comment may also hold the text itself, from its second line on, where a reader has no use for it.
`…` in what is printed stands for anything within a line. Any other Python block has to compile.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
GUIDES = (
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    ROOT / "docs" / "handler-context.md",
    ROOT / "docs" / "settlement.md",
)
DRIVER = Path(__file__).with_name("run_examples.py")

MARK = re.compile(
    r"^<!-- example (?P<name>[\w-]+)(?:/(?P<file>\S+)| (?P<prints>prints))"
    r"(?: -->\n\n?```\w*\n(?P<shown>.*?)^```$|\n(?P<hidden>.*?)^-->$)",
    re.MULTILINE | re.DOTALL,
)
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    """One program of a page: its files, and what it prints."""

    files: dict[str, str] = field(default_factory=dict)
    prints: str | None = None


def examples_of(text: str) -> dict[str, Example]:
    """The marked examples of a page, by name."""
    found: dict[str, Example] = {}
    for mark in MARK.finditer(text):
        example = found.setdefault(mark["name"], Example())
        body = mark["shown"] if mark["shown"] is not None else mark["hidden"]
        if mark["prints"]:
            example.prints = body
        else:
            example.files[mark["file"]] = body
    return found


def mismatches(text: str) -> Iterator[str]:
    """Each mark that marks nothing, and each example that cannot be run or tells nothing."""
    said = sum(line.lstrip().startswith("<!-- example") for line in text.splitlines())
    understood = sum(1 for _ in MARK.finditer(text))
    if said != understood:
        yield f"{said} marks, of which {understood} are followed by a block"
    for name, example in examples_of(text).items():
        if "main.py" not in example.files:
            yield f"{name} has no main.py"
        if example.prints is None:
            yield f"{name} says nothing about what it prints"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


EXAMPLES = {
    f"{name_of(page)}:{name}": example
    for page in PAGES
    for name, example in examples_of(page.read_text(encoding="utf-8")).items()
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each example printed, all of them run by one process that forks for each."""
    folder = tmp_path_factory.mktemp("examples")
    places = {}
    for number, (key, example) in enumerate(EXAMPLES.items()):
        places[key] = str(folder / str(number))
        for name, text in example.files.items():
            file = folder / str(number) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCELL_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DRIVER), str(folder / "state")],
        input=json.dumps(places),
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def as_pattern(prints: str) -> str:
    """What was promised, as a pattern for all that is printed."""
    return "[^\n]*".join(re.escape(piece) for piece in prints.split("…"))


@pytest.mark.parametrize("key", EXAMPLES)
def test_an_example_prints_what_its_page_says(key: str, printed: dict[str, str]) -> None:
    """Otherwise somebody's first try of toolcell fails, on our own word."""
    prints = EXAMPLES[key].prints
    assert prints is not None
    if re.fullmatch(as_pattern(prints), printed[key]) is None:
        assert printed[key] == prints


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_mark_of_a_page_marks_an_example(page: Path) -> None:
    """A mark with a slip in it would leave its example unrun, and nobody would notice."""
    assert list(mismatches(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_is_python(page: Path) -> None:
    """What does not even compile was never tried by whoever wrote it."""
    for number, (_, block) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        compile(block, f"{name_of(page)}#{number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_block_of_a_guide_runs(page: Path) -> None:
    """A guide whose example is not marked is one that nobody has seen work."""
    text = page.read_text(encoding="utf-8")
    run = {example for each in examples_of(text).values() for example in each.files.values()}
    blocks = [block for _, block in BLOCK.findall(text)]
    assert blocks
    assert [block for block in blocks if block not in run] == []


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        (
            "<!-- example a/main.py -->\n```python\nx\n```\n<!-- example a prints\nx\n-->\n",
            [],
        ),
        ("<!-- example a/main.py -->\n\ntext\n", ["1 marks, of which 0 are followed by a block"]),
        (
            "<!-- example a/b.py -->\n```python\nx\n```\n",
            ["a has no main.py", "a says nothing about what it prints"],
        ),
    ],
)
def test_a_mark_that_marks_nothing_is_seen(text: str, complaints: list[str]) -> None:
    """The check above must itself be able to fail."""
    assert list(mismatches(text)) == complaints


@pytest.mark.parametrize(
    ("promised", "shown", "same"),
    [("a … c\n", "a b c\n", True), ("a … c\n", "a\nc\n", False), ("a.c\n", "abc\n", False)],
)
def test_a_dot_dot_dot_stands_for_a_part_of_one_line(promised: str, shown: str, same: bool) -> None:
    """Otherwise an example could print anything at all and be called right."""
    assert (re.fullmatch(as_pattern(promised), shown) is not None) == same
