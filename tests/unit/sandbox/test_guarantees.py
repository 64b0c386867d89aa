"""What a host's layers are worth: every layer off in turn, for every level, and whole hosts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from toolcell_sandbox.fixes import fix_for
from toolcell_sandbox.guarantees import (
    DIRECT_GIVES_UP,
    LAYERS,
    LEVELS,
    MEANS,
    Broken,
    Lack,
    Offer,
    Promise,
    promise,
)
from toolcell_sandbox.spec import GUARANTEES, NEVER_WAIVED, JailSpec, Mount, Network

WHOLE = Offer(
    landlock_abi=7,
    names={"cgroup_memory": "cgroup v2", "cgroup_pids": "cgroup v2", "cgroup_cpu": "cgroup v2"},
)
"""A host that has everything."""

# By hand, from DESIGN: with this layer off, the first guarantee that a level cannot hold any more;
# None where another mechanism holds it, or the level does not rest on it.
OFF = {
    "standard": {
        "user_namespace": "fs_confined",
        "mount_namespace": "fs_confined",
        "pid_namespace": "tree_killed",
        "network_namespace": "net_blocked",
        "ipc_namespace": "ipc_private",
        "landlock": None,
        "landlock_scopes": None,
        "seccomp": "net_blocked",
        "no_new_privs": "syscalls_filtered",
        "rlimits": "cpu_limited",
        "close_range": "fds_closed",
        "watch": None,
        "cgroup_memory": None,
        "cgroup_pids": None,
        "cgroup_cpu": None,
        "own_ids": None,
        "limited_uid": None,
        "overlay": None,
    },
    "hardened": {
        "user_namespace": "fs_confined",
        "mount_namespace": "fs_confined",
        "pid_namespace": "tree_killed",
        "network_namespace": "net_blocked",
        "ipc_namespace": "ipc_private",
        "landlock": None,
        "landlock_scopes": None,
        "seccomp": "net_blocked",
        "no_new_privs": "syscalls_filtered",
        "rlimits": "cpu_limited",
        "close_range": "fds_closed",
        "watch": None,
        "cgroup_memory": "memory_limited",
        "cgroup_pids": "processes_limited",
        "cgroup_cpu": "cpu_limited",
        "own_ids": "signals_scoped",
        "limited_uid": None,
        "overlay": None,
    },
    "container": {
        "user_namespace": None,
        "mount_namespace": None,
        "pid_namespace": None,
        "network_namespace": None,
        "ipc_namespace": None,
        "landlock": "fs_confined",
        "landlock_scopes": "tree_killed",
        "seccomp": "net_blocked",
        "no_new_privs": "fs_confined",
        "rlimits": "cpu_limited",
        "close_range": "fds_closed",
        "watch": None,
        "cgroup_memory": None,
        "cgroup_pids": None,
        "cgroup_cpu": None,
        "own_ids": None,
        "limited_uid": None,
        "overlay": None,
    },
}


def spec(isolation: str = "standard", **more: Any) -> JailSpec:
    return JailSpec(**({"isolation": isolation} | more))


def promised(wanted: JailSpec, offer: Offer = WHOLE) -> Promise:
    found = promise(wanted, offer)
    assert isinstance(found, Promise), found
    return found


def refused(wanted: JailSpec, offer: Offer) -> Broken:
    found = promise(wanted, offer)
    assert isinstance(found, Broken), found
    return found


def test_the_table_speaks_of_each_layer() -> None:
    """A layer that nobody ever switched off is one whose loss nobody would notice."""
    assert {level: set(row) for level, row in OFF.items()} == {key: set(LAYERS) for key in LEVELS}


@pytest.mark.parametrize("level", OFF)
@pytest.mark.parametrize("layer", LAYERS)
def test_with_a_layer_off_a_level_holds_by_another_or_refuses(level: str, layer: str) -> None:
    """Sliding to less in silence is how a sandbox is lost."""
    lost = OFF[level][layer]
    found = promise(spec(level), WHOLE.without(layer))
    if lost is None:
        assert isinstance(found, Promise)
        assert layer not in found.layers
        assert LEVELS[level] - {"net_loopback"} <= found.held.keys()
    else:
        assert isinstance(found, Broken)
        assert found.guarantee == lost
        assert layer in found.lack.cause


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_on_a_whole_host_holds_all_that_it_names(level: str) -> None:
    """A level is a set of guarantees, not a mood."""
    found = promised(spec(level))
    assert found.isolation == level
    assert found.held.keys() >= LEVELS[level]
    assert found.waived == ()


@pytest.mark.parametrize("level", LEVELS)
def test_a_refusal_names_the_fix(level: str) -> None:
    """An error without a way out is a dead end at three in the morning."""
    for layer, lost in OFF[level].items():
        if lost is not None:
            facts = refused(spec(level), WHOLE.without(layer)).facts()
            for inside in (True, False):
                assert fix_for(facts, inside_container=inside)


# -- hosts ---------------------------------------------------------------------------------

NO_USER_NAMESPACES = Offer(
    landlock_abi=7,
    lacks={
        layer: Lack(stage="namespaces", errno="EPERM", cause="Operation not permitted")
        for layer in (
            "user_namespace",
            "mount_namespace",
            "pid_namespace",
            "network_namespace",
            "ipc_namespace",
        )
    },
)
UBUNTU = Offer(
    landlock_abi=6,
    lacks={
        # unshare(2) works there; what it gives has no capabilities.
        layer: Lack(stage="root", errno="EACCES", cause="Permission denied: mount /")
        for layer in ("mount_namespace",)
    },
)
NOTHING = WHOLE.without(*LAYERS)


def test_a_host_without_user_namespaces_has_container_and_no_more() -> None:
    """The error has to name the level that works."""
    facts = refused(spec(), NO_USER_NAMESPACES).facts()
    assert (facts["guarantee"], facts["errno"]) == ("fs_confined", "EPERM")
    assert fix_for(facts, inside_container=True).startswith("use --isolation container")
    assert promised(spec("container"), NO_USER_NAMESPACES).isolation == "container"


def test_namespaces_without_capabilities_are_told_from_none() -> None:
    """Ubuntu's restriction has a fix of its own; the other one would not help."""
    facts = refused(spec(), UBUNTU).facts()
    assert "apparmor_restrict_unprivileged_userns" in fix_for(facts, inside_container=False)
    assert promised(spec("container"), UBUNTU).isolation == "container"


