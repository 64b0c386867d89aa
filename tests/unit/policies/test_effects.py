"""What a call did is judged name by name, and all of it together; decide() says what follows."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_policies import (
    AccessMode,
    DangerLevel,
    Decision,
    Effect,
    EffectGround,
    EffectVerdicts,
    Facts,
    Outcome,
    Protection,
    decide,
    default_sensitive_list,
    effects,
    follow_link,
    judge_effects,
)

HOME = "/home/ann"
GROUND = EffectGround(rules=default_sensitive_list(), homes=(HOME,), workspace=f"{HOME}/ws")


def created(path: str, **more: Any) -> Effect:
    mode = 0o755 if more.get("kind") == "folder" else 0o644
    return Effect(**{"path": path, "kind": "file", "before_kind": None, "mode": mode} | more)


def modified(path: str, **more: Any) -> Effect:
    mode = 0o755 if more.get("kind") == "folder" else 0o644
    both = {"mode": mode, "before_mode": mode, "before_kind": "file"}
    return created(path, **both | more)


def deleted(path: str, **more: Any) -> Effect:
    return created(path, **{"kind": None, "before_kind": "file", "mode": 0} | more)


def link(path: str, target: str, **more: Any) -> Effect:
    return created(path, **{"kind": "symlink", "target": target} | more)


def judged(*found: Effect, **more: Any) -> EffectVerdicts:
    return judge_effects(found, dataclasses.replace(GROUND, **more))


def said(*found: Effect, **more: Any) -> list[str]:
    """Each code, refusals first, with what it is about."""
    verdicts = judged(*found, **more)
    return [
        *(f"{one.reason.code} {one.path}" for one in (*verdicts.refused, *verdicts.asks)),
        *(f"{code} {path}" for path, code in verdicts.dropped),
        *(f"{one.reason.code} {one.path}" for one in verdicts.notes),
    ]


def decided(*found: Effect, review: bool = False) -> Decision:
    return decide(
        Facts(
            tool_name="t",
            access_mode=AccessMode.EXECUTE,
            danger=DangerLevel.CRITICAL,
            plan_hash="hash",
            display_bytes=10**9,
            effects=found,
            effect_ground=GROUND,
            review_wanted=review,
        )
    )


# ------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (created("src/a.py"), []),
        (created(".env"), ["path_protected .env"]),
        (created(".ENV"), ["path_protected .ENV"]),
        (created("\uff0eenv"), ["path_protected \uff0eenv"]),
        (created(".e\u200bnv"), ["path_protected .e\u200bnv"]),
        (created(".env."), ["path_protected .env."]),
        (created(".env.example"), []),
        (modified("a/.env"), ["path_protected a/.env"]),
        (deleted("a/.env"), ["path_protected a/.env"]),
        (created(".env/x"), ["path_protected .env/x"]),
        (created("a\udcff/tls.key"), ["path_protected a\udcff/tls.key"]),
        (created("\u00e9/a.py"), []),
        (created(".vscode/tasks.json"), ["effect_asks .vscode/tasks.json"]),
        (deleted(".github/workflows/ci.yml"), ["effect_asks .github/workflows/ci.yml"]),
        (created(".github/ISSUE.md"), []),
        (modified(".vscode/x", content_changed=False), []),
        (modified(".vscode/x", content_changed=False, mode=0o755), ["effect_asks .vscode/x"]),
        (modified(".vscode", kind="folder", before_kind="folder"), []),
        (created("a/CLAUDE.md"), ["effect_asks a/CLAUDE.md"]),
        (created("x.pem"), []),
        (created("x.pem", holds_key=True), ["path_protected x.pem"]),
        (created("x.tfstate"), []),
        (created(".toolcell/policy.toml"), ["path_protected .toolcell/policy.toml"]),
        (created("d", kind="device"), ["special_file d"]),
        (created("d", kind="socket"), ["special_file d"]),
        (created("d", kind="fifo"), []),
        (created("d", mode=0o4755), ["mode_setuid d"]),
        (created("d", mode=0o2755), ["mode_setuid d"]),
        (created("d", kind="folder", mode=0o2755), []),
        (modified("d", mode=0o4755, before_mode=0o4755), ["mode_setuid d"]),
        (modified("d", mode=0o4755, before_mode=0o4755, content_changed=False), []),
        (deleted("d", before_mode=0o4755), []),
        (created("/".join(["d"] * 128)), []),
        (created("/".join(["d"] * 129)), [f"path_too_deep {'/'.join(['d'] * 129)}"]),
        (modified("d", links=3), ["links_broken d"]),
        (deleted("d", links=3), []),
    ],
)  # fmt: skip
def test_a_name_is_judged_by_its_row(effect: Effect, expected: list[str]) -> None:
    """Otherwise a secret, or what a person's tools run, would be changed unseen."""
    assert said(effect) == expected
    # And the same where no name can be judged by itself.
    assert said(effect, homes=(HOME, f"{HOME}/ws/home")) == expected


