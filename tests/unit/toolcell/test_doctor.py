"""What `doctor` makes of a host before it tries anything, and how it tells what it found."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from toolcell._probe_run import REPORT_IT, Finding, not_held
from toolcell._probe_table import ATTACKS
from toolcell.doctor import outlook, report
from toolcell_sandbox.guarantees import LAYERS, LEVELS, Lack, Offer
from toolcell_sandbox.spec import GUARANTEES, Isolation

RICH = Offer(landlock_abi=7, names={"cgroup_memory": "cgroup v2"})
"""A host that has it all."""
POOR = RICH.without("cgroup_memory", "cgroup_pids", "cgroup_cpu", "own_ids")
"""What an unprivileged user has without delegation."""
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)

NO_JAIL = "no jail"
"""Without this layer the level runs nothing at all, so that nothing of it is proven."""
WORKSPACE = {"paths_masked", "writes_transactional"}
CPU_AND_FILES = {"cpu_limited", "files_limited"}
NETWORK = {"net_blocked", "net_loopback"}

# By hand, so that the table of mechanisms is not its own judge.
LOST: dict[Isolation, dict[str, str | set[str]]] = {
    "standard": {
        "user_namespace": NO_JAIL,
        "mount_namespace": NO_JAIL,
        "pid_namespace": NO_JAIL,
        "network_namespace": NETWORK,
        "ipc_namespace": {"ipc_private"},
        "landlock": set(),
        "landlock_scopes": set(),
        "seccomp": NO_JAIL,
        "no_new_privs": NO_JAIL,
        "rlimits": CPU_AND_FILES,
        "close_range": NO_JAIL,
        "watch": set(),
        "cgroup_memory": set(),
        "cgroup_pids": set(),
        "cgroup_cpu": set(),
        "own_ids": set(),
        "limited_uid": set(),
        "overlay": WORKSPACE,
    },
    "hardened": {
        "user_namespace": NO_JAIL,
        "mount_namespace": NO_JAIL,
        "pid_namespace": NO_JAIL,
        "network_namespace": NETWORK,
        "ipc_namespace": {"ipc_private"},
        "landlock": set(),
        "landlock_scopes": set(),
        "seccomp": NO_JAIL,
        "no_new_privs": NO_JAIL,
        "rlimits": CPU_AND_FILES,
        "close_range": NO_JAIL,
        "watch": set(),
        "cgroup_memory": {"memory_limited"},
        "cgroup_pids": {"processes_limited"},
        "cgroup_cpu": {"cpu_limited"},
        "own_ids": {"signals_scoped"},
        "limited_uid": set(),
        "overlay": WORKSPACE,
    },
    "container": {
        "user_namespace": set(),
        "mount_namespace": set(),
        "pid_namespace": set(),
        "network_namespace": set(),
        "ipc_namespace": set(),
        "landlock": NO_JAIL,
        "landlock_scopes": NO_JAIL,
        "seccomp": NO_JAIL,
        "no_new_privs": NO_JAIL,
        "rlimits": CPU_AND_FILES,
        "close_range": NO_JAIL,
        "watch": set(),
        "cgroup_memory": set(),
        "cgroup_pids": set(),
        "cgroup_cpu": set(),
        "own_ids": set(),
        "limited_uid": set(),
        "overlay": set(),
    },
}


def lost(isolation: Isolation, offer: Offer) -> str | set[str]:
    seen = outlook(isolation, offer)
    return NO_JAIL if seen.never is not None else set(seen.lacking)


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_is_off_costs_what_nothing_else_holds(
    isolation: Isolation, layer: str
) -> None:
    """A guarantee that is listed without its layer is a lie, and a missed one is lost."""
    assert lost(isolation, RICH.without(layer)) == LOST[isolation][layer]


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("watch", {"memory_limited", "cpu_limited"}),
        ("rlimits", {*CPU_AND_FILES, "processes_limited"}),
    ],
)
def test_without_control_groups_there_is_no_second_mechanism(
    layer: str, expected: set[str]
) -> None:
    """Here the first one is the last one."""
    assert lost("standard", POOR.without(layer)) == expected


def test_an_unprivileged_user_has_standard_and_container_and_no_more() -> None:
    """The host table of the documentation, in three lines."""
    assert lost("standard", POOR) == set()
    assert lost("container", POOR) == set()
    assert lost("hardened", POOR) == {
        "memory_limited", "processes_limited", "cpu_limited", "signals_scoped",
    }  # fmt: skip


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_each_guarantee_of_a_level_is_attacked(isolation: Isolation) -> None:
    """One that is listed and never attacked is only a word."""
    wanted = set(outlook(isolation, RICH).wanted)
    assert wanted >= LEVELS[isolation]
    assert wanted - LEVELS[isolation] == (
        {"processes_limited"} if isolation == "container" else {"net_loopback"}
    )
    assert tuple(ATTACKS) == GUARANTEES


def test_what_a_level_holds_besides_is_no_part_of_it() -> None:
    """Root in a container has no bound on processes: the level does not claim it there."""
    assert (
        "processes_limited"
        not in outlook("container", RICH.without("limited_uid", "cgroup_pids")).wanted
    )


# -- the report ---------------------------------------------------------------------------

HELD = Finding(
    guarantee="tree_killed",
    held=True,
    mechanism="pid namespace",
    tried=("leave a daemon behind",),
    happened="it was gone",
    control="outside, it lives",
)
IN_PART = replace(HELD, guarantee="paths_masked", scope="for a workspace in mode scratch")
BROKE = replace(HELD, guarantee="net_blocked", held=False, happened="connected", fix=REPORT_IT)
LACKING = not_held("memory_limited", "no control group", "use --isolation standard")


def told(capfd: pytest.CaptureFixture[str], *found: Finding, level: Isolation) -> tuple[int, str]:
    code = report(list(found), isolation=level, as_json=False)
    return code, capfd.readouterr().out


def test_the_first_line_is_the_level_and_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever reads one line has to have read the right one."""
    code, out = told(capfd, HELD, level="container")
    assert code == 0
    assert out.splitlines()[0].startswith("container: holds here")