@pytest.mark.parametrize("abi", range(8))
def test_each_landlock_abi_is_used_for_what_it_can_do(abi: int) -> None:
    """ABI 1 forbids renames between folders, and only 6 scopes signals."""
    offer = dataclasses.replace(WHOLE, landlock_abi=abi)
    standard = promised(spec(), offer)
    assert standard.landlock_abi == (abi if abi >= 2 else 0)
    assert ("Landlock" in standard.held["fs_confined"]) == (abi >= 2)
    assert ("Landlock" in standard.held["signals_scoped"]) == (abi >= 6)
    if abi >= 6:
        assert promised(spec("container"), offer).landlock_abi == abi
    else:
        broken = refused(spec("container"), offer)
        assert broken.guarantee == ("fs_confined" if abi < 2 else "tree_killed")
        assert "Landlock" in broken.lack.cause


def test_without_a_cgroup_the_receipt_says_watch() -> None:
    """A sampler is not a bound, and must not be taken for one."""
    offer = WHOLE.without("cgroup_memory", "cgroup_pids", "cgroup_cpu")
    held = promised(spec(), offer).held
    assert held["memory_limited"] == "watch"
    assert "user namespace" in held["processes_limited"]
    assert refused(spec("hardened"), offer).guarantee == "memory_limited"
    assert promised(spec()).held["memory_limited"] == "cgroup v2"


@pytest.mark.parametrize("level", LEVELS)
def test_a_host_with_nothing_gets_nothing(level: str) -> None:
    """There is no mode that runs the call all the same."""
    assert refused(spec(level), NOTHING).lack.cause
    waived = tuple(g for g in GUARANTEES if g not in NEVER_WAIVED)
    assert refused(spec(level, waive=waived), NOTHING).guarantee in NEVER_WAIVED


# -- what a spec replaces by name ----------------------------------------------------------


