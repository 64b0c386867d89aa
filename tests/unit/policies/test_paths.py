"""Path arguments on a real tree with links and loops: what each one is told.

One table: a path, a role, and what has to come out. `ok` is inside and free,
`ask` is inside at level 3, anything else is the code that denies it. `{ws}` is
the workspace, `{out}` a folder beside it, `{home}` a home, `{top}` above all.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from toolcell_policies import PathVerdict, Role, check_path, default_sensitive_list

LIST: Final = default_sensitive_list()
FILES: Final = """
ws/README.md ws/src/a.py ws/src/deep/b.py ws/notes/secret-plan.md ws/with\tname
ws/.env ws/.env.example ws/.envrc ws/.git/config ws/.git/HEAD ws/.git/hooks/x.sample
ws/.git/objects/aa/bb ws/.vscode/tasks.json ws/.github/workflows/ci.yml ws/.gitignore
ws/AGENTS.md ws/cert.pem ws/tls.key ws/prod.tfvars ws/evil.pth ws/id_rsa ws/secrets.json
ws/a\\b.txt ws/~notes ws/$notes ws/one ws/sub/.env ws/.env.d/x ws/monkey
ws-evil/x ws2/x out/secret.txt out/dir/y out/id_ed25519 home/.ssh/id_work
home/.ssh/known_hosts home/.bashrc home/.aws/credentials home/plain.txt
"""
LINKS: Final = {
    "ws/in": "src/a.py",
    "ws/in_dir": "src",
    "ws/in_deep": "src/deep",
    "ws/abs_in": "{ws}/src",
    "ws/dot": ".",
    "ws/slashes": ".//src/./a.py",
    "ws/out": "{out}",
    "ws/rel_out": "../out",
    "ws/out_file": "../out/secret.txt",
    "ws/up": "..",
    "ws/evil": "../ws-evil",
    "ws/evil_file": "{top}/ws-evil/x",
    "ws/chain": "chain2",
    "ws/chain2": "in_dir",
    "ws/chain_out": "chain_out2",
    "ws/chain_out2": "out",
    "ws/back": "{out}/back",
    "out/back": "{ws}/src",
    "ws/src/deep/top": "../..",
    "ws/src/deep/above": "../../..",
    "ws/self": "self",
    "ws/loop_a": "loop_b",
    "ws/loop_b": "loop_a",
    "ws/loop_dir": "loop_dir/x",
    "ws/dangling_in": "src/new.py",
    "ws/dangling_out": "../out/new.txt",
    "ws/dangling_abs": "{out}/new.txt",
    "ws/dangling_env": "src/.env",
    "ws/dangling_home": "{home}/.ssh/authorized_keys",
    "ws/dangling_chain": "dangling_out",
    "ws/to_env": ".env",
    "ws/notes/readme": "../.env",
    "ws/to_ssh": "{home}/.ssh",
    "ws/to_key": "{home}/.ssh/id_work",
    "ws/to_home": "{home}",
    "ws/to_bashrc": "{home}/.bashrc",
    "ws/to_git": ".git",
    "ws/to_hooks": ".git/hooks",
    "ws/to_vscode": ".vscode",
    "ws/to_pem": "cert.pem",
    "ws/to_etc": "/etc",
    "ws/to_root": "/",
    "ws/to_proc": "/proc",
    "ws/to_self": "/proc/self",
    "ws/to_proc_root": "/proc/self/root",
    "ws/to_proc_fd": "/proc/self/fd/0",
    "ws/to_devfd": "/dev/fd",
    "ws/to_stdin": "/dev/stdin",
    "ws/to_null": "/dev/null",
    "ws/odd": "src/na\nme",
    "ws/bidi": "src/\u202egnp.exe",
    "ws/wide": "src\uff0fa.py",
    "ws/tilde": "~notes",
    "wslink": "ws",
    "wslink2": "{top}/wslink",
    "toplink": "{top}",
}

DENY_CHARS: Final = {
    "src/a\x00.py": "path_control_character",
    "\x00": "path_control_character",
    "src/a.py\x00.txt": "path_control_character",
    "src/\n": "path_control_character",
    "with\tname": "path_control_character",
    "src/\x1b[31ma": "path_control_character",
    "src/\x7f": "path_control_character",
    "src/\x85": "path_control_character",
    "src/a\u2028b": "path_control_character",
    "src/a\u2029b": "path_control_character",
    "src/\u202ea.py": "path_hidden_character",
    "src/\u2066a\u2069.py": "path_hidden_character",
    "src/\u200ea.py": "path_hidden_character",
    "src/\u061ca.py": "path_hidden_character",
    "src/a\u200b.py": "path_hidden_character",
    "src/a\u200d.py": "path_hidden_character",
    "src/a\u2060.py": "path_hidden_character",
    "\ufeffsrc/a.py": "path_hidden_character",
    "src/a\u00ad.py": "path_hidden_character",
    "src/a\u034f.py": "path_hidden_character",
    "src/a\u3164.py": "path_hidden_character",
    "src/a\U000e0041.py": "path_hidden_character",
    "src\uff0fa.py": "path_disguised_separator",
    "\uff0fetc/passwd": "path_disguised_separator",
    "\u2025/out/secret.txt": "path_disguised_separator",
    "src/\u2025/a.py": "path_disguised_separator",
    "\uff0e\uff0e/out/x": "path_disguised_separator",
    ".\uff0e/out/x": "path_disguised_separator",
    "\u2024\u2024/x": "path_disguised_separator",
    "\u2024/x": "path_disguised_separator",
    ".\ufe0f./out/x": "path_disguised_separator",
    "src/\u2100": "path_disguised_separator",
    "src\uff3ca.py": "path_disguised_separator",
    "src\ufe68a.py": "path_disguised_separator",
    "src/\ud800": "path_not_text",
    "src/\udfff\ud800": "path_not_text",
    "~": "path_expansion",
    "~/x": "path_expansion",
    "~root/x": "path_expansion",
    "~notes": "path_expansion",
    "~+": "path_expansion",
    "$HOME/x": "path_expansion",
    "${HOME}": "path_expansion",
    "$notes": "path_expansion",
    "\uff5e/x": "path_expansion",
    "\uff04HOME": "path_expansion",
    "": "path_empty",
    "a" * 1025: "path_too_long",
    "/" * 1025: "path_too_long",
    "a/" * 65: "path_too_deep",
    "./" * 65: "path_too_deep",
    "../" * 65: "path_too_deep",
}

# A path that is the same for reading and for writing.
BOTH: Final = {
    ".": "ok",
    "./": "ok",
    "./.": "ok",
    "{ws}": "ok",
    "{ws}/": "ok",
    "{ws}/.": "ok",
    "README.md": "ok",
    "./README.md": "ok",
    "{ws}/README.md": "ok",
    "{ws}//README.md": "ok",
    "//README.md": "path_outside_workspace",
    "{top}//ws///README.md": "ok",
    "src//a.py": "ok",
    "src/a.py/": "ok",
    "src/./a.py": "ok",
    "src/../README.md": "ok",
    "src/deep/../../README.md": "ok",
    "src/..": "ok",
    "missing": "ok",
    "missing/deeper/file": "ok",
    "missing/../README.md": "ok",
    "README.md/below": "ok",
    "README.md/../src": "ok",
    "../ws/README.md": "ok",
    "{ws}/../ws/README.md": "ok",
    "...": "ok",
    ".../x": "ok",
    "..x": "ok",
    "src/..a": "ok",
    "src/ ..": "ok",
    " ": "ok",
    " ~/x": "ok",
    "./~notes": "ok",
    "./$notes": "ok",
    "src/~": "ok",
    "a\\b.txt": "ok",
    "..\\out": "ok",
    "src/\u00fcn\u00ef.py": "ok",
    "src/u\u0308n.py": "ok",
    "src/\u540d\u524d.txt": "ok",
    "src/\u2764\ufe0f.txt": "ok",
    "src/\u2026": "ok",
    "src/a\uff0e.py": "ok",
    "src/\udcff": "ok",
    "a" * 255: "ok",
    "a/" * 64: "ok",
    # Near misses of the workspace's own name.
    "..": "path_outside_workspace",
    "../": "path_outside_workspace",
    "src/../..": "path_outside_workspace",
    "/": "path_outside_workspace",
    "//": "path_outside_workspace",
    "/..": "path_outside_workspace",
    "{top}": "path_outside_workspace",
    "{ws}-evil": "path_outside_workspace",
    "{ws}-evil/x": "path_outside_workspace",
    "{ws}2": "path_outside_workspace",
    "{ws}/../ws2": "path_outside_workspace",
    "{ws}/../ws2/x": "path_outside_workspace",
    "{ws}/../ws-evil/x": "path_outside_workspace",
    "{ws}/..": "path_outside_workspace",
    "{ws}.": "path_outside_workspace",
    "{ws} ": "path_outside_workspace",
    "{top}/WS/README.md": "path_outside_workspace",
    "../ws-evil/x": "path_outside_workspace",
    "../ws2/x": "path_outside_workspace",
    "../out/secret.txt": "path_outside_workspace",
    "src/../../out/secret.txt": "path_outside_workspace",
    "missing/../../out": "path_outside_workspace",
    "{out}/secret.txt": "path_outside_workspace",
    "{home}/plain.txt": "path_outside_workspace",
    "{top}/wslink/README.md": "path_outside_workspace",
    "{top}/toplink/ws/README.md": "path_outside_workspace",
    "/etc/passwd": "path_outside_workspace",
    "/usr/lib": "path_outside_workspace",
    # Links that stay inside.
    "in": "ok",
    "{ws}/in": "ok",
    "in_dir": "ok",
    "in_dir/": "ok",
    "in_dir/a.py": "ok",
    "in_dir/deep/b.py": "ok",
    "in_dir/missing": "ok",
    "in_deep/../a.py": "ok",
    "abs_in/a.py": "ok",
    "dot/dot/dot/README.md": "ok",
    "slashes": "ok",
    "chain/a.py": "ok",
    "chain2": "ok",
    "src/deep/top/README.md": "ok",
    "src/deep/top/../ws/README.md": "ok",
    "dangling_in": "ok",
    "tilde": "ok",
    # Links that leave, at any hop, wherever the rest leads back to.
    "out": "path_outside_workspace",
    "out/": "path_outside_workspace",
    "out/secret.txt": "path_outside_workspace",
    "out/missing": "path_outside_workspace",
    "out/../ws/README.md": "path_outside_workspace",
    "rel_out/dir/y": "path_outside_workspace",
    "out_file": "path_outside_workspace",
    "up": "path_outside_workspace",
    "up/ws/README.md": "path_outside_workspace",
    "up/ws-evil/x": "path_outside_workspace",
    "evil": "path_outside_workspace",
    "evil/x": "path_outside_workspace",
    "evil_file": "path_outside_workspace",
    "chain_out/secret.txt": "path_outside_workspace",
    "back/a.py": "path_outside_workspace",
    "back": "path_outside_workspace",
    "in_dir/deep/above": "path_outside_workspace",
    "src/deep/above/ws/README.md": "path_outside_workspace",
    "src/deep/top/../out/secret.txt": "path_outside_workspace",
    "to_etc/passwd": "path_outside_workspace",
    "to_root": "path_outside_workspace",
    "to_root/etc/hostname": "path_outside_workspace",
    "to_home/plain.txt": "path_outside_workspace",
    "to_null": "path_outside_workspace",
    # Loops.
    "self": "path_link_loop",
    "self/x": "path_link_loop",
    "loop_a": "path_link_loop",
    "loop_b/x/y": "path_link_loop",
    "in_dir/../loop_a": "path_link_loop",
    "loop_dir": "path_link_loop",
    "l41": "path_link_loop",
    "l40": "ok",
    "dot/" * 40: "ok",
    "dot/" * 41: "path_link_loop",
    # Names that are too long for the kernel.
    "a" * 256: "path_unresolvable",
    "in_dir/" + "\u540d" * 100: "path_unresolvable",
    # Links whose own text cannot be trusted.
    "odd": "path_control_character",
    "bidi": "path_hidden_character",
    "wide": "path_disguised_separator",
    # What the kernel follows by itself.
    "/proc/self/root": "path_magic_link",
    "/proc/self/root/etc/shadow": "path_magic_link",
    "/proc/1/root/{ws}/README.md": "path_magic_link",
    "/proc/self/cwd/README.md": "path_magic_link",
    "/proc//self/./fd/0": "path_magic_link",
    "/proc/x/../self/exe": "path_magic_link",
    "/proc/thread-self/fd/0": "path_magic_link",
    "/proc/1/task/1/root/etc": "path_magic_link",
    "/dev/fd/0": "path_magic_link",
    "/dev/fd": "path_magic_link",
    "/dev/stdin": "path_magic_link",
    "{ws}/../../../../../../../../proc/self/root": "path_magic_link",
    "to_proc/self/root/etc": "path_magic_link",
    "to_self/cwd": "path_magic_link",
    "to_proc_root/etc/passwd": "path_magic_link",
    "to_proc_fd": "path_magic_link",
    "to_devfd/0": "path_magic_link",
    "to_stdin": "path_magic_link",
    # Near misses of those.
    "proc/self/root": "ok",
    "dev/fd/0": "ok",
    "/proc/self/status": "path_outside_workspace",
    # Protected, whatever the role; the folder itself and what is below it too.
    ".env": "path_protected",
    "./.env": "path_protected",
    "{ws}/.env": "path_protected",
    "src/../.env": "path_protected",
    ".env/": "path_protected",
    ".env/../README.md": "path_protected",
    ".env.local": "path_protected",
    ".env.d/x": "path_protected",
    ".env.d": "path_protected",
    "sub/.env": "path_protected",
    "missing/.env": "path_protected",
    "tls.key": "path_protected",
    "TLS.KEY": "path_protected",
    "id_rsa": "path_protected",
    "src/id_ed25519.pub": "path_protected",
    "secrets.json": "path_protected",
    ".toolcell/policy.toml": "path_protected",
    "to_env": "path_protected",
    "notes/readme": "path_protected",
    "dot/.env": "path_protected",
    "dangling_env": "path_protected",
    "to_ssh": "path_protected",
    "to_ssh/id_work": "path_protected",
    "to_key": "path_protected",
    "to_home/.ssh/id_work": "path_protected",
    "to_home/.aws/credentials": "path_protected",
    "dangling_home": "path_protected",
    "{home}/.ssh": "path_protected",
    "{home}/.ssh/": "path_protected",
    "{home}/.ssh/id_work": "path_protected",
    "{home}/x/../.ssh/id_work": "path_protected",
    "{home}/.aws/credentials": "path_protected",
    "{out}/id_ed25519": "path_protected",
    "out/id_ed25519": "path_protected",
    "/etc/shadow": "path_protected",
    "to_etc/shadow": "path_protected",
    "/proc/1/environ": "path_protected",
    "/dev/sda": "path_protected",
    # Near misses of those.
    ".env.example": "ok",
    "src/.env.sample": "ok",
    ".environment": "ok",
    "env": "ok",
    "monkey": "ok",
    "notes/secret-plan.md": "ok",
    ".ssh/config": "ok",
    ".aws/x": "ok",
    ".gitignore": "ok",
    ".git/objects/aa/bb": "ok",
    "etc/shadow": "ok",
}

READ: Final = {
    ".git": "ok",
    ".git/HEAD": "ok",
    ".git/hooks/x.sample": "ok",
    ".git/config": "ask",
    "to_git/config": "ask",
    ".GIT/Config": "ask",
    ".vscode/tasks.json": "ok",
    ".github/workflows/ci.yml": "ok",
    "AGENTS.md": "ok",
    "evil.pth": "ok",
    ".envrc": "ask",
    "cert.pem": "ask",
    "CERT.PEM": "ask",
    "to_pem": "ask",
    "prod.tfvars": "ask",
    "cert.pem.txt": "ok",
    "hard": "ok",
    "{home}/.bashrc": "path_outside_workspace",
    "{home}/.ssh/known_hosts": "path_outside_workspace",
    "/dev/null": "path_outside_workspace",
}

WRITE: Final = {
    ".git": "ask",
    ".git/": "ask",
    ".git/HEAD": "ok",
    ".git/index": "ok",
    ".git/config": "ask",
    ".git/hooks": "ask",
    ".git/hooks/pre-commit": "ask",
    "to_git": "ask",
    "to_git/hooks/pre-commit": "ask",
    "to_hooks/pre-commit": "ask",
    "src/../.git/hooks/x": "ask",
    "sub/.git/config": "ask",
    "sub/bare.git/hooks/update": "ask",
    ".vscode/tasks.json": "ask",
    ".vscode": "ask",
    "to_vscode/tasks.json": "ask",
    ".vscode/../README.md": "ask",
    ".cUrSor/mcp.json": "ask",
    ".claude/settings.json": "ask",
    "AGENTS.md": "ask",
    "agents.md": "ask",
    "src/AGENTS.md": "ask",
    ".github/workflows/ci.yml": "ask",
    ".github/workflow/ci.yml": "ok",
    "evil.pth": "ask",
    "src/sitecustomize.py": "ask",
    ".envrc": "ask",
    "cert.pem": "ok",
    "hard": "ask",
    "hard_link": "ask",
    "one": "ok",
    "src": "ok",
    "vscode/tasks.json": "ok",
    "bin/tool": "ok",
    "{home}/.bashrc": "path_outside_workspace",
    "to_bashrc": "path_outside_workspace",
    "/etc/hosts": "path_outside_workspace",
    "dangling_out": "path_outside_workspace",
    "dangling_abs": "path_outside_workspace",
    "dangling_chain": "path_outside_workspace",
}

NAMED: Final = {"path_empty", "path_too_long", "path_too_deep"}
TABLE: Final[list[tuple[str, Role, str]]] = [
    *((text, "read", code) for text, code in DENY_CHARS.items()),
    *((text, "read", code) for text, code in BOTH.items()),
    *((text, "write", code) for text, code in BOTH.items()),
    *((text, "read", code) for text, code in READ.items()),
    *((text, "write", code) for text, code in WRITE.items()),
]


class Tree:
    """The tree on disk, and the check with everything but the path filled in."""

    def __init__(self, top: Path) -> None:
        self.top, self.ws, self.out, self.home = top, top / "ws", top / "out", top / "home"
        for file in FILES.strip("\n").replace("\n", " ").split(" "):
            if file:
                (top / file).parent.mkdir(parents=True, exist_ok=True)
                (top / file).write_text("x")
        for link, target in LINKS.items():
            os.symlink(self.fill(target), top / link)
        os.symlink("README.md", self.ws / "l1")
        for number in range(2, 42):
            os.symlink(f"l{number - 1}", self.ws / f"l{number}")
        (self.ws / "hard").write_text("x")
        os.link(self.ws / "hard", self.ws / "hard_link")

    def fill(self, text: str) -> str:
        for name in ("ws", "out", "home", "top"):
            text = text.replace("{" + name + "}", str(getattr(self, name)))
        return text

    def check(self, text: str, role: Role = "read", workspace: str | None = None) -> PathVerdict:
        home = (str(self.home),)
        return check_path(self.fill(text), role, workspace or str(self.ws), home, LIST)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    # Resolved, since a temporary folder may itself lie below a link.
    return Tree(Path(os.path.realpath(tmp_path_factory.mktemp("tree"))))


def codes(verdict: PathVerdict) -> set[str]:
    return {reason.code for reason in verdict.reasons}


def check_row(tree: Tree, text: str, role: Role, expected: str) -> PathVerdict:
    verdict = tree.check(text, role)
    if expected == "ok":
        assert (verdict.inside, verdict.denied, verdict.level_floor) == (True, False, 0), verdict
        assert verdict.reasons == ()
    elif expected == "ask":
        assert (verdict.inside, verdict.denied, verdict.level_floor) == (True, False, 3), verdict
    else:
        assert verdict.denied, verdict
        assert expected in codes(verdict), verdict
    assert verdict.role == role
    return verdict


def test_the_table_is_large_and_says_each_thing_once() -> None:
    """A corpus that shrinks unseen protects less with every change."""
    assert len(TABLE) > 400
    repeated = [row for row, times in Counter(row[:2] for row in TABLE).items() if times > 1]
    assert repeated == []


@pytest.mark.parametrize(
    ("text", "role", "expected"),
    [pytest.param(*row, id=f"{row[1]}-{ascii(row[0])[:60]}-{row[2]}") for row in TABLE],
)
def test_a_path_gets_the_verdict_of_the_table(
    tree: Tree, text: str, role: Role, expected: str
) -> None:
    """One wrong allow is a secret lost; one wrong deny is a tool switched off."""
    verdict = check_row(tree, text, role, expected)
    for reason in verdict.reasons:
        assert reason.text.isprintable(), reason
        assert len(reason.text) < 400


@pytest.mark.parametrize("role", ["read", "write"])
@pytest.mark.parametrize("text", ["{ws}-evil/x", "../ws-evil/x", "{ws}/../ws-evil/x", "evil/x"])
def test_case_24_a_folder_whose_name_begins_alike_is_another_folder(
    tree: Tree, text: str, role: Role
) -> None:
    """`/srv/share-secret` was served to whoever was given `/srv/share`."""
    check_row(tree, text, role, "path_outside_workspace")


@pytest.mark.parametrize("text", ["dangling_out", "dangling_abs", "dangling_chain"])
def test_case_24_a_dangling_link_is_judged_by_where_it_points(tree: Tree, text: str) -> None:
    """Nothing is there yet, so a check of what exists saw nothing: the write made it."""
    verdict = check_row(tree, text, "write", "path_outside_workspace")
    assert verdict.resolved is None
    assert not (tree.out / "new.txt").exists()


def test_case_24_a_dangling_link_that_points_inside_may_be_written(tree: Tree) -> None:
    """The other half: a link to a file still to be made is ordinary."""
    verdict = check_row(tree, "dangling_in", "write", "ok")
    assert verdict.resolved == str(tree.ws / "src" / "new.py")
    assert verdict.links == (str(tree.ws / "dangling_in"),)


@pytest.mark.parametrize("role", ["read", "write"])
@pytest.mark.parametrize("text", [".env", "{ws}/.env", "sub/.env", "src/.env", "no/such/.env"])
def test_case_23_a_denied_file_in_an_allowed_folder_is_denied_there_or_not(
    tree: Tree, text: str, role: Role
) -> None:
    """A denied name that did not exist yet was not denied: it could be made, then read."""
    verdict = check_row(tree, text, role, "path_protected")
    assert verdict.inside
    assert [reason.rule for reason in verdict.reasons] == ["env.files"]


@pytest.mark.parametrize("role", ["read", "write"])
@pytest.mark.parametrize(
    "text", [".ENV", ".Env", "\uff0eenv", ".e\u0301nv/../.env", ".env.", ".env "]
)
def test_case_37_a_denied_name_in_another_spelling_is_denied(
    tree: Tree, text: str, role: Role
) -> None:
    """Where a file system folds case or width, the other spelling opens the file."""
    check_row(tree, text, role, "path_protected")


@pytest.mark.parametrize("text", [".e\u200bnv", ".env\u200b", "\u2060.env", ".env\ufeff"])
def test_case_37_a_denied_name_with_invisible_characters_is_denied_twice(
    tree: Tree, text: str
) -> None:
    """What a person cannot see in a prompt must not make a different file of it."""
    assert codes(tree.check(text)) == {"path_hidden_character", "path_protected"}


@pytest.mark.parametrize("text", [".cUrSor/mcp.json", ".CURSOR/mcp.json", ".cursor./mcp.json"])
def test_case_37_a_control_file_in_another_case_asks(tree: Tree, text: str) -> None:
    """CVE-2025-59944: the check was case-sensitive, the file system was not."""
    check_row(tree, text, "write", "ask")


def test_every_reason_is_given_not_only_the_first(tree: Tree) -> None:
    """A model that repairs one thing at a time asks ten times."""
    assert codes(tree.check("~/\u200b\n")) == {
        "path_expansion",
        "path_hidden_character",
        "path_control_character",
    }
    assert codes(tree.check("{home}/.ssh/id_rsa")) == {"path_protected", "path_outside_workspace"}
    rules = {reason.rule for reason in tree.check("{home}/.ssh/id_rsa").reasons}
    assert rules == {"ssh.home", "ssh.key-names", None}


def test_a_reason_names_its_rule_and_where_it_is_written(tree: Tree) -> None:
    """Who is refused has to be able to look up by what."""
    (reason,) = tree.check(".env").reasons
    assert reason.rule == "env.files"
    assert reason.source is not None
    assert reason.source.startswith("sensitive_paths.toml:")
    assert "env files, secrets" in reason.text


def test_a_reason_does_not_tell_where_a_link_leads(tree: Tree) -> None:
    """The layout of the host is not the model's to learn."""
    for text in ("out/secret.txt", "to_key", "up", "dangling_home"):
        for reason in tree.check(text).reasons:
            assert str(tree.top) not in reason.text


