"""Path checks against the real kernel: random paths over a real tree of random links."""

import os
import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell_policies import check_path, default_sensitive_list

LIST = default_sensitive_list()
NAMES = ("a", "b", "c", "d", "l0", "l1", "l2", "l3", "l4", "l5", "..", ".", "ws", "ws-evil", "new")


def grow(top: Path) -> None:
    """Make a tree with links in and out of it, the same each time."""
    rng = random.Random(7)
    folders = [top / "ws", top / "ws-evil", top / "ws/a", top / "ws/a/b", top / "ws/c", top / "out"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "d").write_text("x")
    for folder in folders:
        for number in range(6):
            steps = [rng.choice(NAMES) for _ in range(rng.randint(1, 4))]
            lead = rng.choice(["", "", "", f"{top}/", f"{top}/ws/"])
            (folder / f"l{number}").symlink_to(lead + "/".join(steps))


@settings(
    max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(st.sampled_from(NAMES), min_size=1, max_size=7),
    absolute=st.booleans(),
)
def test_nothing_is_called_inside_that_the_kernel_finds_outside(
    tmp_path: Path, steps: list[str], absolute: bool
) -> None:
    """One path in a million that is judged by another walk than the kernel's is an escape."""
    top = Path(os.path.realpath(tmp_path))
    if not (top / "ws").exists():
        grow(top)
    workspace = str(top / "ws")
    text = "/".join(steps)
    given = f"{workspace}/{text}" if absolute else text
    for role in ("read", "write"):
        verdict = check_path(given, role, workspace, (), LIST)
        real = os.path.realpath(os.path.join(workspace, given))
        if verdict.inside:
            assert real == verdict.resolved
            assert (real + "/").startswith(workspace + "/")


def test_the_grown_tree_has_paths_of_both_kinds(tmp_path: Path) -> None:
    """A property over nothing but refusals would hold for a check that refuses all."""
    top = Path(os.path.realpath(tmp_path))
    grow(top)
    rng = random.Random(1)
    texts = ["/".join(rng.choices(NAMES, k=rng.randint(1, 5))) for _ in range(1000)]
    found = [check_path(text, "read", str(top / "ws"), (), LIST) for text in texts]
    followed = [verdict for verdict in found if verdict.links]
    assert sum(verdict.inside for verdict in followed) > 50
    assert sum(not verdict.inside for verdict in followed) > 50
