"""The table of fixes: which host setting helps when a stage of building a jail failed."""

from __future__ import annotations

import pytest

from toolcell_sandbox.fixes import fix_for

FALLBACK = fix_for({})


@pytest.mark.parametrize(
    ("facts", "inside", "elsewhere"),
    [
        ({"stage": "namespaces", "errno": "EPERM"}, "--isolation container", "unprivileged_userns"),
        ({"stage": "id maps", "errno": "EACCES"}, "--isolation container", "unprivileged_userns"),
        ({"stage": "namespaces", "errno": "ENOSPC"}, "max_user_namespaces", "max_user_namespaces"),
        ({"stage": "namespaces", "errno": "EINVAL"}, "--isolation container", "5.12"),
        ({"stage": "proc", "errno": "EPERM"}, "procMount", "--isolation container"),
        ({"stage": "root", "errno": "EACCES"}, "apparmor=unconfined", "apparmor_restrict"),
        ({"stage": "own limits", "errno": "EACCES"}, "--isolation container", "5.19"),
        ({"stage": "landlock", "errno": "ENOSYS"}, "6.12", "--isolation standard"),
        ({"stage": "seccomp"}, "CONFIG_SECCOMP_FILTER", "CONFIG_SECCOMP_FILTER"),
        ({"stage": "cgroup"}, "/sys/fs/cgroup", "Delegate=yes"),
        ({"stage": "idmap", "errno": "EINVAL"}, "who owns", "ext4"),
        ({"stage": "ids", "guarantee": "signals_scoped"}, "standard", "as root"),
        ({"stage": "ids", "guarantee": "no_new_privileges"}, "not root", "subuid"),
        ({"stage": "open", "errno": "EPERM"}, "--isolation container", "CAP_SYS_ADMIN"),
        ({"stage": "open", "errno": "ENOSYS"}, "outside of a jail", "outside of a jail"),
        ({"stage": "open", "errno": "ELOOP"}, "symlink", "symlink"),
        ({"stage": "sensitive files"}, "--waive paths_masked", "--isolation standard"),
        ({"stage": "plan", "guarantee": "net_loopback"}, "--network", "--isolation standard"),
    ],
)
def test_each_stage_has_its_fix_here_and_in_a_container(facts, inside, elsewhere):
    """The fix for another kind of host sends an operator the wrong way."""
    assert inside in fix_for(facts, inside_container=True)
    assert elsewhere in fix_for(facts, inside_container=False)


def test_what_no_row_knows_points_to_the_doctor():
    """Saying nothing is worse than saying where to look."""
    assert "doctor" in FALLBACK
    assert fix_for({"stage": "never heard of"}, inside_container=False) == FALLBACK


def test_in_a_container_the_first_words_are_what_helps(monkeypatch):
    """Whoever reads one line in a build log reads that one."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert fix_for({"stage": "namespaces", "errno": "EPERM"}).startswith(
        "use --isolation container"
    )