def test_a_workspace_that_is_a_home_is_judged_by_its_places() -> None:
    """Somebody who works in their home keeps their keys there."""
    home = {"workspace": HOME}
    assert said(created(".ssh/config"), **home) == ["path_protected .ssh/config"]
    assert said(created(".bashrc"), **home) == ["effect_asks .bashrc"]
    assert said(created(".bashrc")) == []
    assert said(created(".ssh/config")) == []


def test_a_row_that_yields_is_silent_in_a_workspace_below_it() -> None:
    """People do keep a project in /opt; and nothing else of it is free for that."""
    opt = {"workspace": "/opt/app"}
    assert said(created("a.py"), **opt) == []
    assert said(created(".env"), **opt) == ["path_protected .env"]
    assert said(created("a.py"), workspace="/etc/app") == ["effect_asks a.py"]
    assert said(created("workflows/ci.yml"), workspace="/srv/.github") == [
        "effect_asks workflows/ci.yml"
    ]
    assert said(created("app/x"), workspace="/") == []
    assert said(created("etc/hosts"), workspace="/") == ["effect_asks etc/hosts"]


def test_what_the_supervisor_runs_from_is_never_written() -> None:
    """Otherwise a call would run in the next supervisor."""
    rules = GROUND.rules.with_paths(
        [f"{HOME}/ws/.venv"], id="own", category="ours", kind=Protection.SEALED
    )
    path = ".venv/lib/site-packages/x.py"
    tree = ".venv/lib/site-packages"
    assert said(created(path, dependencies=tree), rules=rules) == [f"path_sealed {path}"]
    assert said(created("x.py", linked_to=path), rules=rules) == ["path_protected x.py"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([modified("a/.env", masked=True)], ["masked_kept a/.env"]),
        ([deleted("a/.env", masked=True)], ["path_protected a/.env"]),
        ([deleted("a/x", masked=True)], ["path_protected a/x"]),
        ([modified("a/x", masked=True)], ["masked_kept a/x"]),
        ([modified("a/.env", masked=True, kind="symlink", target="/etc")], ["masked_kept a/.env"]),
        (
            [
                modified("k.key", masked=True, kind="folder", before_kind="folder"),
                created("k.key/new"),
                modified("k.key/old", masked=True),
                deleted("k.key/gone", masked=True),
                created("k.keys"),
            ],
            ["masked_kept k.key"],
        ),
        (
            [deleted("node_modules/a.key", masked=True, dependencies="node_modules")],
            ["path_protected node_modules/a.key"],
        ),
    ],
)
def test_what_was_masked_stays_as_it_is(found: list[Effect], expected: list[str]) -> None:
    """A call must neither replace nor take along what it could not see."""
    assert said(*found) == expected


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (created("node_modules/a/x.key", dependencies="node_modules"), []),
        (created("node_modules/a/.env", dependencies="node_modules"), []),
        (created("node_modules/a/x.pem", dependencies="node_modules", holds_key=True), []),
        (created("node_modules/.github/workflows/x", dependencies="node_modules"), []),
        (deleted("node_modules/a/x.key", dependencies="node_modules"), []),
        (created("v/site-packages/x.pth", dependencies="v/site-packages"), []),
        (
            modified("node_modules/a/x.key", dependencies="node_modules"),
            ["effect_asks node_modules/a/x.key"],
        ),
        (
            modified("node_modules/a.pem", dependencies="node_modules", holds_key=True),
            ["effect_asks node_modules/a.pem"],
        ),
        (modified("node_modules/a/x.js", dependencies="node_modules"), []),
        (
            created(".github/workflows/x", dependencies=".github"),
            ["effect_asks .github/workflows/x"],
        ),
        (
            created("x.key/node_modules/a", dependencies="x.key/node_modules"),
            ["path_protected x.key/node_modules/a"],
        ),
        (
            created("node_modules/.toolcell/x", dependencies="node_modules"),
            ["path_protected node_modules/.toolcell/x"],
        ),
        (
            modified("node_modules/.toolcell/x", dependencies="node_modules"),
            ["path_protected node_modules/.toolcell/x"],
        ),
        (
            created("node_modules/.git/hooks/x", dependencies="node_modules"),
            ["effect_asks node_modules/.git/hooks/x"],
        ),
    ],
)
def test_new_names_in_dependencies_are_the_tools_own(effect: Effect, expected: list[str]) -> None:
    """An install must pass, and must not open what lies outside of its tree."""
    assert said(effect) == expected