def test_a_long_path_is_cut_in_its_reason(tree: Tree) -> None:
    """A reason goes to a model's context and a person's screen."""
    for reason in tree.check("../" + "x" * 900).reasons:
        assert len(reason.text) < 300


def test_what_a_verdict_resolves_to_is_where_the_kernel_goes(tree: Tree) -> None:
    """A tool that acts on the resolved path must act on the file that was judged."""
    for text, code in {**BOTH, **READ}.items():
        verdict = tree.check(text)
        if code == "ok":
            given = os.path.join(tree.ws, tree.fill(text))
            assert verdict.resolved == os.path.realpath(given)


@pytest.mark.parametrize(
    "workspace", ["wslink", "wslink2", "ws/", "./ws/.", "out/../ws", "toplink/ws"]
)
def test_a_workspace_named_through_links_is_the_same_workspace(tree: Tree, workspace: str) -> None:
    """`/tmp` is a link on some systems: nothing there would ever be inside."""
    given = f"{tree.top}/{workspace}"
    for text in ("README.md", ".", "in_dir/a.py", f"{given}/README.md", f"{given}/in"):
        assert tree.check(text, workspace=given).inside, text
    for text in ("..", "../ws-evil/x", "out/secret.txt", f"{given}/../ws-evil", "up/ws/README.md"):
        assert not tree.check(text, workspace=given).inside, text


