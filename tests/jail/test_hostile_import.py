"""Code that runs by being imported: a pack's, a .pth file's, a sitecustomize's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from toolcell import tour_pack
from toolcell._probe_traps import Trap, marked
from toolcell.confinement import own_roots
from toolcell.packs import PackError, load_pack
from toolcell_sandbox.spec import Limits

PATIENCE_S = 120.0

# -- a pack -------------------------------------------------------------------------------

PACK = Path(tour_pack.__file__).read_text(encoding="utf-8")
SHORT = Limits(wall_s=5, memory_bytes=256 << 20, processes=16)
HARMLESS = '''
from toolcell import tool

@tool
def greet(name: str) -> str:
    """Greet somebody."""
    return name
'''
# What each tool of the tour does, done while the pack is imported; and what the error speaks of.
ACTS = {
    "read_secret": ("read_secret({secret!r})", ""),
    "tell_secret": ("raise RuntimeError(read_secret({secret!r}))", ""),
    "open_socket": ("open_socket({port})", ""),
    "fork_without_end": ("fork_without_end()", "processes"),
    "fill_memory": ("fill_memory()", "memory"),
    "flood_stdout": ("while True: flood_stdout(8)", "wall limit"),
    "segfault": ("segfault()", "SIGSEGV"),
    "hang": ("hang()", "wall limit"),
    "forge_result": ("forge_result()", ""),
}


@pytest.fixture
def trap() -> Iterator[Trap]:
    with ExitStack() as held:
        yield Trap(held)


def test_each_act_of_the_tour_is_tried_at_import() -> None:
    """A new one in the pack has to come here as well."""
    tools = {line.split()[1].partition("(")[0] for line in PACK.split("@tool\n")[1:]}
    assert tools <= set(ACTS)


@pytest.mark.parametrize("act", ACTS)
async def test_a_pack_that_is_hostile_while_it_is_imported_harms_nothing(
    act: str, trap: Trap, tmp_path: Path, ledger: None
) -> None:
    """To list its tools must be as safe as to run one: nobody has agreed to anything yet."""
    hostile, harmless = tmp_path / "hostile.py", tmp_path / "harmless.py"
    harmless.write_text(HARMLESS)
    call, speaks_of = ACTS[act]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        hostile.write_text(f"{PACK}\n{call.format(secret=trap.file, port=port)}\n")
        with pytest.raises(PackError) as caught:
            await load_pack(hostile, limits=SHORT)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    said = str(caught.value)
    assert said.count("\n") == 0
    assert "planted" not in said
    assert speaks_of in said
    assert [tool.name for tool in await load_pack(harmless, limits=SHORT)] == ["greet"]


async def test_a_pack_that_leaves_daemons_at_import_leaves_none(
    tmp_path: Path, ledger: None
) -> None:
    """Each way to outlive a call, while nobody has called anything."""
    mark = "toolcell-hostile-import"
    pack = tmp_path / "pack.py"
    pack.write_text(
        f"{HARMLESS}\nfrom toolcell._probe_tree import outlive\n"
        f"if not all(a['broke'] is False for a in outlive({mark!r})): raise SystemExit(1)\n"
    )
    assert [tool.name for tool in await load_pack(pack, limits=SHORT)] == ["greet"]
    assert marked(mark) == []


# -- a virtual environment ----------------------------------------------------------------

EVIL = """
import json, os
with open("/proc/self/cmdline", "rb") as file:
    words = file.read().decode().split(chr(0))
with open({marker!r}, "a") as file:
    file.write(json.dumps([{name!r}, os.getpid(), words]) + chr(10))
print("evil", {name!r}, flush=True)
"""


class Venv:
    """An environment whose every start runs code of somebody else's."""

    def __init__(self, folder: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--symlinks", "--without-pip", folder / "venv"],
            check=True,
            timeout=PATIENCE_S,
        )
        self.python = folder / "venv" / "bin" / "python"
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        self.marker = folder / "marker"
        found = [*own_roots(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (packages / "toolcell.pth").write_text("\n".join(dict.fromkeys(found)) + "\n")
        pth = EVIL.format(marker=str(self.marker), name="pth")
        (packages / "evil.pth").write_text(f"import sys; exec({pth!r})\n")
        (packages / "sitecustomize.py").write_text(
            EVIL.format(marker=str(self.marker), name="sitecustomize")
        )

    def ran(self) -> list[tuple[str, int, list[str]]]:
        """Who ran what: its name, the process, and its command line."""
        if not self.marker.exists():
            return []
        lines = self.marker.read_text().splitlines()
        return [(name, pid, words) for name, pid, words in map(json.loads, lines)]

    def names(self, *words: str) -> set[str]:
        """Which of the files a start of the interpreter runs; nothing is left in the marker."""
        process = self.start(*words, "-c", "pass")
        process.communicate(timeout=PATIENCE_S)
        found = self.ran()
        self.marker.unlink(missing_ok=True)
        assert {pid for _, pid, _ in found} <= {process.pid}
        return {name for name, _, _ in found}

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.python, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path)


def test_isolation_of_the_interpreter_alone_would_not_do(venv: Venv) -> None:
    """The control: `-I` runs them all the same, `-I -S` runs none.

    Where a system has a sitecustomize of its own, the environment's is never reached.
    """
    assert "pth" in venv.names("-I")
    assert venv.names("-I") == venv.names()
    assert venv.names("-I", "-S") == set()


CALLS = {
    "run": ["run", "read_file", "path=notes.txt", "--json"],
    "python": ["run", "python", "code=6*7", "--yes", "--json"],
    "exec": ["exec", "--yes", "--json", "--", "cat", "notes.txt"],
    "doctor": ["doctor", "--json"],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_hostile_environment_runs_nothing_between_the_supervisor_and_its_jail(
    venv: Venv, tmp_path: Path, call: str
) -> None:
    """Who starts toolcell from it has run its code once; a zygote must not run it again.

    A zygote is not confined, and knows more than a handler does.
    """
    names = venv.names()
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("one\n")
    main = "import sys; from toolcell.cli import main; sys.exit(main())"
    process = venv.start(
        "-c",
        main,
        *CALLS[call],
        cwd=workspace,
        env={**os.environ, "TOOLCELL_STATE_DIR": str(tmp_path / "state")},
    )
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, (out, err)
    ran = venv.ran()
    # By the supervisor itself (a .pth file of a virtual environment is even read twice): so the
    # marker works, and whoever else had run them would be in it.
    assert {(name, pid) for name, pid, _ in ran} == {(name, process.pid) for name in names}
    assert not any("bootstrap.py" in word for _, _, words in ran for word in words)
    # Nor inside: what it prints stands before the result, and nowhere in it.
    *before, result = out.decode().splitlines()
    assert set(before) == {f"evil {name}" for name in names}
    assert "evil" not in result
    assert json.loads(result)["schema"] == 1