def test_a_place_stays_protected_in_dependencies() -> None:
    """A folder of that name in a home does not free the home's secrets."""
    effect = created(".ssh/node_modules/x", dependencies=".ssh/node_modules")
    assert said(effect, workspace=HOME) == ["path_protected .ssh/node_modules/x"]
    inner = created("node_modules/wallet.dat", dependencies="node_modules")
    assert said(inner, workspace=HOME) == []


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (created("x", linked_to="src/a"), []),
        (created("x", linked_to=".vscode/tasks.json"), ["effect_asks x"]),
        (created("x", linked_to=".env"), ["path_protected x"]),
        (modified("x", linked_to=".git/config", content_changed=False), ["effect_asks x"]),
    ],
)
def test_another_name_of_a_sensitive_file_is_one(effect: Effect, expected: list[str]) -> None:
    """Otherwise it would be written by that name."""
    assert said(effect) == expected


def test_a_name_of_a_file_of_the_same_call_is_judged_once() -> None:
    """Otherwise whoever links instead of copying would be asked twice about one file."""
    assert said(created(".vscode/a"), created("x", linked_to=".vscode/a")) == [
        "effect_asks .vscode/a"
    ]


# ------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (link("a", "b"), []),
        (link("a/b/c", "../../d"), []),
        (link("a", "."), []),
        (link("a", f"{HOME}/ws/x"), []),
        (link("a", "../ws/x"), []),
        (link("a", ".."), ["link_outside a"]),
        (link("a/b", "../../x"), ["link_outside a/b"]),
        (link("a", "../ws-evil/x"), ["link_outside a"]),
        (link("a", f"{HOME}/ws-evil"), ["link_outside a"]),
        (link("a", "/"), ["link_outside a"]),
        (link("a", "/etc/hosts"), ["link_outside a"]),
        (link("a", "b/../c"), ["link_outside a"]),
        (link("a", "a"), ["link_outside a"]),
        (link("a", "d/" * 1_001), ["link_outside a"]),
        (link("a", "x/.env/y"), ["link_protected a"]),
        (link("a", "/proc/self/fd/1"), ["link_protected a", "link_protected a", "link_outside a"]),
        (link("a", ".vscode/x"), []),
        (link("a", "out/x", through=(("out", "/srv"),)), ["link_outside a"]),
        (link("a", "in/x", through=(("in", "src"),)), []),
        (link("a", "in/x", through=(("in", ".env"),)), ["link_protected a"]),
        (link("v/bin/python", "/usr/bin/python3", in_environment=True), []),
        (link("v/bin/python", "/usr/bin/python3", dependencies="v"), []),
        (link("v/bin/python", "/usrx/bin/python3", dependencies="v"),
        ["link_outside v/bin/python"]),
        (link("v/bin/python", "/usr/../etc/x", dependencies="v"), ["link_outside v/bin/python"]),
        (link("v/x", "x", dependencies="v"), ["link_outside v/x"]),
        (modified("a", kind="symlink", target="/etc"), ["link_outside a"]),
        (
            modified("a", kind="symlink", before_kind="symlink", target="/etc"),
            ["link_outside a"],
        ),
        (
            modified(
                "a", kind="symlink", before_kind="symlink", target="/etc", content_changed=False
            ),
            [],
        ),
        (created("a", kind="symlink"), ["link_outside a"]),
        (deleted("a", before_kind="symlink"), []),
    ],
)  # fmt: skip
def test_a_link_stays_inside(effect: Effect, expected: list[str]) -> None:
    """Otherwise the host's own programs would write where it points."""
    assert said(effect) == expected