def test_loopback_replaces_the_blocked_network() -> None:
    """A receipt that lists both would be read as the stronger one."""
    found = promised(spec(network=Network.loopback()))
    assert "net_loopback" in found.held
    assert "net_blocked" not in found.held
    assert (found.isolation, found.waived) == ("standard", ())


def test_the_hosts_network_is_listed_as_waived_and_shares_no_abstract_socket() -> None:
    """With the network namespace goes the border of abstract sockets: Landlock has to hold it."""
    found = promised(spec(network=Network.host()))
    assert found.waived == ("net_blocked",)
    assert "network_namespace" not in found.layers
    assert found.held["ipc_private"] == "ipc namespace, Landlock"
    old = dataclasses.replace(WHOLE, landlock_abi=5)
    assert refused(spec(network=Network.host()), old).guarantee == "ipc_private"


def test_a_loopback_cannot_be_had_without_a_namespace() -> None:
    """Refused by name, not answered with another network."""
    assert refused(spec("container", network=Network.loopback()), WHOLE).guarantee == "net_loopback"


def test_direct_by_name_is_listed() -> None:
    """What a choice gives up has to stand in the receipt."""
    found = promised(spec(workspace="/w", workspace_mode="direct"))
    assert set(found.waived) == set(DIRECT_GIVES_UP)
    assert found.isolation == "standard"
    assert not set(DIRECT_GIVES_UP) & found.held.keys()
    assert "overlay" not in found.layers


def test_a_transaction_holds_the_whole_level_by_an_overlay() -> None:
    """It is the default of every tool that writes: nothing less may be read into its receipt."""
    found = promised(spec(workspace="/w", workspace_mode="transaction"))
    assert (found.isolation, found.waived) == ("standard", ())
    assert found.held["writes_transactional"] == "overlay"
    assert found.held["paths_masked"] == "overlay whiteouts"
    assert "overlay" in found.layers


def test_a_workspace_to_be_read_is_masked_by_an_overlay() -> None:
    """A bind shows every secret in it, and its sockets."""
    found = promised(spec(workspace="/w"))
    assert (found.isolation, found.waived) == ("standard", ())
    assert found.held["paths_masked"] == "overlay whiteouts"
    assert found.held["writes_transactional"] == "workspace read-only"
    waived = promised(spec(workspace="/w", waive=("paths_masked",)))
    assert (waived.isolation, waived.waived) == ("standard", ("paths_masked",))
    # Sockets, FIFOs and locks of the host stay out of reach, where that can be had.
    assert "overlay" in waived.layers
    poor = promise(spec(workspace="/w", waive=("paths_masked",)), WHOLE.without("overlay"))
    assert isinstance(poor, Promise)
    assert "overlay" not in poor.layers
    assert promised(spec("container", workspace="/w")).isolation == "container"


@pytest.mark.parametrize("mode", ["transaction", "read_only"])
def test_a_host_without_overlays_refuses_what_needs_one(mode: str) -> None:
    """Sliding to a bind mount would show what is to be masked, or keep what nobody judged."""
    found = refused(spec(workspace="/w", workspace_mode=mode), WHOLE.without("overlay"))
    assert found.guarantee == "paths_masked"
    assert "--workspace-mode scratch" in fix_for(found.facts())


def test_a_transaction_is_never_waived_into_something_else() -> None:
    """Who names the mode is told that it cannot be had, whatever else they waive."""
    waived = spec(workspace="/w", workspace_mode="transaction", waive=("writes_transactional",))
    found = promised(waived)
    assert "overlay" in found.layers
    assert "writes_transactional" not in found.held
    both = dataclasses.replace(waived, waive=("writes_transactional", "paths_masked"))
    assert refused(both, WHOLE.without("overlay")).guarantee == "writes_transactional"
    lost = refused(spec("container", workspace="/w", workspace_mode="transaction"), WHOLE)
    assert lost.guarantee == "writes_transactional"
    assert "--workspace-mode read_only" in fix_for(lost.facts())


def test_a_scratch_workspace_holds_the_whole_level() -> None:
    """It has no secret, and nothing in it is kept."""
    found = promised(spec(workspace="/w", workspace_mode="scratch"))
    assert (found.isolation, found.waived) == ("standard", ())


