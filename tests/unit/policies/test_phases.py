"""Which phase admits which tool: what is shown is what may be called."""

from __future__ import annotations

import dataclasses

import pytest

from toolcell_policies import (
    AccessMode,
    admits_transient_edit,
    is_edit_intent,
    phase_admits_tool,
)


@dataclasses.dataclass(frozen=True)
class Said:
    """What a tool says of itself."""

    access_mode: AccessMode = AccessMode.READONLY
    permission_tier: int = 0
    phases: tuple[str, ...] = ()
    escalation: bool = False


READ = Said()
EDIT = Said(access_mode=AccessMode.WRITE)
EDIT_BY_TIER = Said(permission_tier=1)
COMMAND = Said(access_mode=AccessMode.EXECUTE)
FETCH = Said(access_mode=AccessMode.NETWORK)
VERIFIER = Said(access_mode=AccessMode.EXECUTE, phases=("verifying",))
WIDEN = Said(escalation=True)
PHASES = ("investigating", "editing", "verifying")


@pytest.mark.parametrize(
    ("tool", "kind", "admitted"),
    [
        (READ, None, PHASES),
        (READ, "investigate", PHASES),
        (EDIT, None, ("editing",)),
        (EDIT, "edit", ("investigating", "editing")),
        (EDIT, "test_only", ("investigating", "editing")),
        (EDIT, "investigate", ("investigating", "editing")),
        (EDIT_BY_TIER, "edit", ("investigating", "editing")),
        (COMMAND, "edit", ("editing", "verifying")),
        (FETCH, "edit", ("editing", "verifying")),
        (VERIFIER, "edit", ("verifying",)),
        (WIDEN, "investigate", PHASES),
        (WIDEN, "edit", ()),
        (WIDEN, "test_only", ()),
        (WIDEN, None, ()),
        (dataclasses.replace(WIDEN, phases=PHASES, permission_tier=1), "edit", ()),
        (READ, "no such kind", ()),
    ],
)
def test_a_phase_admits_what_belongs_there(
    tool: Said, kind: str | None, admitted: tuple[str, ...]
) -> None:
    """An agent that looks around must not edit, and one that verifies must not begin to."""
    assert tuple(phase for phase in PHASES if phase_admits_tool(phase, kind, tool)) == admitted


def test_no_phase_admits_all_but_the_way_out_of_an_investigation() -> None:
    """Who knows no phases must not be refused for one; a word that is none admits nothing."""
    assert all(phase_admits_tool(None, None, one) for one in (READ, EDIT, COMMAND, VERIFIER))
    assert phase_admits_tool(None, "investigate", WIDEN)
    assert not phase_admits_tool(None, "edit", WIDEN)
    assert not phase_admits_tool("Editing", "edit", READ)


@pytest.mark.parametrize(
    ("kind", "intent", "transient"),
    [
        ("edit", True, False),
        ("test_only", True, False),
        ("investigate", False, True),
        (None, False, False),
    ],
)
def test_an_edit_is_meant_to_stay_or_to_be_taken_back(
    kind: str | None, intent: bool, transient: bool
) -> None:
    """The same call is the start of the work in one task, and a probe to undo in another."""
    assert (is_edit_intent(kind, EDIT), admits_transient_edit(kind, EDIT)) == (intent, transient)
    for other in (READ, COMMAND):
        assert not is_edit_intent(kind, other)
        assert not admits_transient_edit(kind, other)