def test_links_are_followed_through_each_other() -> None:
    """Two links that each stay inside must not lead out together, nor endlessly."""
    assert said(link("up", "d/e"), link("a", "up/x"), link("d/e", "../f")) == []
    out = said(link("d/e", "../.."), link("a", "d/e/x"))
    assert out == ["link_outside d/e", "link_outside a"]
    chain = [link(f"l{at}", f"l{at + 1}") for at in range(60)]
    assert "link_outside l0" in said(*chain)
    assert "link_outside l30" not in said(*chain)


NAMES = st.lists(st.sampled_from(["a", "b", "..", "ws", ".", ""]), max_size=6).map("/".join)


@given(target=NAMES, other=NAMES)
def test_a_link_that_is_inside_never_passes_a_foreign_folder(target: str, other: str) -> None:
    """What lies outside may be a link to anywhere, back to the inside included."""
    trail = follow_link("d/a", target, workspace="/h/ws", link_at={"b": other}.get)
    if trail.is_inside:
        assert trail.outside is None
        assert all(one == "/h/ws" or one.startswith("/h/ws/") for one in trail.paths[-1:])
    assert (trail.outside is None) or not trail.outside.startswith("/h/ws/")


# --------------------------------------------------------------------- git


GIT = {"repository": ".git"}


@pytest.mark.parametrize(
    ("effect", "asks"),
    [
        (created(".git/refs/heads/main", **GIT), False),
        (created(".git/refs/heads/config", **GIT), False),
        (modified(".git/index", **GIT), False),
        (created(".git/x.git/config", git_keys=(), **GIT), True),
        (modified(".git/config", git_keys=("branch.*.merge",), **GIT), False),
        (modified(".git/config", git_keys=(), **GIT), False),
        (modified(".git/config", git_keys=("core.pager",), **GIT), True),
        (modified(".git/config", git_keys=tuple(f"x.k{at}" for at in range(9)), **GIT), True),
        (modified(".git/config", git_keys=None, **GIT), True),
        (modified(".git/config", git_keys=()), False),
        (modified(".GIT/CONFIG", git_keys=("core.pager",)), True),
        (modified("\uff0egit/config", git_keys=()), True),
        (deleted(".git/config", git_keys=("core.bare",), **GIT), False),
        (deleted(".git/config", git_keys=None, **GIT), True),
        (created(".git/config", kind="fifo", git_keys=(), **GIT), True),
        (modified(".git/config", before_kind="folder", git_keys=(), **GIT), True),
        (created(".git/config.worktree", git_keys=(), **GIT), False),
        (created(".git/worktrees/w/config.worktree", git_keys=None, **GIT), True),
        (created(".git/worktrees/w/HEAD", **GIT), False),
        (created(".git/modules/a/b/config", git_keys=(), **GIT), False),
        (created(".git/modules/a/hooks/x", **GIT), True),
        (created(".git/modules/a/index", **GIT), False),
        (created(".git/rebase-merge/git-rebase-todo", git_keys=(), **GIT), False),
        (created(".git/rebase-merge/git-rebase-todo", git_keys=("rebase.exec",), **GIT), True),
        (created(".git/hooks/pre-commit", **GIT), True),
        (created(".git/hooks/pre-commit.sample", **GIT), False),
        (link(".git/hooks/pre-commit.sample", "x", **GIT), True),
        (created(".git/hooks", kind="folder", **GIT), False),
        (link(".git/hooks", "x", **GIT), True),
        (deleted(".git/hooks/pre-commit", **GIT), True),
        (modified(".git/hooks/pre-commit", content_changed=False, **GIT), False),
        (created(".git/info/attributes", **GIT), True),
        (created(".git/info/exclude", **GIT), False),
        (created(".git/commondir", git_pointer="x", pointer_holds=True, **GIT), False),
        (created(".git/commondir", git_pointer="x", **GIT), True),
        (created(".git/commondir", git_pointer="/x", pointer_holds=True, **GIT), True),
        (created(".git/commondir", **GIT), True),
        (deleted(".git/worktrees/w/gitdir", **GIT), True),
        (modified(".git/worktrees/w/gitdir", content_changed=False, **GIT), False),
        (created(".git/objects/info/alternates", **GIT), True),
        (created("plain/config", repository="plain", git_keys=("core.pager",)), True),
        (created("plain/src/config", repository="plain"), False),
        (created("hooks/update", repository=""), True),
        (created("plain", kind="folder", repository="plain"), False),
        (created("plain/HEAD", repository="plain", makes_repository=True), True),
        (created("conf/hooks/x"), False),
        (created("s/.git", kind="folder", in_new_repository=True), False),
        (created("s/.git", kind="folder"), True),
        (created("s/.git", git_pointer="x", pointer_holds=True), False),
        (created("s/.git", git_pointer="x"), True),
        (modified("s/.git", kind="folder", before_kind="folder"), False),
        (modified("s/.git", content_changed=False, mode=0o600), False),
        (modified("s/.git", git_pointer="x", pointer_holds=True), True),
        (modified("s/.git", before_kind="folder"), True),
        (deleted("s/.git", before_kind="folder"), True),
        (deleted("s/.git", git_pointer="x"), True),
        (created(".gitmodules"), True),
        (created(".gitignore"), False),
    ],
)  # fmt: skip
def test_what_git_obeys_asks_and_what_it_keeps_passes(effect: Effect, asks: bool) -> None:
    """Otherwise a repository would run what a call wrote, or no call could commit."""
    found = [one for one in said(effect) if not one.startswith("link")]
    assert found == ([f"effect_asks {effect.path}"] if asks else [])


