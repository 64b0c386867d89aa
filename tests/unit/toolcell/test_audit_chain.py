"""The chain of the audit log: what a look at it finds, and what it cannot find."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell._audit_chain import GENESIS, Row, chained_hash, judge
from toolcell._audit_records import (
    ABANDONED,
    BODY_BYTES_MAX,
    body_of,
    closing,
    decision_facts,
    encoded,
    terminal_of,
)
from toolcell._audit_runs import SLOT_BYTES
from toolcell.audit import Audit, Intent, Terminal, Verdict, read, redact, verify
from toolcell.results import Denied, Effects, Failure, ToolResult
from toolcell_policies import Decision, Outcome, Reason
from toolcell_sandbox.outcome import Receipt, Usage

# -- the chain, pure ------------------------------------------------------------------------


def chain(*told: tuple[str, str, int | None]) -> list[Row]:
    """Rows as they should be, of (record, call, number of the intent)."""
    rows: list[Row] = []
    for seq, (record, call_id, intent) in enumerate(told, start=1):
        body: dict[str, Any] = {"record": record, "time": f"t{seq}", "call_id": call_id}
        if intent is not None:
            body["intent"] = intent
        prev = rows[-1].hash if rows else GENESIS
        text = encoded(body)
        made = Row(seq, f"t{seq}", record, call_id, intent, text, prev, b"")
        rows.append(made._replace(hash=chained_hash(seq, prev, text)))
    return rows


FOUR = (("intent", "a", None), ("intent", "b", None), ("terminal", "b", 2), ("terminal", "a", 1))


def rehashed(rows: list[Row], first: int) -> list[Row]:
    """Each row from `first` on with a hash that fits, as who knows the rule would write it."""
    for place in range(first, len(rows)):
        prev = rows[place - 1].hash if place else GENESIS
        row = rows[place]._replace(prev=prev)
        rows[place] = row._replace(hash=chained_hash(row.seq, prev, row.body))
    return rows


def test_a_chain_as_it_was_written_fits() -> None:
    """The control of everything below."""
    rows = chain(*FOUR)
    assert judge(rows) == Verdict(ok=True, records=4, head=rows[-1].hash.hex())
    assert judge([]) == Verdict(ok=True, head=GENESIS.hex())
    assert judge(rows[:2]).dangling == ("a", "b")
    assert judge(rows[:3]).dangling == ("a",)


def test_two_records_never_have_the_same_bytes_to_hash() -> None:
    """Otherwise a part of one could pass as a part of another."""
    base = chained_hash(1, GENESIS, "{}")
    others = [
        chained_hash(2, GENESIS, "{}"),
        chained_hash(1, base, "{}"),
        chained_hash(1, GENESIS, "{} "),
        chained_hash(1, GENESIS[:-1] + b"{", "}"),
    ]
    assert len({base, *others}) == 5


def _reordered(rows: list[Row]) -> list[Row]:
    rows[0], rows[1] = rows[1]._replace(seq=1), rows[0]._replace(seq=2)
    return rows


def _inserted(rows: list[Row]) -> list[Row]:
    extra = chain(*FOUR[:2], ("intent", "x", None))[-1]
    return rows[:2] + [extra] + [row._replace(seq=row.seq + 1) for row in rows[2:]]


def _set(place: int, **what: Any) -> Callable[[list[Row]], list[Row]]:
    def change(rows: list[Row]) -> list[Row]:
        rows[place] = rows[place]._replace(**what)
        return rows

    return change


def _then(change: Callable[[list[Row]], list[Row]], first: int) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: rehashed(change(rows), first)


TAMPERED: list[tuple[str, Callable[[list[Row]], list[Row]], int, str]] = [
    ("changed", _set(1, body='{"a":1}'), 2, "not what its hash says"),
    (
        "changed, its own hash anew",
        lambda rows: rehashed(_set(1, time="t")(rows), 1)[:2] + rows[2:],
        2,
        "columns",
    ),
    ("first removed", lambda rows: rows[1:], 1, "record 1 is missing"),
    ("middle removed", lambda rows: rows[:1] + rows[2:], 2, "record 2 is missing"),
    ("before the first", lambda rows: [rows[0]._replace(seq=0), *rows], 1, "record 1 is missing"),
    ("reordered", _reordered, 1, "follow"),
    ("inserted", _inserted, 4, "follow"),
    ("a broken hash", _set(3, hash=bytes(32)), 4, "not what its hash says"),
    ("a broken link", _set(3, prev=bytes(32)), 4, "follow"),
    ("no text", _set(2, body=None), 3, "damaged"),
    ("a hash as text", _set(2, hash="x"), 3, "damaged"),
    ("an intent as text", _set(2, intent="2"), 3, "damaged"),
    ("a column", _set(2, call_id="a"), 3, "columns"),
    ("no JSON", _then(_set(2, body="{"), 2), 3, "no object in JSON"),
    ("no object", _then(_set(2, body="[]"), 2), 3, "no object in JSON"),
    ("too deep", _then(_set(2, body="[" * 100_000), 2), 3, "no object in JSON"),
]


@pytest.mark.parametrize(
    ("change", "first_bad", "problem"),
    [one[1:] for one in TAMPERED],
    ids=[one[0] for one in TAMPERED],
)
def test_what_was_done_to_a_record_is_found_where_it_is(
    change: Callable[[list[Row]], list[Row]], first_bad: int, problem: str
) -> None:
    """A log that can be edited unseen is a story, not a record."""
    verdict = judge(change(chain(*FOUR)))
    assert not verdict.ok
    assert verdict.first_bad == first_bad
    assert verdict.records == first_bad - 1
    assert problem in (verdict.problem or "")


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ([*FOUR, ("terminal", "a", 1)], "ended before"),
        ([("intent", "a", None), ("terminal", "b", None)], "no intent"),
        ([("intent", "a", None), ("terminal", "a", 3)], "no intent"),
        ([("intent", "a", None), ("terminal", "b", 1)], "another id"),
        ([("intent", "a", None), ("intent", "b", 1)], "names another"),
        ([("intent", "a", None), ("note", "a", None)], "neither"),
    ],
)
def test_a_chain_whose_hashes_fit_must_also_tell_of_calls_that_can_be(
    told: list[tuple[str, str, int | None]], problem: str
) -> None:
    """Two ends of one call, or an end of none, are a defect of ours or somebody's hand."""
    verdict = judge(chain(*told))
    assert not verdict.ok
    assert verdict.first_bad == len(told)
    assert problem in (verdict.problem or "")


