"""What docs/policy-file.md shows is what is there."""

import re
from pathlib import Path

import pytest

from toolcell_policies import _rules_lint, _rules_parse
from toolcell_policies.rules import RuleSet, Scope, lint, parse_policy, run_examples

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "policy-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
TOOLS = ("read_file", "list_directory", "search", "write_file", "edit_file", "shell", "python")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_file_that_is_shown_can_be_used(number: int) -> None:
    """A first file copied from the page must not be an error."""
    policy = parse_policy(BLOCKS[number], file="policy.toml", scope=Scope.USER)
    results = run_examples(policy)
    assert len(results) >= 8
    assert all(one.holds for one in results)
    # The linter has nothing to say either.
    assert lint(RuleSet([policy]), TOOLS) == ()


def test_the_page_shows_files() -> None:
    """A pattern that finds no block would let the test above pass on nothing."""
    assert len(BLOCKS) == 2


@pytest.mark.parametrize(
    "word",
    [
        *_rules_parse._FILE_KEYS,
        *_rules_parse._CEILING_KEYS,
        *_rules_parse._RULE_KEYS,
        *_rules_parse._WHEN_KEYS,
        *re.findall(r"^\| `(\w+)` \|", _rules_lint.__doc__ or "", re.MULTILINE),
    ],
)
def test_each_key_and_each_finding_is_explained(word: str) -> None:
    """A key that only the source knows is used by nobody, or guessed at."""
    assert re.search(rf"\b{word}\b", TEXT)


def test_the_error_on_the_page_is_the_one_that_is_printed() -> None:
    """Whoever searches for the message should find the page."""
    shown = re.search(r"^    policy\.toml:(\d+):.*\n.*\n.*\^$", TEXT, re.MULTILINE)
    assert shown is not None
    before = "\n" * (int(shown[1]) - 3)
    with pytest.raises(Exception, match="alow") as caught:
        parse_policy(
            f'{before}[[rule]]\nid = "x"\noutcome = "alow"\ntool = "*"\n',
            file="policy.toml",
            scope=Scope.USER,
        )
    expected = "\n".join(line.removeprefix("    ") for line in shown[0].splitlines())
    assert str(caught.value) == expected