def test_a_work_tree_and_a_whole_bare_repository_go_with_all_they_have() -> None:
    """What is gone as a whole gives git no orders."""
    found = [
        deleted("wt/.git", git_pointer=".git/worktrees/wt"),
        deleted(".git/worktrees/wt", before_kind="folder"),
        deleted(".git/worktrees/wt/gitdir"),
        deleted(".git/worktrees/wt/commondir"),
        deleted("b.git", before_kind="folder"),
        deleted("b.git/config"),
        deleted("b.git/hooks/update"),
    ]
    assert said(*found) == []
    assert said(*found[-2:]) == ["effect_asks b.git/config", "effect_asks b.git/hooks/update"]


def test_no_more_settings_are_told_than_somebody_reads() -> None:
    """A hundred made-up settings must not push the one that matters out of sight."""
    keys = tuple(f"x.k{at}" for at in range(9))
    (ask,) = judged(modified(".git/config", git_keys=keys)).asks
    assert ask.reason.text.endswith("x.k0, x.k1, x.k2, x.k3, x.k4 and 4 more")
    assert ask.reason.rule == "git.inside"
    assert ask.reason.source is not None


# ------------------------------------------------------------ blast radius


def many(count: int, folder: str = "src", **more: Any) -> list[Effect]:
    return [deleted(f"{folder}/f{at}", **more) for at in range(count)]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (many(100), None),
        (many(101), "101 files deleted"),
        (many(101, before_kind="folder"), None),
        (many(101, is_ignored=True), None),
        (many(101, "a/__pycache__"), None),
        (many(101, ".mypy_cache/3.11"), None),
        (many(101, "a/build"), "101 files deleted"),
        (many(101, "node_modules/x", dependencies="node_modules"), None),
        (many(101, masked=True), "101 files deleted"),
        (many(101, ".git/objects/aa", **GIT), "101 files deleted"),
        (
            [*many(101, ".git/objects/aa", **GIT), created(".git/objects/pack/p.pack", **GIT)],
            None,
        ),
        (
            [*many(101, ".git/refs", **GIT), created(".git/objects/pack/p.pack", **GIT)],
            "101 files deleted",
        ),
        ([modified(f"f{at}") for at in range(1_000)], None),
        ([modified(f"f{at}") for at in range(1_001)], "1,001 files changed"),
        ([modified(f"f{at}", content_changed=False) for at in range(1_001)], None),
        ([created(f"f{at}") for at in range(5_000)], None),
        ([deleted("f", before_size_bytes=256 << 20)], None),
        ([deleted("f", before_size_bytes=(256 << 20) + 1)], "268,435,457 bytes"),
        ([modified("f", before_size_bytes=1 << 30)], "1,073,741,824 bytes"),
        ([modified("f", before_size_bytes=1 << 30, content_changed=False, mode=0)], None),
    ],
)
def test_much_at_once_asks_with_its_numbers(found: list[Effect], text: str | None) -> None:
    """`rm -rf .` in the wrong folder has to be seen by somebody before it is kept."""
    asks = [one.reason for one in judged(*found).asks]
    assert [one.code for one in asks] == ([] if text is None else ["blast_radius"])
    assert text is None or text in asks[0].text


