"""Peers in a process of their own: started once, asked line by line. Standard library only.

`helper.py MODE FOLDER INTERPRETER` with the modes `fork`, `fork_json`, `pool_spawn`,
`pool_forkserver`, `sandlock_run` and `sandlock_fork`. A line `{"n": 1}` is one call, answered by
its value and times; `{"seconds": 1, "at_once": 4}` is a run of calls, answered by how many and how
long.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SETTLE_S = 0.06
"""After a worker has ended, its successor starts: not while the next peer is measured."""


class Fork:
    """Fork and wait in a small process: what any fresh process costs at least."""

    def __init__(self, folder: str) -> None:
        pass

    def call(self, n: int) -> dict[str, Any]:
        """A child that does nothing at all."""
        begun = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        ended_s = time.perf_counter() - begun
        assert status == 0
        return {"value": {"n": n}, "ended_s": ended_s}

    def burst(self, seconds: float, at_once: int) -> int:
        """As many as fit, so many of them at once."""
        until, running, done = time.perf_counter() + seconds, 0, 0
        while True:
            while running < at_once and time.perf_counter() < until:
                if os.fork() == 0:
                    os._exit(0)
                running += 1
            if not running:
                return done
            os.waitpid(-1, 0)
            running -= 1
            done += 1


class ForkJson:
    """The job in a forked child; the function was loaded before, nothing is confined."""

    def __init__(self, folder: str) -> None:
        sys.path.insert(0, folder)
        from handler import handler  # type: ignore[import-not-found]  # the benchmark writes it

        self.handler: Callable[..., Any] = handler

    def start(self, n: int) -> tuple[int, int]:
        """A child with its request; its pid, and where it answers."""
        asked, asking = os.pipe()
        answered, answering = os.pipe()
        os.write(asking, json.dumps({"n": n}).encode())
        os.close(asking)
        pid = os.fork()
        if pid == 0:
            request = json.loads(os.read(asked, 1 << 16))
            os.write(answering, json.dumps(self.handler(**request)).encode())
            os._exit(0)
        os.close(asked)
        os.close(answering)
        return pid, answered

    def call(self, n: int) -> dict[str, Any]:
        """One, and when its answer was whole."""
        begun = time.perf_counter()
        pid, answered = self.start(n)
        text = read_all(answered)
        result_s = time.perf_counter() - begun
        os.waitpid(pid, 0)
        ended_s = time.perf_counter() - begun
        return {"value": json.loads(text), "result_s": result_s, "ended_s": ended_s}

    def burst(self, seconds: float, at_once: int) -> int:
        """As many as fit, so many of them at once; each answer is looked at."""
        until, done = time.perf_counter() + seconds, 0
        running: deque[tuple[int, int, int]] = deque()
        while True:
            while len(running) < at_once and time.perf_counter() < until:
                running.append((done + len(running), *self.start(done + len(running))))
            if not running:
                return done
            n, pid, answered = running.popleft()
            assert json.loads(read_all(answered)) == {"n": n}
            os.waitpid(pid, 0)
            done += 1


class Pool:
    """ProcessPoolExecutor(max_tasks_per_child=1): a fresh interpreter, confined by nothing."""

    def __init__(self, folder: str, method: str) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self.context = multiprocessing.get_context(method)
        self.make = ProcessPoolExecutor
        sys.path.insert(0, folder)
        self.one = self.make(1, mp_context=self.context, max_tasks_per_child=1)
        self.one.submit(in_worker, folder, "{}").exception()
        self.folder = folder

    def call(self, n: int) -> dict[str, Any]:
        """One, by a worker that was started ahead."""
        time.sleep(SETTLE_S)
        begun = time.perf_counter()
        pid, text = self.one.submit(in_worker, self.folder, json.dumps({"n": n})).result()
        result_s = time.perf_counter() - begun
        wait_for_end(pid)
        ended_s = time.perf_counter() - begun
        time.sleep(SETTLE_S)
        return {"value": json.loads(text), "result_s": result_s, "ended_s": ended_s}

    def burst(self, seconds: float, at_once: int) -> int:
        """As many as fit, with so many workers."""
        from concurrent.futures import FIRST_COMPLETED, wait

        until, done = time.perf_counter() + seconds, 0
        with self.make(at_once, mp_context=self.context, max_tasks_per_child=1) as pool:
            running: set[Any] = set()
            while True:
                while len(running) < at_once and time.perf_counter() < until:
                    running.add(pool.submit(in_worker, self.folder, json.dumps({"n": 7})))
                if not running:
                    return done
                over, running = wait(running, return_when=FIRST_COMPLETED)
                for one in over:
                    assert json.loads(one.result()[1]) == {"n": 7}
                    done += 1


class Sandlock:
    """sandlock: the file system by Landlock, no network, its own filter of system calls."""

    def __init__(self, folder: str, fork: bool) -> None:
        from sandlock import Sandbox  # type: ignore[import-not-found]  # a peer, not a dependency

        self.interpreter = os.path.realpath(sys.argv[3])
        prefix = os.path.dirname(os.path.dirname(self.interpreter))
        readable = [*("/usr", "/lib", "/lib64", "/bin", "/proc", "/dev"), prefix, folder]
        self.options = {
            "fs_readable": [path for path in readable if os.path.exists(path)],
            "fs_writable": [],
            "clean_env": True,
            "max_processes": 256,
        }
        self.make, self.folder = Sandbox, folder
        if fork:
            self.inner = ForkJson(folder)
            self.call, self.burst = self.call_forked, self.burst_forked
        else:
            self.call, self.burst = self.call_run, self.burst_run

    def run(self, sandbox: Any, n: int) -> Any:
        """The job as a program; its request is an argument, for `run` has no standard input."""
        program = [self.interpreter, "-I", "-S", "-c", BY_ARGUMENT]
        result = sandbox.run([*program, self.folder, json.dumps({"n": n})])
        if not result.success:
            raise RuntimeError(f"{result.error} {result.stderr!r}")
        return json.loads(result.stdout)

    def call_run(self, n: int) -> dict[str, Any]:
        """One fresh interpreter."""
        begun = time.perf_counter()
        value = self.run(self.make(**self.options), n)
        return {"value": value, "ended_s": time.perf_counter() - begun}

    def burst_run(self, seconds: float, at_once: int) -> int:
        """As many as fit, by a thread for each of those at once."""
        import threading

        until, counts, errors = time.perf_counter() + seconds, [0] * at_once, []

        def work(place: int) -> None:
            try:
                while time.perf_counter() < until:
                    assert self.run(self.make(**self.options), place) == {"n": place}
                    counts[place] += 1
            except Exception as error:  # noqa: BLE001  # said below, by the thread that is heard
                errors.append(error)

        threads = [threading.Thread(target=work, args=(place,)) for place in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return sum(counts)

    def forked(self, first: int, count: int) -> tuple[list[Any], float]:
        """So many clones of one confined process, and when the last answer was whole."""
        begun = time.perf_counter()
        answered, answering = os.pipe()
        requests = [json.dumps({"n": first + place}) for place in range(count)]

        def work(clone: int) -> None:
            answer = self.inner.handler(**json.loads(requests[clone]))
            os.write(answering, json.dumps(answer).encode() + b"\n")

        sandbox = self.make(init_fn=lambda: None, work_fn=work, **self.options)
        clones = sandbox.fork(count)
        os.close(answering)
        # Each clone holds a copy of it: at its end all of them have ended.
        text = read_all(answered)
        ended_s = time.perf_counter() - begun
        del clones
        return [json.loads(line) for line in text.splitlines()], ended_s

    def call_forked(self, n: int) -> dict[str, Any]:
        """One clone of a template made for it: nothing is shared between two calls."""
        values, ended_s = self.forked(n, 1)
        return {"value": values[0], "ended_s": ended_s}

    def burst_forked(self, seconds: float, at_once: int) -> int:
        """As many as fit, each batch cloned from one template."""
        until, done = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            values, _ = self.forked(done, at_once)
            assert sorted(value["n"] for value in values) == list(range(done, done + at_once))
            done += at_once
        return done


BY_ARGUMENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
request = json.loads(sys.argv[2])
from handler import handler
print(json.dumps(handler(**request)))
"""