def test_only_a_head_that_was_noted_elsewhere_shows_a_lost_end_or_a_new_log() -> None:
    """docs/audit.md says so: without a key, whoever has the file can write another."""
    rows = chain(*FOUR)
    head = rows[-1].hash.hex()
    shorter = rows[:2]
    assert judge(shorter).ok
    assert not judge(shorter, head=head).ok
    rewritten = rehashed(_set(0, time="t1", body=rows[0].body)(chain(*FOUR[:3])), 0)
    assert judge(rewritten).ok
    assert not judge(rewritten, head=head).ok
    assert "does not contain" in (judge(rewritten, head=head).problem or "")
    # A head from before is in every longer chain; none at all is in each.
    longer = chain(*FOUR, ("intent", "c", None))
    assert judge(longer, head=head).ok
    assert judge(rows, head=GENESIS.hex()).ok
    assert not judge([], head=head).ok


# -- bodies ---------------------------------------------------------------------------------

DECISION = Decision(
    outcome=Outcome.DENY,
    level=3,
    reasons=tuple(
        Reason(code=f"code_{n}", text="prose", rule=f"rule.{n}", source="policy.toml:3")
        for n in range(60)
    ),
    plan_hash="f" * 64,
)


def test_a_terminal_says_what_a_result_came_to() -> None:
    """What ran, how it was held, what it used and what it left are what people ask about."""
    failure: Failure = Denied(message="no", reasons=DECISION.reasons)
    told = terminal_of(
        ToolResult(
            call_id="c",
            tool_name="shell",
            success=False,
            error=failure,
            decision=DECISION,
            exit_code=3,
            receipt=Receipt(isolation="standard", held={"b": "x", "a": "y"}, waived=("c",)),
            usage=Usage(wall_s=1.5, cpu_s=0.5, peak_memory_bytes=7, memory_from="watch"),
            effects=Effects(
                created=tuple(f"made/{n}" for n in range(60)),
                modified=("lone\udcff",),
                refused=({"path": "x", "rule": None, "code": "c", "text": "TOKEN=abc"},),
            ),
        ),
        answer={"how": "reject"},
    )
    body = body_of(told)
    assert body["kind"] == "denied"
    assert body["exit_code"] == 3
    assert body["receipt"] == {"isolation": "standard", "held": ["a", "b"], "waived": ["c"]}
    assert body["usage"] == {"wall_s": 1.5, "cpu_s": 0.5, "peak_memory_bytes": 7}
    assert body["effects"]["created"]["count"] == 60
    assert len(body["effects"]["created"]["paths"]) == 50
    assert body["effects"]["modified"]["paths"] == ["lone\\udcff"]
    assert body["effects"]["deleted"] == {"count": 0, "paths": []}
    assert body["effects"]["refused"]["paths"][0]["text"] == "TOKEN=[redacted]"
    assert body["decision"]["reasons_left_out"] == 10
    assert body["decision"]["reasons"][0] == {
        "code": "code_0",
        "rule": "rule.0",
        "source": "policy.toml:3",
    }
    assert body["answer"] == {"how": "reject"}
    assert "prose" not in encoded(body)