def test_everything_at_the_top_gone_asks() -> None:
    """Three files may be all that a person has."""
    top = ("a", "b")
    assert said(deleted("a"), deleted("b", before_kind="folder"), top_entries=top) == [
        "blast_radius None"
    ]
    assert said(deleted("a"), top_entries=top) == []
    assert said(deleted("a"), top_entries=("a",)) == []
    assert said(deleted("a"), modified("b"), top_entries=top) == []


# ------------------------------------------------------------------- facts


@pytest.mark.parametrize(
    "broken",
    [
        {"path": "a", "kind": None, "before_kind": None},
        {"path": "", "kind": "file", "before_kind": None},
        {"path": "/a", "kind": "file", "before_kind": None},
        {"path": "a/../b", "kind": "file", "before_kind": None},
        {"path": "a//b", "kind": "file", "before_kind": None},
        {"path": "ab/c", "kind": "file", "before_kind": None, "dependencies": "a"},
    ],
)
def test_an_effect_that_cannot_be_is_not_built(broken: dict[str, Any]) -> None:
    """A path that leads out would be judged as one inside."""
    with pytest.raises(ValueError, match=r"path|nothing|lie"):
        Effect(**broken)


def test_there_is_no_judging_without_ground() -> None:
    """A decision on effects without the rules would be one for them."""
    with pytest.raises(ValueError, match="absolute"):
        dataclasses.replace(GROUND, workspace="ws")
    with pytest.raises(ValueError, match="judged"):
        Facts(
            tool_name="t",
            access_mode=AccessMode.READONLY,
            danger=DangerLevel.SAFE,
            plan_hash="",
            display_bytes=1,
            effects=(),
        )


# ---------------------------------------------------------------- decide()


def test_decide_keeps_asks_or_refuses_what_was_done() -> None:
    """What would have asked before the run is not asked again; what was done is."""
    kept = decided(created("a"))
    assert (kept.outcome, kept.level, kept.stage, kept.reasons) == (Outcome.ALLOW, 1, "after", ())
    asked = decided(created("CLAUDE.md"))
    assert (asked.outcome, asked.level, asked.remember_options) == (Outcome.ASK, 3, ())
    assert asked.remedy is not None
    refused = decided(created("CLAUDE.md"), created(".env"))
    assert (refused.outcome, refused.remedy) == (Outcome.DENY, None)
    assert [one.code for one in refused.reasons] == ["path_protected", "effect_asks"]
    assert refused.reasons[0].rule == "env.files"
    assert decided().outcome is Outcome.ALLOW
    assert decided().plan_hash == "hash"


def test_a_review_asks_whatever_was_done() -> None:
    """Somebody who wants to see everything sees it, a refusal too."""
    found = decided(created("a"), review=True)
    assert (found.outcome, [one.code for one in found.reasons]) == (Outcome.ASK, ["review_asked"])
    assert decided(created(".env"), review=True).outcome is Outcome.DENY


def test_what_is_dropped_and_what_is_remarked_on_is_told() -> None:
    """A person who finds a file unchanged has to know why."""
    found = decided(modified("a/.env", masked=True), modified("b", links=2))
    assert found.outcome is Outcome.ALLOW
    assert [one.code for one in found.reasons] == ["masked_kept", "links_broken"]