def test_a_level_that_cannot_be_had_names_the_one_fix_first(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """ "It does not work" helps nobody; the first line is what to do."""
    other = not_held("signals_scoped", "only root has ids", "run toolcell as root")
    code, out = told(capfd, HELD, LACKING, other, LACKING, level="hardened")
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "hardened: cannot be had here; fix: use --isolation standard"
    assert lines[1] == "fix: run toolcell as root"
    assert sum("use --isolation standard" in line for line in lines) == 1


def test_a_probe_that_broke_out_comes_before_all_else(capfd: pytest.CaptureFixture[str]) -> None:
    """A hole is worse than a layer that is not there, and must not be read as one."""
    code, out = told(capfd, LACKING, BROKE, level="standard")
    assert code == 1
    assert out.splitlines()[0].startswith("standard: DOES NOT HOLD here; fix: this host builds")
    assert "what happened: connected" in out


def test_a_part_is_never_told_as_the_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """What holds for some workspaces only must say for which."""
    _, out = told(capfd, IN_PART, level="standard")
    assert "holds in part  paths_masked" in out
    assert "only: for a workspace in mode scratch" in out


def test_what_a_level_does_not_promise_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Silence reads as a promise."""
    _, out = told(capfd, HELD, level="container")
    last = out.splitlines()[-1]
    assert last.startswith("not promised at this level: ")
    assert set(last.partition(": ")[2].split(", ")) == {
        "paths_masked", "writes_transactional", "net_loopback", "processes_limited", "disk_limited",
    }  # fmt: skip


def test_json_is_one_object_of_schema_1(capfd: pytest.CaptureFixture[str]) -> None:
    """Programs read this; its shape is promised."""
    assert report([HELD, LACKING], isolation="hardened", as_json=True) == 1
    said = json.loads(capfd.readouterr().out)
    assert (said["schema"], said["isolation"], said["holds"]) == (1, "hardened", False)
    assert set(said["host"]) == {
        "system", "kernel", "uid", "landlock_abi", "cgroup", "container",
    }  # fmt: skip
    assert set(said["host"]["cgroup"]) == {"memory", "pids", "cpu"}
    assert said["guarantees"][0] == HELD.to_json()
    assert set(said["guarantees"][1]) >= {
        "guarantee", "held", "mechanism", "tried", "happened", "control", "fix",
    }  # fmt: skip


def test_what_a_host_says_cannot_act_on_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """A cause is the kernel's or a file's words, not ours."""
    evil = not_held("memory_limited", "a\x1b[2Jb", "c\x1b[2Jd")
    _, out = told(capfd, evil, level="standard")
    assert "\x1b" not in out


def test_lacks_are_told_in_the_kernels_words() -> None:
    """The stage and errno are what a search engine finds."""
    lack = Lack(stage="namespaces", errno="EPERM", cause="Operation not permitted")
    never = outlook("standard", replace(RICH, lacks={"user_namespace": lack})).never
    assert never is not None
    assert never.facts()["errno"] == "EPERM"