def test_a_workspace_whose_name_collapses_to_another_folder_is_not_that_folder(
    tree: Tree, tmp_path: Path
) -> None:
    """`link/../ws` is beside where the link points, not beside the link."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "far" / "ws").mkdir()
    (tmp_path / "ws").mkdir()
    (tmp_path / "link").symlink_to("far/away")
    given = f"{tmp_path}/link/../ws"
    assert tree.check("x", workspace=given).resolved == os.path.realpath(tmp_path / "far/ws/x")
    assert not tree.check(f"{tmp_path}/ws/x", workspace=given).inside


@pytest.mark.parametrize(
    "workspace", ["", "relative", ".", "/x\x00y", "{ws}/self", "/" + "a" * 256]
)
def test_a_workspace_that_cannot_be_resolved_denies(tree: Tree, workspace: str) -> None:
    """Without a workspace there is no inside: nothing may be taken to lie in it."""
    for text in ("README.md", "/etc/passwd", "."):
        verdict = check_path(text, "read", tree.fill(workspace), (), LIST)
        assert "path_workspace_unresolvable" in codes(verdict)
        assert not verdict.inside


@pytest.mark.parametrize("folder", ["/usr/src/app", "/opt/app", "/dev/shm/app", "/lib/app"])
def test_a_workspace_below_a_system_folder_can_be_worked_in(folder: str) -> None:
    """Containers keep their project in /usr/src/app: each write there would ask."""
    for role in ROLES:
        assert check_path("a/b.py", role, folder, (), LIST).reasons == ()
    assert codes(check_path(".env", "read", folder, (), LIST)) == {"path_protected"}
    beside = check_path(f"{folder}-evil/x", "write", folder, (), LIST)
    assert "path_outside_workspace" in codes(beside)


def test_a_workspace_elsewhere_does_not_silence_a_system_folder(tree: Tree) -> None:
    """The exemption is for who works there, not for who looks in."""
    assert "path_write_asks" in codes(tree.check("/opt/x", "write"))
    assert "path_write_asks" in codes(check_path("x", "write", "/etc/project", (), LIST))


ROLES: Final[tuple[Role, ...]] = ("read", "write")