def in_worker(folder: str, text: str) -> tuple[int, str]:
    """The job, in a worker of the pool."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from handler import handler

    return os.getpid(), json.dumps(handler(**json.loads(text)))


def wait_for_end(pid: int) -> None:
    """Until a process is gone, whoever reaps it."""
    import select

    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll()
    os.close(fd)


def read_all(fd: int) -> bytes:
    """To its end, and close it."""
    parts = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    os.close(fd)
    return b"".join(parts)


def peer(mode: str, folder: str) -> Any:
    """The one that was asked for."""
    if mode == "fork":
        return Fork(folder)
    if mode == "fork_json":
        return ForkJson(folder)
    kind, _, how = mode.partition("_")
    return Pool(folder, how) if kind == "pool" else Sandlock(folder, how == "fork")


def main() -> None:
    """Answer until the questions end. What goes wrong is an answer too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        asked = peer(sys.argv[1], sys.argv[2])
    except Exception as error:  # noqa: BLE001  # the reason why a peer is missing
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "seconds" in request:
                begun = time.perf_counter()
                done = asked.burst(request["seconds"], request["at_once"])
                answer = {"calls": done, "took_s": time.perf_counter() - begun}
            else:
                answer = asked.call(request["n"])
        except Exception as error:  # noqa: BLE001  # the reason why a peer is missing
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    if isinstance(asked, Pool):
        # Its workers and servers outlive it otherwise.
        asked.one.shutdown()


if __name__ == "__main__":
    main()