def test_a_thousand_reasons_are_told_in_fifty() -> None:
    """Nobody reads a thousand, and the number is not lost."""
    found = [created(f"{at}.key") for at in range(1_000)]
    decision = decided(*found, *many(101))
    assert [one.code for one in decision.reasons[50:]] == ["and_more", "blast_radius"]
    assert "950 more" in decision.reasons[50].text
    assert len(judged(*found).refused) == 1_000


def test_a_reason_is_one_plain_line() -> None:
    """A name with a line end in it must not write lines of its own."""
    found = decided(created("a\n\u202e\udcff\x1b[0m.key"), link("b\n", "\n/.env"))
    assert found.reasons
    assert all(one.text.isprintable() for one in found.reasons)


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o300, 0o400])
def test_a_folder_that_its_owner_could_not_look_into_is_refused(mode: int) -> None:
    """What it holds could hide a secret, so no later call could be given the workspace."""
    assert said(created("f", kind="folder", mode=mode)) == ["folder_shut f"]
    changed = modified("f", kind="folder", before_kind="folder", mode=mode, before_mode=0o755)
    assert said(changed) == ["folder_shut f"]
    same = modified("f", kind="folder", before_kind="folder", mode=mode, before_mode=mode)
    assert said(same) == []


def test_a_name_of_our_own_commits_is_refused() -> None:
    """The index of hidden names passes such a folder over while a commit is under way."""
    name = ".toolcell-0123456789abcdef-3"
    assert said(created(f"a/{name}", kind="folder")) == [f"reserved_name a/{name}"]
    assert said(created(".toolcell-notes")) == []
    assert said(deleted(name)) == []


def test_what_would_show_what_is_hidden_asks() -> None:
    """A file that makes an environment of a folder takes it out of the search for secrets."""
    assert said(created("x/pyvenv.cfg", unmasks=True)) == ["effect_asks x/pyvenv.cfg"]
    assert said(created("x/pyvenv.cfg")) == []


def test_a_secrets_name_is_new_only_where_no_secret_is_looked_for() -> None:
    """What is kept, and then hidden, ends the next call that runs beside it."""
    inside = {"dependencies": "v", "in_environment": True}
    assert said(created("v/lib/site-packages/p/.env", **inside)) == []
    assert said(created("v/.env", **inside)) == ["path_protected v/.env"]
    assert said(created("v/k.pem", holds_key=True, **inside)) == ["path_protected v/k.pem"]
    assert said(created("node_modules/p/.env", dependencies="node_modules")) == []


def test_what_only_has_another_name_is_not_lost() -> None:
    """A folder from below is moved by copying and deleting: the way out that our own hint names."""
    moved = [
        one
        for n in range(150)
        for one in (deleted(f"old/{n}", moved_to=f"new/{n}"), created(f"new/{n}"))
    ]
    assert decided(*moved).outcome is Outcome.ALLOW
    twice = [deleted(f"old/{n}", moved_to="new/0") for n in range(150)]
    assert decided(*twice, created("new/0")).outcome is Outcome.ASK
    nowhere = [deleted(f"old/{n}", moved_to=f"new/{n}") for n in range(150)]
    assert decided(*nowhere).outcome is Outcome.ASK


def test_folders_without_end_ask() -> None:
    """Each takes a watch of the kernel's; without any left no later call can run."""
    folders = [created(f"d{n}", kind="folder") for n in range(20_001)]
    found = decided(*folders)
    assert found.reasons[0].text.endswith("20,001 folders created")
    assert decided(*folders[1:]).outcome is Outcome.ALLOW


def test_every_code_is_documented() -> None:
    """A program that meets a code has to be able to look it up."""
    rows = [line for line in (effects.__doc__ or "").splitlines() if line.startswith("| `")]
    documented = {row.split("`")[1] for row in rows}
    found = decided(
        created(".env"), created("/".join("d" * 129)), link("a", "/etc"), link("b", ".env"),
        created("s", mode=0o4755), created("d", kind="device"), modified("x", masked=True),
        created("CLAUDE.md"), modified("l", links=2), *many(101),
        created("f", kind="folder", mode=0o300), created(".toolcell-0123456789abcdef-1"),
        review=True,
    )  # fmt: skip
    assert {one.code for one in found.reasons} | {"path_sealed"} == documented


