"""Real programs as commands, under default limits: a jail that breaks tools gets switched off.

Each runs in a writable workspace, at level `standard` and, where it can, at `container`. What
the second one breaks is named here, with its cause: it has no /proc, no /dev/shm, no sockets, no
process groups of a program's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import Literal

import pytest

from toolcell_sandbox import CommandHandler, JailOutcome, JailSpec, Network, run_in_jail
from toolcell_sandbox.host import base_environment

Level = Literal["standard", "container"]

PACKAGES = {"gcc": "gcc", "git": "git", "make": "make", "node": "nodejs", "npm": "npm"}
"""What a test needs of the machine, and Debian's name for it."""


def need(*programs: str) -> None:
    """CI has to have them; elsewhere a test that lacks one says which."""
    missing = [PACKAGES.get(name, name) for name in programs if shutil.which(name) is None]
    if missing and "CI" in os.environ:
        pytest.fail(f"CI installs what these tests run, and lacks {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


class Box:
    """Runs shell scripts in one workspace, at one level, with the limits that everybody gets."""

    def __init__(self, workspace: Path, level: Level) -> None:
        self.workspace = workspace
        self.level: Level = level

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"))

    async def run(
        self, script: str, *, network: str = "none", waive: tuple[str, ...] = ()
    ) -> JailOutcome:
        """How it ended; that a jail of this level was around it is asserted here."""
        spec = JailSpec(
            workspace=str(self.workspace),
            workspace_mode="direct",
            isolation=self.level,
            network=getattr(Network, network)(),
            env={**base_environment(), "PYTHON": sys.executable},
            waive=waive,
        )
        argv = ("/bin/bash", "-euo", "pipefail", "-c", dedent(script))
        outcome = await run_in_jail(CommandHandler(argv=argv), spec)
        assert outcome.failure is None, outcome.failure
        receipt = outcome.receipt
        assert receipt.isolation == self.level
        expected = {"fs_confined", "tree_killed", "syscalls_filtered", "memory_limited"}
        assert expected <= receipt.held.keys()
        assert ("net_loopback" if network == "loopback" else "net_blocked") in receipt.held
        return outcome

    async def good(self, script: str, *, network: str = "none") -> list[str]:
        """The lines of its output; it ended with 0 and said nothing on stderr."""
        outcome = await self.run(script, network=network)
        said = outcome.stderr.kept.decode()
        assert (outcome.exit_code, said) == (0, ""), (outcome.stdout.kept.decode(), said)
        lines: list[str] = outcome.stdout.kept.decode().splitlines()
        return lines


@pytest.fixture
def workspace(tmp_path: Path, ledger: None) -> Path:
    (tmp_path / "workspace").mkdir()
    return (tmp_path / "workspace").resolve()


@pytest.fixture(params=["standard", "container"])
def box(request: pytest.FixtureRequest, workspace: Path) -> Box:
    """The same promise at both levels."""
    return Box(workspace, request.param)


@pytest.fixture
def standard(workspace: Path) -> Box:
    """What only a jail with namespaces has."""
    return Box(workspace, "standard")


@pytest.fixture
def container(workspace: Path) -> Box:
    """What is known not to work without namespaces."""
    return Box(workspace, "container")


# -- git -----------------------------------------------------------------------------------

GIT = """
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
    export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
    git() { command git -c init.defaultBranch=main -c advice.detachedHead=false "$@"; }
"""


async def test_git_keeps_a_history_with_branches_merges_and_a_stash(box):
    """The one program that every coding agent runs at every turn."""
    need("git")
    script = """
        git init -q . && echo one > a && git add a && git commit -qm first
        git checkout -qb other && echo two > b && git add b && git commit -qm second
        git checkout -q main && echo three > c && git add c && git commit -qm third
        git merge -q --no-edit other
        echo changed > a && git stash -q && cat a && git stash pop -q && cat a
        git checkout -q a
        git log --format=%s main | sort
        git status --porcelain
        git gc -q --prune=now
        git fsck --strict
    """
    lines = await box.good(GIT + script)
    assert lines == ["one", "changed", "Merge branch 'other'", "first", "second", "third"]
    assert (box.workspace / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"


async def test_git_clones_within_the_workspace_and_has_worktrees(box):
    """Clones run a second git over pipes, and hard links or copies where they may not link."""
    need("git")
    script = """
        git init -q first && echo one > first/a && git -C first add a && git -C first commit -qm one
        git clone -q --no-hardlinks first second
        git clone -q first third
        git clone -q "file://$PWD/first" fourth
        git -C first worktree add -q ../tree -b side
        echo two > tree/a && git -C tree commit -qam two
        git -C second fetch -q ../first side && git -C second merge -q FETCH_HEAD
        cat second/a third/a fourth/a
        git -C first worktree remove tree
        git -C first branch --format='%(refname:short)' | sort
    """
    lines = await box.good(GIT + script)
    assert lines == ["two", "one", "one", "main", "side"]


async def test_git_says_that_there_is_no_network_and_ends(box):
    """A clone that hangs until the deadline costs the whole turn."""
    need("git")
    outcome = await box.run(GIT + "git clone -q https://example.org/x.git")
    assert outcome.exit_code == 128
    assert b"unable to access" in outcome.stderr.kept
    assert outcome.usage.wall_s < 30


# -- Python: venv, pip, pytest, multiprocessing --------------------------------------------


def build_wheel(folder: Path) -> None:
    """A wheel with one module and one script, by hand: no build backend is needed."""
    files = {
        "tinypack/__init__.py": "def main():\n    print('tinypack runs')\n",
        "tinypack-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinypack\nVersion: 1.0\n",
        "tinypack-1.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        "tinypack-1.0.dist-info/entry_points.txt": (
            "[console_scripts]\ntinypack = tinypack:main\n"
        ),
    }
    record = ""
    folder.mkdir()
    with zipfile.ZipFile(folder / "tinypack-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += f"{name},sha256={digest.decode().rstrip('=')},{len(text)}\n"
            wheel.writestr(name, text)
        wheel.writestr("tinypack-1.0.dist-info/RECORD", f"{record}tinypack-1.0.dist-info/RECORD,,")


async def test_pip_installs_a_wheel_into_a_venv_made_in_the_jail(box):
    """Whoever cannot install what a project needs works outside the jail next time."""
    build_wheel(box.workspace / "wheels")
    script = """
        "$PYTHON" -m venv env
        env/bin/python -m pip install -q --disable-pip-version-check \\
            --no-index --find-links wheels tinypack
        env/bin/tinypack
        env/bin/python -c 'import tinypack; print(tinypack.__file__)'
        env/bin/python -m pip list --disable-pip-version-check | grep tinypack
        env/bin/python -m pip uninstall -q -y tinypack
    """
    ran, place, listed = await box.good(script)
    assert ran == "tinypack runs"
    assert place.startswith(f"{box.workspace}/env/")
    assert listed.split() == ["tinypack", "1.0"]


async def test_pip_without_a_network_fails_and_says_why(box):
    """Retries that take minutes would look like a hang of the jail."""
    script = """
        "$PYTHON" -m venv env
        env/bin/python -m pip install --retries 0 --disable-pip-version-check nosuchpackage
    """
    outcome = await box.run(script)
    assert outcome.exit_code == 1
    assert b"No matching distribution found for nosuchpackage" in outcome.stderr.kept


SUITE = """
    import asyncio, concurrent.futures, multiprocessing, os, subprocess, sys, threading

    def double(sent, number):
        sent.send(2 * number)

    def test_subprocess(tmp_path):
        (tmp_path / "in").write_text("text")
        done = subprocess.run(["cat", "in"], cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout == b"text"

    def test_threads():
        found = []
        threads = [threading.Thread(target=found.append, args=(n,)) for n in range(20)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert sorted(found) == list(range(20))

    def test_thread_pool():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))

    def run_processes(method):
        context = multiprocessing.get_context(method)
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=double, args=(send, 21))
        process.start()
        assert receive.recv() == 42
        process.join()
        assert process.exitcode == 0

    def test_fork(): run_processes("fork")
    def test_spawn(): run_processes("spawn")

    def test_asyncio_subprocess():
        async def main():
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
            out, _ = await process.communicate(b"through")
            assert (out, process.returncode) == (b"through", 0)
        asyncio.run(main())

    def test_terminate_a_child():
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        process.terminate()
        assert process.wait() == -15
"""


async def test_pytest_runs_a_suite_with_processes_and_threads(box):
    """Running the tests is how an agent learns whether its change was right."""
    box.write({"test_it.py": SUITE, "pytest.ini": "[pytest]\n"})
    lines = await box.good('"$PYTHON" -m pytest -q -p no:randomly 2>&1')
    assert lines[-1].startswith("7 passed")


POOL = """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    def square(number): return number * number

    if __name__ == "__main__":
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(sum(pool.map(square, range(100))))
        with ProcessPoolExecutor(2) as pool:
            print(sum(pool.map(square, range(100))))
        print(multiprocessing.Manager().list([1, 2]))
"""


async def test_process_pools_and_managers_work(standard):
    """They need POSIX semaphores, queues of pipes, Unix sockets: what data work is made of."""
    standard.write({"pool.py": POOL})
    assert await standard.good('"$PYTHON" pool.py') == ["328350"] * 4 + ["[1, 2]"]


async def test_process_pools_at_level_container_fail_at_their_semaphore(container):
    """sem_open(3) is a file in /dev/shm, which is everybody's there: an error, never a hang."""
    container.write({"pool.py": POOL})
    outcome = await container.run('"$PYTHON" pool.py')
    assert outcome.exit_code == 1
    assert b"PermissionError: [Errno 13]" in outcome.stderr.kept
    assert b"SemLock" in outcome.stderr.kept


async def test_sqlite_keeps_a_database_with_its_journal_and_locks(box):
    """Locks and memory maps on the workspace are what a cache of any tool is built on."""
    source = """
        import sqlite3
        for mode in ("delete", "wal"):
            with sqlite3.connect(f"{mode}.db") as db:
                found = db.execute(f"pragma journal_mode={mode}").fetchone()[0]
                db.execute("create table t (n integer)")
                db.executemany("insert into t values (?)", [(n,) for n in range(1000)])
                other = sqlite3.connect(f"{mode}.db", timeout=0)
                try:
                    other.execute("insert into t values (0)")
                except sqlite3.OperationalError as error:
                    print(found, error)
            print(sqlite3.connect(f"{mode}.db").execute("select sum(n) from t").fetchone()[0])
    """
    box.write({"db.py": source})
    lines = await box.good('"$PYTHON" db.py')
    assert lines == ["delete database is locked", "499500", "wal database is locked", "499500"]


async def test_a_python_server_and_its_client_meet_on_loopback(standard):
    """A web project's own tests start a server; `loopback` is there for them."""
    source = """
        import http.server, threading, urllib.request
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://localhost:{server.server_port}/page.txt") as page:
            print(page.status, page.read().decode())
    """
    standard.write({"server.py": source, "page.txt": "a page"})
    outcome = await standard.run('"$PYTHON" server.py', network="loopback")
    assert (outcome.exit_code, outcome.stdout.kept) == (0, b"200 a page\n"), outcome.stderr.kept


# -- node and npm --------------------------------------------------------------------------

NODE = """
    const fs = require("node:fs"), os = require("node:os"), path = require("node:path");
    const { execFileSync, spawn, fork } = require("node:child_process");
    const { Worker, isMainThread, parentPort } = require("node:worker_threads");
    if (process.argv[2] === "child") { process.send("from a fork"); process.exit(0); }
    (async () => {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), "node-"));
        await fs.promises.writeFile(path.join(folder, "f"), "from a file");
        console.log(fs.readFileSync(path.join(folder, "f"), "utf8"));
        fs.rmSync(folder, { recursive: true });
        console.log(execFileSync("sh", ["-c", "echo from a shell"]).toString().trim());
        await new Promise(done => {
            const cat = spawn("cat", []);
            cat.stdout.on("data", data => console.log(data.toString()));
            cat.on("close", done);
            cat.stdin.end("through a pipe");
        });
        await new Promise(done => {
            const child = fork(__filename, ["child"]);
            child.on("message", text => console.log(text));
            child.on("exit", done);
        });
        await new Promise(done => {
            const source = 'require("node:worker_threads").parentPort.postMessage("from a thread")';
            const worker = new Worker(source, { eval: true });
            worker.on("message", text => console.log(text));
            worker.on("exit", done);
        });
        console.log(require("node:zlib").gunzipSync(
            require("node:zlib").gzipSync("squeezed")).toString());
        const { promisify } = require("node:util");
        const key = await promisify(require("node:crypto").scrypt)("p", "s", 32);
        console.log(key.length);
    })();
"""
NODE_SAYS = ["from a file", "from a shell", "through a pipe", "from a fork", "from a thread"]


async def test_node_has_files_children_threads_and_its_own_pool(box):
    """node reserves tens of gigabytes, starts ten threads, and asks for io_uring: all as usual."""
    need("node")
    box.write({"main.js": NODE})
    assert await box.good("node main.js") == [*NODE_SAYS, "squeezed", "32"]


async def test_node_serves_http_on_loopback_over_tcp_and_a_unix_socket(standard):
    """What every front-end project does to test itself."""
    need("node")
    source = """
        const http = require("node:http");
        const server = http.createServer((request, response) => response.end("served"));
        const get = options => new Promise(done => http.get(options, response => {
            response.on("data", data => done(data.toString()));
        }));
        const over = (...where) => new Promise(done => server.listen(...where, done));
        (async () => {
            await over(0, "127.0.0.1");
            console.log(await get({ port: server.address().port, host: "localhost" }));
            server.closeAllConnections();
            await new Promise(done => server.close(done));
            await over("/tmp/socket");
            console.log(await get({ socketPath: "/tmp/socket" }));
            server.closeAllConnections();
            server.close();
            console.log(Object.keys(require("node:os").networkInterfaces()).join());
            console.log(process.memoryUsage().rss > 1e6);
        })();
    """
    standard.write({"server.js": source})
    lines = await standard.good("node server.js", network="loopback")
    assert lines == ["served", "served", "lo", "true"]


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        ("process.memoryUsage()", b"uv_resident_set_memory"),  # reads /proc/self/stat
        ("require('node:net').createServer().listen(0)", b"EPERM"),  # socket(2)
    ],
)
async def test_what_node_lacks_at_level_container_is_an_error_it_names(
    container, expression, cause
):
    """Without /proc and sockets these cannot work; a crash or a hang would say nothing."""
    need("node")
    outcome = await container.run(f'node -e "{expression}"')
    assert outcome.exit_code == 1
    assert cause in outcome.stderr.kept


