"""What becomes of a result once its effects are decided on: words, lists, and what is left out."""

from __future__ import annotations

import dataclasses

import pytest

from toolcell import _concluded as concluded
from toolcell.results import ConfinementFailed, Effects, ExecutorError, ToolResult
from toolcell_sandbox.changeset import Change, ChangeSet, Entry
from toolcell_sandbox.commit import Conflict, Failed, Refused
from toolcell_sandbox.outcome import Receipt

FILE = Entry(
    kind="file",
    mode=0o644,
    uid=0,
    gid=0,
    size_bytes=1,
    mtime_ns=0,
    ctime_ns=0,
    links=1,
    inode=(1, 2),
)
FOLDER = dataclasses.replace(FILE, kind="folder")
RESULT = ToolResult(
    call_id="c",
    tool_name="shell",
    success=True,
    content="said",
    output={"stdout": "said"},
    receipt=Receipt(
        isolation="standard",
        held={"paths_masked": "overlay whiteouts", "net_blocked": "seccomp"},
    ),
)


def deleted(path: str, entry: Entry = FILE) -> Change:
    return Change(path=path, before=entry, after=None)


def created(path: str, entry: Entry = FILE) -> Change:
    return Change(path=path, before=None, after=entry)


def test_what_was_not_kept_is_said_beside_what_the_tool_said() -> None:
    """A model that reads only success repeats what was refused."""
    failure = concluded.refused((concluded.told(".env", "path_protected", "no"),), None)
    found = concluded.nothing_kept(RESULT, failure, terminate=True)
    assert (found.success, found.output, found.terminate) == (False, None, True)
    assert found.content == "said\nerror: effects_refused: nothing was kept: no"
    assert found.effects == Effects(refused=failure.paths)
    assert found.files_changed == ()


def test_many_paths_are_counted_in_words_and_whole_in_data() -> None:
    """A message of ten thousand names is read by nobody."""
    paths = tuple(concluded.told(f"f{n}", "c", f"text {n}") for n in range(25))
    failure = concluded.refused(paths, "beef")
    assert failure.message.endswith("text 9; and 15 more")
    assert failure.message.startswith("parked as beef")
    assert failure.remedy == "toolcell effects show beef"
    assert failure.paths == paths
    clash = concluded.conflict(tuple(f"f{n}" for n in range(25)))
    assert "'f9' and 15 more" in clash.message
    assert len(clash.paths) == 25


def test_of_a_call_that_saw_too_much_nothing_is_told() -> None:
    """What it printed may be the secret itself."""
    failure = ConfinementFailed(
        message="m", guarantee="paths_masked", stage="run", cause="c", fix="f"
    )
    found = concluded.seen_too_much(RESULT, failure)
    assert "said" not in str(found.to_json())
    assert found.receipt is not None
    assert found.receipt.isolation == "partial"
    assert found.receipt.held == {"net_blocked": "seccomp"}


def test_a_receipt_says_more_of_what_is_held_and_never_of_what_is_not() -> None:
    """A note on a guarantee that does not hold reads as if it did."""
    notes = {"paths_masked": "not looked into: 'x'", "writes_transactional": "of another group"}
    found = concluded.noted(RESULT, notes).receipt
    assert found is not None
    assert found.held == {
        "paths_masked": "overlay whiteouts; not looked into: 'x'",
        "net_blocked": "seccomp",
    }
    assert concluded.noted(RESULT, {}) is RESULT


def test_what_stays_keeps_its_folder() -> None:
    """A secret whose folder was deleted would go with it."""
    changes = ChangeSet(
        workspace="/w",
        changes=(
            deleted("a", FOLDER),
            deleted("a/b", FOLDER),
            deleted("a/b/.env"),
            deleted("a/c"),
            deleted("d", FOLDER),
            created("e", FOLDER),
            created("e/id_rsa"),
        ),
    )
    left_out = (concluded.told("a/b/.env", "c", "t"), concluded.told("e/id_rsa", "c", "t"))
    rest = concluded.without(changes, left_out)
    assert [change.path for change in rest.changes] == ["a/c", "d", "e"]
    assert concluded.effects_of(rest, left_out) == Effects(
        created=("e",), deleted=("a/c", "d"), refused=left_out
    )


@pytest.mark.parametrize(
    ("ending", "kind", "word"),
    [
        (Conflict(paths=("a",)), "commit_conflict", "somebody else changed 'a'"),
        (Refused(paths=("a",), text="no; fix"), "effects_refused", "no; fix"),
        (Failed(text="disk", errno=28), "executor_error", "nothing was kept"),
        (Failed(text="disk", errno=5, unfinished=True), "executor_error", "nor what was written"),
    ],
)
def test_a_commit_that_kept_nothing_has_a_kind(
    ending: Conflict | Refused | Failed, kind: str, word: str
) -> None:
    """Each has another way out."""
    failure = concluded.not_committed(ending)
    assert failure.kind == kind
    assert word in failure.message
    if isinstance(failure, ExecutorError):
        assert "disk" not in failure.message
        assert failure.operator_detail == "disk"
        assert (failure.remedy is not None) == ("nor what" in word)
