"""What a change of the mount table means, from its text (proc_pid_mountinfo(5))."""

from __future__ import annotations

import pytest

from toolcell_sandbox._child import mountinfo

ROOT = "27 1 254:0 / / rw,relatime{} - ext4 /dev/vda rw"
BELOW = "40 27 0:50 / {} rw,relatime{} - tmpfs tmpfs rw"


def table(*lines: str) -> list[mountinfo.Mounted]:
    return [mountinfo.Mounted(line.encode()) for line in lines]


SHARED = " shared:1"


@pytest.mark.parametrize(
    ("before", "after", "is_passed_on"),
    [
        ([ROOT.format(SHARED)], [ROOT.format(SHARED), BELOW.format("/usr/x", "")], True),
        ([ROOT.format(SHARED), BELOW.format("/usr/x", "")], [ROOT.format(SHARED)], True),
        ([ROOT.format("")], [ROOT.format(""), BELOW.format("/usr/x", "")], False),
        ([ROOT.format("")], [ROOT.format(""), BELOW.format("/usr/x", " shared:7")], False),
        ([ROOT.format(" master:1")], [ROOT.format(" master:1"), BELOW.format("/x", "")], False),
        ([ROOT.format("")], [ROOT.format("")], True),
        # Of flags, and of who shares it, nobody else is told.
        ([ROOT.format(SHARED)], [ROOT.format("")], False),
        (
            [ROOT.format(SHARED)],
            [ROOT.format(SHARED).replace("rw,", "ro,")],
            False,
        ),
        # On a private mount below a shared one.
        (
            [ROOT.format(SHARED), BELOW.format("/p", "")],
            [
                ROOT.format(SHARED),
                BELOW.format("/p", ""),
                BELOW.format("/p/x", "").replace("40 27", "41 40"),
            ],
            False,
        ),
    ],
)
def test_only_what_is_mounted_on_a_shared_mount_is_passed_on(
    before: list[str], after: list[str], is_passed_on: bool
) -> None:
    """A zygote that is kept although it was not told shows a host that is no more."""
    assert mountinfo.is_passed_on(table(*before), table(*after)) is is_passed_on


def test_what_concerns_a_path_lies_at_it_below_it_or_on_the_way() -> None:
    """A waiting jail is given up for these, and must not be for any other."""
    points = ["/usr/x", "/usr", "/usr-evil", "/opt/my\\040ws/sub", "/opt", "/var/x", "/opt/my"]
    lines = [BELOW.format(point, "") for point in points]
    found = mountinfo.around(table(*lines), ("/usr", "/opt/my ws"))
    assert [line.split()[4].decode() for line in found] == [
        "/usr/x",
        "/usr",
        "/opt/my\\040ws/sub",
        "/opt",
    ]
