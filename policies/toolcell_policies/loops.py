"""Calls and questions that go round in circles: noticed, and stopped in steps. Pure: no clock.

A *run* of period p is a stretch of calls in which each is the one p places before it. What
counts is how often its period is complete: three times is a nudge, four times asks a person,
five times and more is a deny. A call that does not fit ends the run, and frees everything.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypeVar

PERIOD_MAX: Final = 4
SESSIONS_MAX: Final = 1024
PROMPTS_MAX: Final = 10
PROMPTS_WITHIN_S: Final = 10.0

_NUDGE_TIMES: Final = 3
_ASK_TIMES: Final = 4
_DENY_TIMES: Final = 5

_Kept = TypeVar("_Kept")
Kind = Literal["none", "nudge", "ask", "deny"]
Session: TypeAlias = tuple[str | None, str | None]
"""The ids of a session and of an agent, each None where nobody gave one."""

_ADVICE: Final[dict[Kind, str]] = {
    "nudge": "another round will hardly tell anything new: use what it said, or try another way",
    "ask": "a person has to agree before it runs again; another call needs no such answer",
    "deny": "it does not run again until another call was made: try another way, or stop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopVerdict:
    """What repetition a call is part of, and what follows from it.

    `period` is how many calls make up one round, `times` how many rounds are complete; both are
    0 where `kind` is none. `text` is for the model: what was noticed, and what to do instead.
    """

    kind: Kind
    period: int = 0
    times: int = 0
    text: str = ""


NO_LOOP: Final = LoopVerdict(kind="none")


@dataclass(slots=True)
class _Track:
    """One session's last calls, and for each period how many of the latest fit it."""

    calls: deque[str] = field(default_factory=lambda: deque(maxlen=PERIOD_MAX))
    # fits[p - 1] counts the latest calls, without a gap, that equal the call p places before.
    fits: list[int] = field(default_factory=lambda: [0] * PERIOD_MAX)


class Loops:
    """Every session's repetitions.

    What is kept of a session is its last four calls and four counts, however long it goes on; of
    more than `SESSIONS_MAX` sessions, the one that called longest ago is forgotten. A denied call
    is to be noted like any other: it keeps being denied until a call comes that does not fit.
    """

    def __init__(self) -> None:
        self._tracks: OrderedDict[Session, _Track] = OrderedDict()

    def note(self, session: Session, call: str) -> LoopVerdict:
        """Count one call, named by a hash of its tool and arguments, and judge it.

        Where neither id is known the verdict is never above a nudge: a program that calls in a
        loop is no agent that went astray, and several of them would be taken for one.
        """
        track = _latest(self._tracks, session, _Track)
        calls, fits = track.calls, track.fits
        period = times = 0
        for distance in range(1, PERIOD_MAX + 1):
            if distance > len(calls):
                break
            fits[distance - 1] = fits[distance - 1] + 1 if calls[-distance] == call else 0
            rounds = fits[distance - 1] // distance + 1
            if rounds > times:
                period, times = distance, rounds
        calls.append(call)
        if times < _NUDGE_TIMES:
            return NO_LOOP
        return _verdict(period, times, known=session != (None, None))


def _verdict(period: int, times: int, *, known: bool) -> LoopVerdict:
    kind: Kind = "nudge"
    if known and times >= _ASK_TIMES:
        kind = "deny" if times >= _DENY_TIMES else "ask"
    what = (
        f"the same call came {times} times in a row"
        if period == 1
        else f"the same {period} calls came {times} times over"
    )
    return LoopVerdict(kind=kind, period=period, times=times, text=f"{what}: {_ADVICE[kind]}")


class PromptRate:
    """How often a person is asked: a flood of questions is answered without reading.

    More than `PROMPTS_MAX` within `PROMPTS_WITHIN_S` seconds in one session, and nobody is asked.
    What was wanted and refused counts too, so it ends only when the flood does.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[Session, deque[float]] = OrderedDict()

    def note(self, session: Session, now_s: float) -> bool:
        """Count one question; whether it may be asked. `now_s` is of a clock that never goes back.

        Fails closed: a time that lies before the last one counts as the last one.
        """
        asked = _latest(self._asked, session, _prompts)
        if asked:
            now_s = max(now_s, asked[-1])
        may_ask = len(asked) < PROMPTS_MAX or now_s - asked[0] >= PROMPTS_WITHIN_S
        asked.append(now_s)
        return may_ask


def _prompts() -> deque[float]:
    return deque(maxlen=PROMPTS_MAX)


def _latest(
    kept: OrderedDict[Session, _Kept], session: Session, fresh: Callable[[], _Kept]
) -> _Kept:
    """What is kept of a session, which is now the latest; the one of longest ago may go."""
    found = kept.get(session)
    if found is None:
        found = kept[session] = fresh()
        if len(kept) > SESSIONS_MAX:
            kept.popitem(last=False)
    else:
        kept.move_to_end(session)
    return found