def test_a_folder_that_was_granted_to_be_written_is_as_direct() -> None:
    """A receipt that says "read-only" beside a folder that was changed is untrue."""
    grant = Mount(path="/srv/data", writable=True, identity=(1, 2))
    for mode in ("read_only", "scratch"):
        found = promised(spec(workspace="/w", workspace_mode=mode, mounts=(grant,)))
        assert set(found.waived) == set(DIRECT_GIVES_UP)
        assert not set(DIRECT_GIVES_UP) & found.held.keys()


def test_a_folder_that_was_granted_to_be_read_is_masked_or_refused() -> None:
    """Its secrets are there to be read, however empty the workspace is."""
    grant = Mount(path="/srv/data", identity=(1, 2), layered=True)
    found = promised(spec(workspace="/w", workspace_mode="scratch", mounts=(grant,)))
    assert found.held["paths_masked"] == "overlay whiteouts"
    assert found.isolation == "standard"
    bound = dataclasses.replace(grant, layered=False)
    lost = refused(spec(workspace="/w", workspace_mode="scratch", mounts=(bound,)), WHOLE)
    assert lost.guarantee == "paths_masked"
    library = Mount(path="/opt/lib")
    found = promised(spec(workspace="/w", workspace_mode="scratch", mounts=(library,)))
    assert found.held["paths_masked"] == "workspace of the jail's own"


def test_a_folder_that_is_written_makes_the_workspaces_transaction_no_promise_for_all() -> None:
    """What was written beside it is kept, whoever judges the workspace."""
    grant = Mount(path="/srv/data", writable=True, identity=(1, 2))
    found = promised(spec(workspace="/w", workspace_mode="transaction", mounts=(grant,)))
    assert set(DIRECT_GIVES_UP) <= set(found.waived)
    assert not set(DIRECT_GIVES_UP) & found.held.keys()
    assert "overlay" in found.layers


# -- waivers -------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", [g for g in GUARANTEES if g not in NEVER_WAIVED])
def test_a_waiver_is_listed_and_never_also_held(guarantee: str) -> None:
    """Somebody who reads the receipt must see what was given up."""
    found = promised(spec(waive=(guarantee,)))
    assert guarantee in found.waived
    assert guarantee not in found.held


@pytest.mark.parametrize("guarantee", NEVER_WAIVED)
def test_what_makes_a_jail_a_jail_is_not_waived(guarantee: str) -> None:
    """A call without it could not be called confined."""
    with pytest.raises(ValueError, match="never waived"):
        spec(waive=(guarantee,))


def test_a_waiver_takes_away_only_what_nothing_else_rests_on() -> None:
    """The filter also keeps AF_VSOCK closed, and setuid bits off the disk."""
    alone = promised(spec(waive=("syscalls_filtered",)))
    assert alone.filter == "all"
    both = promised(spec(waive=("syscalls_filtered", "net_blocked")))
    assert both.filter == "mode_bits"
    assert "seccomp" in both.layers


@pytest.mark.parametrize("waive", ["net_blocked", ("no_such",)])
def test_a_waiver_of_nothing_is_refused(waive: Any) -> None:
    """A typo would otherwise be a waiver that nobody sees, or one letter each."""
    with pytest.raises(ValueError, match="waive"):
        spec(waive=waive)


def test_every_guarantee_has_a_mechanism_or_a_workspace() -> None:
    """A name without a row would be refused for ever, or held by nothing."""
    by_workspace = {"writes_transactional", "paths_masked"}
    assert set(GUARANTEES) == set(MEANS["namespaces"]) | by_workspace
    assert set(MEANS["process_group"]) >= LEVELS["container"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("workspace_mode", "overlay"), ("isolation", "none"), ("workspace_mode", None)],
)
def test_a_choice_that_is_not_offered_is_refused_with_the_ones_that_are(
    name: str, value: object
) -> None:
    """Sliding to a default is the one thing that a choice by name must not do."""
    with pytest.raises(ValueError, match="choose one of"):
        JailSpec(**{name: value})  # type: ignore[arg-type]  # what is wrong is the point