async def test_npm_starts_a_project_and_installs_a_local_dependency(box):
    """npm without a network still has to install what lies in the workspace, and run scripts."""
    need("node", "npm")
    manifest = {"name": "dep", "version": "1.0.0", "main": "index.js"}
    box.write({"dep/package.json": json.dumps(manifest), "dep/index.js": "module.exports = 41;"})
    script = """
        npm --version > version
        mkdir app && cd app
        npm init -y > /dev/null
        npm pkg set dependencies.dep=file:../dep scripts.start='node -p "require(\\"dep\\") + 1"'
        npm install --offline --no-audit --no-fund --no-update-notifier --loglevel=error > ../said
        rm -r node_modules
        npm ci --offline --no-audit --no-fund --no-update-notifier --loglevel=error >> ../said
        npm run --silent start
    """
    assert await box.good(script) == ["42"]
    assert (box.workspace / "version").read_text()[0].isdigit()
    assert (box.workspace / "app" / "package-lock.json").exists()


# -- gcc and make --------------------------------------------------------------------------


async def test_gcc_compiles_links_and_runs(box):
    """A compiler makes temporary files, runs four programs, and executes what it wrote."""
    need("gcc")
    source = """
        #include <math.h>
        #include <pthread.h>
        #include <stdio.h>
        static void *half(void *given) { *(double *)given /= 2; return NULL; }
        int main(int argc, char **argv) {
            double number = sqrt(argc * 16.0);
            pthread_t thread;
            if (pthread_create(&thread, NULL, half, &number)) return 1;
            pthread_join(thread, NULL);
            printf("hello %.0f\\n", number);
            return 0;
        }
    """
    box.write({"main.c": source})
    script = """
        gcc -O2 -Wall -pipe -o piped main.c -lm -pthread && ./piped
        gcc -O2 -g -flto -o linked main.c -lm -pthread && ./linked
        gcc -shared -fPIC -o lib.so main.c -lm && "$PYTHON" -c '
        import ctypes; print(ctypes.CDLL("./lib.so").main(0, None))'
    """
    lines = await box.good(script.replace("\n        import", "import"))
    assert lines[:2] == ["hello 2", "hello 2"]