# -------------------------------------------------------------- properties


PATHS = st.lists(
    st.sampled_from(
        ["a", ".env", "x.key", ".git", "config", "hooks", "node_modules", ".github", "workflows",
         "CLAUDE.md", "\u00e9", "\udcff", ".toolcell", "b.pem", "wallet.dat"]
    ),
    min_size=1,
    max_size=4,
).map("/".join)  # fmt: skip
KINDS = st.sampled_from(["file", "folder", "symlink", "fifo", "device"])
EFFECTS = st.builds(
    created,
    PATHS,
    kind=KINDS,
    before_kind=st.none() | KINDS,
    mode=st.sampled_from([0o644, 0o4755]),
    masked=st.booleans(),
    content_changed=st.booleans(),
    target=st.none() | PATHS | st.sampled_from(["..", "/etc"]),
    git_keys=st.none() | st.just(("core.pager",)) | st.just(()),
    links=st.integers(0, 3),
) | st.builds(deleted, PATHS, before_kind=KINDS, masked=st.booleans())
SETS = st.lists(EFFECTS, max_size=5, unique_by=lambda one: one.path)


@given(found=SETS, extra=EFFECTS)
def test_one_more_effect_never_makes_a_refused_set_pass(found: list[Effect], extra: Effect) -> None:
    """Otherwise a harmless file could be added to carry a harmful one through."""
    if any(one.path == extra.path for one in found):
        return
    before, after = judged(*found), judged(*found, extra)
    dropped = {path for path, _ in after.dropped}

    def is_kept(path: str | None) -> bool:
        return path is None or not any(path == one or path.startswith(f"{one}/") for one in dropped)

    refused = {one.path for one in after.refused}
    lost = {one.path for one in before.refused if one.path not in refused and is_kept(one.path)}
    if extra.kind == "symlink" or extra.kind is None:
        # A link may lead another one elsewhere; a folder that went as a whole gives no orders.
        lost = {path for path in lost if path is not None and said(extra) == []}
        lost -= {one.path for one in found if one.kind == "symlink"}
    assert not lost


@given(effect=EFFECTS, links=st.booleans())
def test_a_protected_name_outside_of_dependencies_is_never_kept(
    effect: Effect, links: bool
) -> None:
    """It is the floor: nothing overrides it."""
    homes = (HOME, f"{HOME}/ws/h") if links else (HOME,)
    rules = GROUND.rules.match(f"{HOME}/ws/{effect.path}", role="write", homes=homes)
    verdicts = judged(effect, homes=homes)
    if any(Protection.RW in rule.kinds for rule in rules) or effect.masked:
        assert {one.path for one in verdicts.refused} | {path for path, _ in verdicts.dropped}
    if not rules and not effect.masked:
        assert not any(one.reason.code == "path_protected" for one in verdicts.refused)


@given(effect=EFFECTS)
def test_a_name_is_judged_alike_whether_it_is_judged_by_itself_or_not(effect: Effect) -> None:
    """The fast way is a way to the same answer."""
    assert said(effect) == said(effect, homes=(HOME, f"{HOME}/ws/h"))


@given(found=SETS)
def test_any_effects_get_a_decision(found: list[Effect]) -> None:
    """A decision that can raise is a call that ends in nothing anybody planned for."""
    decision = decided(*found)
    assert decision == decided(*found)
    assert decision.stage == "after"
    assert (decision.outcome is Outcome.DENY) == bool(judged(*found).refused)


def test_caches_that_are_full_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with very many names must not be judged by less."""
    from toolcell_policies import _effect_rules

    found = [created(f"d{at}/{at}.key") for at in range(20)]
    expected = said(*found, created("a/b"))
    monkeypatch.setattr(_effect_rules, "_CACHED_MAX", 3)
    assert said(*found, created("a/b")) == expected


def test_a_hundred_thousand_names_are_judged() -> None:
    """A call that unpacks a large archive waits for this."""
    found = [created(f"src/d{at % 300}/f{at}.py") for at in range(100_000)]
    assert said(*found, created(".env")) == ["path_protected .env"]