def test_a_success_has_a_kind_that_is_none_and_nothing_that_is_unknown() -> None:
    """A reader must not have to guess whether a kind is missing or there was none."""
    body = body_of(terminal_of(ToolResult("tool", True, "fine")))
    assert body.pop("time").endswith("+00:00")
    assert body == {"record": "terminal", "call_id": "", "tool_name": "tool", "kind": None}
    short = Decision(outcome=Outcome.ALLOW, level=0, reasons=(), plan_hash="a" * 64)
    assert "reasons_left_out" not in decision_facts(short)


def test_every_body_fits_the_slot_that_is_reserved_for_it() -> None:
    """A terminal that is larger than its reserve is lost when the disk is full."""
    path = "p" * 4_000
    effects = Effects(created=(path,) * 900, modified=(path,) * 900, deleted=(path,) * 900)
    base = {"call_id": "c" * 256, "tool_name": "t", "success": True}
    fat = terminal_of(ToolResult(**base, effects=effects, content=""))
    cut = body_of(fat)
    assert cut["cut"] is True
    assert cut["effects"]["created"]["count"] == 900
    wide = Intent(call_id="c", tool_name="\U0001f600" * 500, arguments={"a": ["é" * 50] * 2_000})
    assert len(body_of(wide)["tool_name"]) == 200
    assert body_of(Intent(call_id="c", tool_name="t", arguments=redact({"a": "b"})))["arguments"]
    many = Intent(
        call_id="c", tool_name="t", arguments={f"k{n}": "\u1234" * 300 for n in range(99)}
    )
    assert "not recorded" in encoded(body_of(many))
    endless = Intent(call_id="c", tool_name="t", session_id="\U0001f600" * 90_000)
    hopeless = Terminal(
        call_id="\U0001f600" * 256,
        tool_name="\U0001f600" * 200,
        kind="crashed",
        answer={f"k{n}": "\U0001f600" * 300 for n in range(30)},
    )
    for entry in (fat, wide, many, endless, hopeless):
        assert len(encoded(body_of(entry))) <= BODY_BYTES_MAX < SLOT_BYTES - 100
    assert body_of(hopeless)["kind"] == "crashed"


@pytest.mark.parametrize("odd", [{"a": object()}, {"a": float("nan")}, {1: {"x"}}])
def test_what_json_cannot_hold_leaves_what_names_the_call(odd: dict[Any, Any]) -> None:
    """A record that cannot be written stops a call; one that says less does not."""
    body = body_of(Intent(call_id="c", tool_name="t", approval=odd))
    assert set(body) == {"record", "time", "call_id", "tool_name", "cut"}
    assert body_of(Terminal(call_id="c", tool_name="t", kind="x", usage=odd))["kind"] == "x"


def test_an_abandoned_call_has_a_kind_that_no_result_has() -> None:
    """It says that nobody knows how the call ended, which is no way to end."""
    kinds = {one.kind for one in Failure.__args__}
    assert len(kinds) > 20
    assert ABANDONED not in kinds
    assert closing("c", "t")["kind"] == ABANDONED


# -- the file -------------------------------------------------------------------------------


async def recorded(state: Path, count: int = 3) -> None:
    """Some calls, in a log of their own."""
    audit = Audit(str(state))
    audit.start()
    for number in range(count):
        opened = await audit.intent(Intent(call_id=f"c{number}", tool_name="t"))
        await audit.terminal(
            Terminal(call_id=f"c{number}", tool_name="t", kind=None), intent=opened
        )
    audit.stop()