async def test_make_runs_its_jobs_at_once(box):
    """The job server is a pipe or a FIFO with locks of its own."""
    need("gcc", "make")
    makefile = "all: $(addsuffix .o,one two three four)\n\tgcc -o program $^ main.c\n"
    files = {f"{name}.c": f"int {name}(void) {{ return 1; }}\n" for name in ("one", "two", "three")}
    main = """
        #include <stdio.h>
        int one(void), two(void), three(void), four(void);
        int main(void) { printf("%d\\n", one() + two() + three() + four()); return 0; }
    """
    sub = "four.c:\n\t$(MAKE) -f sub.mk\n"
    make = "four.c:\n\techo 'int four(void) { return 1; }' > four.c\n"
    box.write({**files, "main.c": main, "Makefile": makefile + sub, "sub.mk": make})
    outcome = await box.run("make -j4 && ./program")
    assert outcome.exit_code == 0, outcome.stderr.kept
    assert outcome.stdout.kept.splitlines()[-1] == b"4"
    assert outcome.stderr.kept == b""


# -- the shell and the small tools ---------------------------------------------------------


async def test_the_small_tools_sort_pack_find_and_compare(box):
    """Temporary files, device nodes, descriptors by name: what scripts take for granted."""
    script = """
        mkdir tree && cd tree
        seq 200000 | sort -R --random-source=<(yes) > numbers
        sort -n -S 1M --parallel=2 numbers | tail -n 1
        mkdir -p a/b && echo x > a/b/f && ln -s b/f a/link && ln a/b/f a/hard && mkfifo a/fifo
        tar -czf ../tree.tgz . && mkdir ../out && tar -xzf ../tree.tgz -C ../out
        diff -r --no-dereference a/b ../out/a/b
        find ../out -name 'f*' -newer /etc/localtime | sort
        readlink ../out/a/link; stat -c %h ../out/a/hard
        cp -a a copy && rm -rf a && mv copy moved && du -s --apparent-size moved > /dev/null
        paste -d, <(echo left) <(echo right)
        cat <<< here | tee >(cat > tee.txt) > /dev/null
        dd if=/dev/zero bs=1M count=8 status=none | sha256sum | cut -c1-8
        timeout 5 true; nice -n 5 true; nohup true 2> /dev/null; flock lock true
        mktemp | grep -c "^$TMPDIR/"
        xargs -P4 -n1 echo < <(seq 20) | sort -n | tail -n 1
        touch -d 2020-01-01 old && find . -name old ! -newermt 2020-01-02
    """
    lines = await box.good(script)
    assert lines == [
        "200000",
        "../out/a/b/f",
        "../out/a/fifo",
        "b/f",
        "2",
        "left,right",
        "2daeb1f3",
        "1",
        "20",
        "./old",
    ]


