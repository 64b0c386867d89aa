"""CASES 42: calls and questions that go round in circles."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies.loops import (
    PERIOD_MAX,
    PROMPTS_MAX,
    PROMPTS_WITHIN_S,
    SESSIONS_MAX,
    Loops,
    LoopVerdict,
    PromptRate,
)

AGENT = ("session", "agent")
NOBODY = (None, None)


def kinds(calls: Sequence[str], session: tuple[str | None, str | None] = AGENT) -> list[str]:
    loops = Loops()
    return [loops.note(session, call).kind for call in calls]


def naive(calls: Sequence[str]) -> tuple[str, int, int]:
    """The definition, read off the whole history."""
    best = (0, 0)
    for period in range(1, PERIOD_MAX + 1):
        length = min(period, len(calls))
        while length < len(calls) and calls[-length - 1] == calls[-length - 1 + period]:
            length += 1
        if length // period > best[1]:
            best = (period, length // period)
    period, times = best
    if times < 3:
        return "none", 0, 0
    return {3: "nudge", 4: "ask"}.get(times, "deny"), period, times


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_what_is_noticed_is_what_the_whole_history_says(calls: list[str]) -> None:
    """Otherwise the few calls that are kept would tell another story than all of them."""
    loops = Loops()
    for count, call in enumerate(calls, 1):
        said = loops.note(AGENT, call)
        assert (said.kind, said.period, said.times) == naive(calls[:count])


@given(
    st.lists(st.sampled_from("wxyz"), max_size=12),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    st.integers(min_value=6, max_value=9),
)
def test_every_cycle_is_denied_by_its_fifth_round_and_goes_on_being(
    before: list[str], cycle: list[str], rounds: int
) -> None:
    """Otherwise an agent could go round for ever, whatever it did before."""
    said = kinds([*before, *cycle * rounds])[len(before) :]
    complete = {times: times * len(cycle) - 1 for times in (2, 3, 4, 5)}
    assert set(said[: complete[3]]) == {"none"}
    assert set(said[complete[3] : complete[4]]) == {"nudge"}
    assert set(said[complete[4] : complete[5]]) == {"ask"}
    assert set(said[complete[5] :]) == {"deny"}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ("aa", "none none"),
        ("aaa", "none none nudge"),
        ("aaaaaa", "none none nudge ask deny deny"),
        ("aabaa", "none none none none none"),
        ("aaabaaa", "none none nudge none none none nudge"),
        ("abababab", "none none none none none nudge nudge ask"),
        ("ababacab", "none none none none none none none none"),
        ("abcabcab", "none none none none none none none none"),
        ("abcabcabc", "none none none none none none none none nudge"),
        ("abcdabcdabcd", "none " * 11 + "nudge"),
        # A period of five is beyond what is looked for.
        ("abcde" * 6, "none " * 30),
        # Work that goes on: each step is another call.
        ("abacadaeafag", "none " * 12),
    ],
)
def test_three_rounds_of_up_to_four_calls_are_a_loop(calls: str, expected: str) -> None:
    """CASES 42: too late and the money is spent; too early and honest work is disturbed."""
    assert kinds(calls) == expected.split()


def test_a_denied_call_stays_denied_until_another_comes() -> None:
    """Otherwise a deny would free the very call that it was for."""
    loops = Loops()
    said = [loops.note(AGENT, call).kind for call in "aaaaaaaabaaa"]
    assert said == ["none", "none", "nudge", "ask", *["deny"] * 4, "none", "none", "none", "nudge"]


def test_a_cycle_that_was_denied_is_freed_by_another_call_and_not_by_its_own() -> None:
    """Otherwise changing places within the circle would be a way round."""
    said = kinds("ab" * 5 + "ab" + "c" + "ab" * 3)
    assert said[9:12] == ["deny"] * 3
    assert said[12:] == ["none"] * 6 + ["nudge"]


@pytest.mark.parametrize("session", [("s", None), (None, "a"), ("s", "a")])
def test_whoever_is_known_by_any_id_is_stopped(session: tuple[str | None, str | None]) -> None:
    """Otherwise an agent that gives only one of its ids could loop for ever."""
    assert kinds("aaaaa", session)[-1] == "deny"


def test_a_program_without_ids_is_told_and_never_stopped() -> None:
    """A script that polls is no agent; several at once would be taken for one."""
    said = kinds("a" * 50, NOBODY)
    assert said == ["none", "none", *["nudge"] * 48]


def test_sessions_and_agents_are_apart() -> None:
    """Otherwise three agents that read the same file first thing would be a loop."""
    loops = Loops()
    who = [("s", "a"), ("s", "b"), ("t", "a"), ("s", None), (None, "a"), NOBODY]
    assert {loops.note(one, "read").kind for one in who * 2} == {"none"}
    assert {loops.note(one, "read").kind for one in who} == {"nudge"}


def test_the_session_of_longest_ago_is_forgotten_and_the_latest_kept() -> None:
    """Otherwise a caller with ever new session ids would fill our memory."""
    loops = Loops()
    for _ in range(2):
        loops.note(("kept", None), "a")
        loops.note(("gone", None), "a")
    loops.note(("kept", None), "other")
    for number in range(SESSIONS_MAX - 2):
        loops.note((str(number), None), "a")
        loops.note(("kept", None), "a")
    assert loops.note(("kept", None), "a").kind == "deny"
    assert loops.note(("gone", None), "a").kind == "nudge"
    loops.note(("one more", None), "a")
    loops.note(("and one", None), "a")
    assert loops.note(("0", None), "a").kind == "none"


@pytest.mark.parametrize(
    ("calls", "what", "then"),
    [
        ("aaa", "the same call came 3 times in a row", "try another way"),
        ("aaaa", "the same call came 4 times in a row", "a person has to agree"),
        ("ababababab", "the same 2 calls came 5 times over", "until another call was made"),
    ],
)
def test_a_verdict_says_what_was_noticed_and_what_to_do(calls: str, what: str, then: str) -> None:
    """A model that is only refused tries once more; one that is told why can change its way."""
    loops = Loops()
    said = [loops.note(AGENT, call) for call in calls][-1]
    assert said.text.startswith(f"{what}: ")
    assert then in said.text
    assert loops.note(AGENT, "another") == LoopVerdict(kind="none", period=0, times=0, text="")


# -- questions ----------------------------------------------------------------------------


def test_the_eleventh_question_within_ten_seconds_is_not_asked() -> None:
    """A person who is flooded says yes without reading."""
    rate = PromptRate()
    assert [rate.note(AGENT, tenth / 10) for tenth in range(11)] == [True] * 10 + [False]
    assert rate.note(("another", "session"), 1.0)


def test_ten_questions_within_ten_seconds_may_go_on_for_ever() -> None:
    """The near miss: a busy session at the limit is no flood."""
    rate = PromptRate()
    assert all(rate.note(AGENT, second * PROMPTS_WITHIN_S / PROMPTS_MAX) for second in range(100))


def test_the_flood_has_to_end_before_anybody_is_asked_again() -> None:
    """Otherwise every tenth second would bring ten more questions of the same flood."""
    rate = PromptRate()
    said = [rate.note(AGENT, tenth / 10) for tenth in range(300)]
    assert said.count(True) == PROMPTS_MAX
    assert not rate.note(AGENT, 30.0 + 8.8)
    assert rate.note(AGENT, 60.0)


@given(st.lists(st.floats(min_value=0, max_value=4), max_size=60))
def test_a_rate_is_what_counting_all_says(gaps: list[float]) -> None:
    """Otherwise the ten times that are kept would tell another story than all of them."""
    rate, times, now_s = PromptRate(), list[float](), 0.0
    for gap in gaps:
        now_s += gap
        recent = [at_s for at_s in times if now_s - at_s < PROMPTS_WITHIN_S]
        assert rate.note(AGENT, now_s) == (len(recent) < PROMPTS_MAX)
        times.append(now_s)


def test_a_clock_that_goes_back_ends_no_flood() -> None:
    """Otherwise setting the clock would be a way to be asked."""
    rate = PromptRate()
    for _ in range(PROMPTS_MAX):
        rate.note(AGENT, 100.0)
    assert not rate.note(AGENT, 0.0)
    assert not rate.note(AGENT, 50.0)
    assert rate.note(AGENT, 110.0)


def test_of_questions_too_the_session_of_longest_ago_is_forgotten() -> None:
    """Otherwise a caller with ever new session ids would fill our memory."""
    rate = PromptRate()
    for _ in range(PROMPTS_MAX):
        rate.note(AGENT, 0.0)
    assert not rate.note(AGENT, 0.0)
    for number in range(SESSIONS_MAX):
        rate.note((str(number), None), 0.0)
    assert rate.note(AGENT, 0.0)