def edited(state: Path, *statements: str) -> None:
    connection = sqlite3.connect(state / "audit.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


EDITS = [
    ("UPDATE records SET body = replace(body, 't', 'u') WHERE seq = 3", 3),
    ("UPDATE records SET call_id = 'x' WHERE seq = 3", 3),
    ("UPDATE records SET time = '2000' WHERE seq = 2", 2),
    ("UPDATE records SET hash = prev WHERE seq = 4", 4),
    ("UPDATE records SET prev = zeroblob(32) WHERE seq = 4", 4),
    ("UPDATE records SET intent = 1 WHERE seq = 1", None),
    ("DELETE FROM records WHERE seq = 1", 1),
    ("DELETE FROM records WHERE seq IN (3, 4)", 3),
    ("UPDATE records SET seq = 9 WHERE seq = 5", 5),
    ("UPDATE records SET body = CAST(X'ff' AS TEXT) WHERE seq = 2", None),
    ("UPDATE records SET hash = 'text' WHERE seq = 2", 2),
    ("DROP TABLE records", None),
]


@pytest.mark.parametrize(("statement", "first_bad"), EDITS)
async def test_an_edit_of_the_file_is_found(
    tmp_path: Path, statement: str, first_bad: int | None
) -> None:
    """The same as above, by a hand that has the file and SQL."""
    state = tmp_path / "state"
    await recorded(state)
    control = verify(state)
    assert (control.ok, control.records, control.dangling) == (True, 6, ())
    if "intent = 1" in statement:
        edited(state, "UPDATE records SET intent = NULL WHERE seq = 2")
        first_bad = 1
    edited(state, statement)
    verdict = verify(state / "audit.sqlite")
    assert not verdict.ok
    assert verdict.first_bad == first_bad
    assert verdict.problem


async def test_a_log_that_is_gone_or_no_log_is_not_whole(tmp_path: Path) -> None:
    """Whoever deletes the log must not hear that all is well."""
    state = tmp_path / "state"
    assert verify(state) == Verdict(ok=False, problem="there is no audit log")
    assert read(state) == []
    state.mkdir(mode=0o700)
    for content in (b"no database at all" * 100, b"\0" * 5_000):
        (state / "audit.sqlite").write_bytes(content)
        verdict = verify(state)
        assert not verdict.ok
        assert "cannot be read" in (verdict.problem or "")
    (state / "audit.sqlite").unlink()
    (state / "audit.sqlite").symlink_to("/dev/null")
    assert "no plain file" in (verify(state).problem or "")
    with pytest.raises(OSError, match="no plain file"):
        read(state)


async def test_a_copy_can_be_read_where_nobody_may_write(tmp_path: Path) -> None:
    """An archive is read-only, and has no companion files."""
    await recorded(tmp_path / "state")
    head = verify(tmp_path / "state").head
    archive = tmp_path / "a folder #1?x"
    archive.mkdir()
    (archive / "audit.sqlite").write_bytes((tmp_path / "state" / "audit.sqlite").read_bytes())
    archive.chmod(0o500)
    try:
        assert verify(archive, head=head.upper()).ok
        assert len(read(archive)) == 6
    finally:
        archive.chmod(0o700)


async def test_a_damaged_body_is_named_by_whoever_reads(tmp_path: Path) -> None:
    """A reader that skips it shows a log without a hole."""
    state = tmp_path / "state"
    await recorded(state)
    for text in ("{", "[]"):
        edited(state, f"UPDATE records SET body = '{text}' WHERE seq = 2")
        with pytest.raises(OSError, match="holds a record that is none"):
            read(state)


async def test_what_is_recorded_is_read_back_as_it_was(tmp_path: Path) -> None:
    """Ids come from callers: any text must come back, and break nothing."""
    state = tmp_path / "state"
    audit = Audit(str(state))
    audit.start()
    odd = "\ud800 \x00 '; DROP TABLE records; -- \u202e"
    opened = await audit.intent(Intent(call_id=odd, tool_name=odd, arguments={"a": odd}))
    await audit.terminal(Terminal(call_id=odd, tool_name=odd, kind="crashed"), intent=opened)
    refused = Intent(call_id="r", tool_name="t")
    await audit.terminal(Terminal(call_id="r", tool_name="t", kind="denied"), intent=refused)
    audit.stop()
    first, second, third, fourth = read(state)
    assert (first["call_id"], first["arguments"]) == (odd, {"a": odd})
    assert (second["call_id"], second["intent"], second["kind"]) == (odd, 1, "crashed")
    assert (third["record"], fourth["intent"], fourth["kind"]) == ("intent", 3, "denied")
    assert [one["seq"] for one in read(state)] == [1, 2, 3, 4]
    assert first["prev"] == GENESIS.hex()
    assert second["prev"] == first["hash"]
    assert verify(state).ok
    assert json.loads(json.dumps(read(state))) == read(state)