JOBS = """
    set -m
    sleep 1000 | sleep 1001 &
    server=$!
    jobs | grep -c Running
    kill -STOP %1
    until jobs | grep -q Stopped; do :; done
    bg %1 > /dev/null
    kill %1
    wait $server || echo $?
"""


async def test_bash_controls_its_jobs(standard):
    """A pipeline in the background is stopped, resumed and ended as one, by `kill %1`."""
    outcome = await standard.run(JOBS)
    assert (outcome.exit_code, outcome.stdout.kept) == (0, b"1\n143\n"), outcome.stderr.kept


async def test_bash_at_level_container_is_told_that_a_job_is_no_group(container):
    """The jail is one process group, which is how it is ended; `kill $!` does what %1 cannot."""
    outcome = await container.run("set -m; sleep 1000 & kill %1")
    assert outcome.exit_code == 1
    assert b"Operation not permitted" in outcome.stderr.kept
    lines = await container.good("sleep 1000 & kill $!; wait $! || echo $?")
    assert lines == ["143"]


@pytest.mark.parametrize("level", ["standard", "container"])
async def test_timeout_ends_what_it_started(workspace, level):
    """coreutils' timeout makes a group of its own and signals it: it has to end its child."""
    box = Box(workspace, level)
    outcome = await box.run("timeout 0.2 sleep 1000 || echo $?")
    assert outcome.stdout.kept == b"124\n"


async def test_curl_without_a_network_fails_at_once(box):
    """An error in a moment is something that a model can read; a hang is not."""
    need("curl")
    outcome = await box.run("curl -sS --max-time 20 http://192.0.2.1/")
    assert outcome.exit_code == 7
    assert b"curl: (7)" in outcome.stderr.kept
    assert outcome.usage.wall_s < 10


async def test_numpy_computes_with_its_threads(box):
    """Its libraries start a thread for each core and map memory by the gigabyte."""
    source = """
        try:
            import numpy
        except ModuleNotFoundError:
            print("no numpy here")
        else:
            a = numpy.arange(250_000.0).reshape(500, 500)
            print((a @ a.T).shape)
    """
    box.write({"compute.py": source})
    (line,) = await box.good('"$PYTHON" compute.py')
    assert line in ("(500, 500)", "no numpy here")
