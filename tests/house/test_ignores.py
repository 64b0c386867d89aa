"""Each type-ignore and lint-ignore has a code and a reason: `# noqa: BLE001 - why it may`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IGNORE = re.compile(r"(?:type:\s*ignore|(?:ruff:\s*)?noqa|pyright:\s*ignore)\b", re.IGNORECASE)
CODED = re.compile(
    r"type:\s*ignore\[[a-z0-9, -]+\]|(?:ruff:\s*)?noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*",
    re.IGNORECASE,
)


def unexplained(source: str) -> Iterator[int]:
    """The line numbers of ignores that lack a code or a reason. Strings do not count.

    The reason follows the code in the same comment, after a dash or in a comment of its own.
    """
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        parts = [part.strip() for part in token.string.split("#")[1:]]
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            if not IGNORE.match(part):
                continue
            coded = CODED.match(part)
            reason = part[coded.end() :] if coded else ""
            if not IGNORE.match(following):
                reason += following
            if coded is None or not re.search(r"\w\w", reason):
                yield token.start[0]


def test_every_ignore_has_a_code_and_a_reason() -> None:
    """An ignore without a reason outlives the reason."""
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for root in ("executor", "policies", "sandbox", "tests")
        for file in sorted((ROOT / root).rglob("*.py"))
        for line in unexplained(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("x = f()  # type: ignore[arg-type]  # the stub lacks None", True),
        ("x = f()  # type: ignore[arg-type, misc] the stub lacks None", True),
        ("x = f()  # noqa: BLE001 - every path of a forked child ends here", True),
        ("x = f()  # noqa: BLE001, B036  # why", True),
        ("x = f()  # type: ignore[misc]  # why  # noqa: E501 - a URL", True),
        ("x = '# type: ignore'", True),
        ("x = f()  # nothing is ignored here", True),
        ("x = f()  # type: ignore", False),
        ("x = f()  # type: ignore  # why", False),
        ("x = f()  # type: ignore[arg-type]", False),
        ("x = f()  # noqa", False),
        ("x = f()  # noqa: BLE001", False),
        ("x = f()  # type: ignore[misc]  # noqa: E501 - a URL", False),
    ],
)
def test_an_unexplained_ignore_is_seen(line: str, fine: bool) -> None:
    """The check above must itself be able to fail."""
    assert list(unexplained(line + "\n")) == ([] if fine else [1])
