"""One suite of promises, kept under trio, under asyncio, and by plain code."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio

from toolcell import Answer, CallContext, Executor, Limits, ToolCall, ToolRegistry, ToolResult
from toolcell._audit_read import calls
from toolcell._events import Event, Output, Started
from toolcell._loops.supervisor import shared
from toolcell.approval import ApprovalRequest, from_callback, unsafe_approve_all
from toolcell.audit import read, verify
from toolcell.bridges.blocking import BlockingExecutor

from .conftest import Ledger, left_below

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A workspace and a state folder; the test leaves no descriptor, process or thread."""
    (tmp_path / "ws").mkdir()
    shared().home()  # it stays, for whoever comes next
    before = Ledger.now()
    yield tmp_path.resolve()
    after = Ledger.after(before)
    assert after.processes <= before.processes
    assert after.threads <= before.threads
    assert len(after.descriptors) <= len(before.descriptors), after.descriptors - before.descriptors


def options(place: Path, **more: Any) -> dict[str, Any]:
    defaults = {"approver": unsafe_approve_all, "limits": Limits(wall_s=60)}
    return defaults | more | {"workspace": place / "ws", "state_dir": place / "state"}


def endings(place: Path) -> list[str | None]:
    """How each recorded call ended; each has to have ended, once."""
    verdict = verify(place / "state")
    assert verdict.ok
    assert not verdict.dangling
    return [entry["kind"] for entry in read(place / "state") if entry["record"] == "terminal"]


def marker() -> str:
    """How long a child sleeps, in seconds, by which it is known among all processes."""
    return str(random.randint(10**8, 10**9))


def alive(marker: str) -> list[int]:
    """The processes with this word in their command line."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


def text(result: ToolResult) -> str:
    assert result.stdout is not None
    return result.stdout.text()


class Hanging:
    """A call that never ends by itself, with a child that has run away from its session."""

    def __init__(self) -> None:
        self.marker = marker()
        self.started = threading.Event()
        command = f"setsid sh -c 'echo up; sleep {self.marker}; :' & sleep 1000"
        self.given = ("shell", {"command": command})

    def seen(self, name: str, chunk: bytes) -> None:
        assert alive(self.marker)
        self.started.set()


# -- three ways to drive the same promises ---------------------------------------------------


class Driver:
    """How one kind of program opens an executor, calls it, and takes a call back."""

    name: str
    cancelled: type[BaseException]

    def is_cancelled(self, said: BaseException) -> bool:
        """Whether this is what a call that was taken back comes to, and nothing else."""
        if isinstance(said, BaseExceptionGroup):
            return said.split(self.cancelled)[1] is None
        return isinstance(said, self.cancelled)

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def open(self, **given: Any) -> AsyncIterator[Any]:
        async with Executor(**given) as executor:
            yield executor

    async def together(self, works: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        raise NotImplementedError

    async def taken_back(
        self, executor: Any, work: Callable[[], Awaitable[Any]], started: threading.Event
    ) -> BaseException:
        """Begin, cancel once it has started, and give what came of it."""
        raise NotImplementedError

    def callback(self, plain: Callable[..., Any]) -> Any:
        """An async callback as this kind of program would write it."""
        raise NotImplementedError

    async def events(self, executor: Any, *given: Any, until: type | None = None) -> list[Event]:
        """What a call is seen to do, up to the first event of that kind; then it is left."""
        seen: list[Event] = []
        async with executor.stream(*given) as events:
            async for event in events:
                seen.append(event)
                if until is not None and isinstance(event, until):
                    break
        return seen


class OnTrio(Driver):
    name, cancelled = "trio", trio.Cancelled

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        return trio.run(main)

    async def together(self, works: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        results: dict[int, Any] = {}

        async def one(number: int) -> None:
            results[number] = await works[number]()

        async with trio.open_nursery() as nursery:
            for number in range(len(works)):
                nursery.start_soon(one, number)
        return [results[number] for number in range(len(works))]

    async def taken_back(
        self, executor: Any, work: Callable[[], Awaitable[Any]], started: threading.Event
    ) -> BaseException:
        said: list[BaseException] = []

        async def one() -> None:
            try:
                await work()
            except BaseException as error:
                said.append(error)
                raise
            finally:
                started.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            await trio.to_thread.run_sync(started.wait)
            nursery.cancel_scope.cancel()
        return said[0]

    def callback(self, plain: Callable[..., Any]) -> Any:
        async def called(*given: Any) -> Any:
            await trio.lowlevel.checkpoint()
            return plain(*given)

        return called


class OnAsyncio(Driver):
    name, cancelled = "asyncio", asyncio.CancelledError

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        return asyncio.run(main())  # type: ignore[arg-type]  # it is a coroutine

    async def together(self, works: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        return list(await asyncio.gather(*(work() for work in works)))

    async def taken_back(
        self, executor: Any, work: Callable[[], Awaitable[Any]], started: threading.Event
    ) -> BaseException:
        task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: started.set())
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(BaseException) as said:  # noqa: PT011  # the test looks at what it is
            task.result()
        return said.value

    def callback(self, plain: Callable[..., Any]) -> Any:
        async def called(*given: Any) -> Any:
            await asyncio.sleep(0)
            return plain(*given)

        return called


class Plain(Driver):
    """Its executor's methods wait; each is dressed as a coroutine that never suspends."""

    name, cancelled = "plain", RuntimeError

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        coroutine: Any = main()
        with pytest.raises(StopIteration) as done:
            coroutine.send(None)
        return done.value.value

    @contextlib.asynccontextmanager
    async def open(self, **given: Any) -> AsyncIterator[Any]:
        with BlockingExecutor(**given) as executor:
            yield _Dressed(executor)

    async def together(self, works: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        results: dict[int, Any] = {}

        def one(number: int) -> None:
            results[number] = self.run(works[number])

        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[number] for number in range(len(works))]

    async def taken_back(
        self, executor: Any, work: Callable[[], Awaitable[Any]], started: threading.Event
    ) -> BaseException:
        said: list[BaseException] = []

        def one() -> None:
            try:
                self.run(work)
            except BaseException as error:  # noqa: BLE001  # looked at by the test
                said.append(error)
            finally:
                started.set()

        thread = threading.Thread(target=one)
        thread.start()
        started.wait()
        executor.plain.close()
        thread.join()
        return said[0]

    def callback(self, plain: Callable[..., Any]) -> Any:
        return plain

    async def events(self, executor: Any, *given: Any, until: type | None = None) -> list[Event]:
        seen: list[Event] = []
        with executor.stream(*given) as events:
            for event in events:
                seen.append(event)
                if until is not None and isinstance(event, until):
                    break
        return seen


class _Dressed:
    def __init__(self, plain: BlockingExecutor) -> None:
        self.plain = plain

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.plain, name)
        if not inspect.iscoroutinefunction(getattr(Executor, name)):
            return method

        async def dressed(*given: Any, **named: Any) -> Any:
            return method(*given, **named)

        return dressed


@pytest.fixture(params=[OnTrio(), OnAsyncio(), Plain()], ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


# -- the promises --------------------------------------------------------------------------


def test_calls_end_in_the_same_values_and_records(driver: Driver, place: Path) -> None:
    """Otherwise an ending that an agent acts on depends on who drives it."""

    async def main() -> None:
        async with driver.open(**options(place)) as box:
            done = await box.call("shell", {"command": "echo hi > made; echo said"})
            assert (done.success, done.exit_code, done.stdout.text()) == (True, 0, "said\n")
            assert [os.fspath(path) for path in done.files_changed] == ["made"]
            failed = await box.call("python", {"code": "1/0"})
            assert (failed.success, failed.error.kind) == (False, "exception")
            assert (await box.call("shel", {})).error.kind == "unknown_tool"
            assert box.check("shell", {"command": "true"}).outcome.value == "ask"
            assert (await box.hidden())[0] == ()
            with pytest.raises(ValueError, match="none such"):
                await box.call("shell", {"command": "true"}, workspace_mode="none such")
        late = await box.call("shell", {"command": "true"})
        assert late.error.kind == "executor_error"
        assert "not open" in late.error.message

    driver.run(main)
    assert (place / "ws" / "made").read_text() == "hi\n"
    assert endings(place) == [None, "exception", "unknown_tool"]


def test_a_call_that_is_taken_back_is_gone_and_recorded_when_that_returns(
    driver: Driver, place: Path
) -> None:
    """Otherwise a program goes on, or ends, while its tool still runs; see CASES 43."""
    hanging = Hanging()

    async def main() -> None:
        async with driver.open(**options(place, warm_jails=0)) as box:
            seen = driver.callback(hanging.seen)
            work = functools.partial(box.call, *hanging.given, sink=seen)
            said = await driver.taken_back(box, work, hanging.started)
            # At once: nothing is waited for here.
            assert (alive(hanging.marker), left_below(os.getpid())) == ([], set())
            assert endings(place) == ["cancelled"]
            assert driver.is_cancelled(said)

    driver.run(main)


def test_twenty_calls_at_once_are_twenty_jails_and_forty_records(
    driver: Driver, place: Path
) -> None:
    """Otherwise concurrency, which everybody wants first, mixes calls up."""

    async def main() -> None:
        async with driver.open(**options(place)) as box:
            given = [("shell", {"command": f"echo {number}"}) for number in range(20)]
            works = [functools.partial(box.call, *one) for one in given]
            results = await driver.together(works)
            assert [one.stdout.text() for one in results] == [f"{n}\n" for n in range(20)]
            results = await box.call_many(ToolCall(*one) for one in given[:2])
            assert [one.stdout.text() for one in results] == ["0\n", "1\n"]

    driver.run(main)
    assert endings(place) == [None] * 22


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [("async", False), ("plain", True), ("async", True)],
    ids=["async", "plain-from_callback", "async-from_callback"],
)
def test_a_person_is_asked_in_the_callers_own_way(
    driver: Driver, place: Path, kind: str, wrapped: bool
) -> None:
    """Otherwise an approver with a future of its loop's, or one that blocks, hangs every call."""
    asked: list[str] = []
    answers = {"yes": Answer.once(), "no": Answer.reject("not today")}

    def decide(request: ApprovalRequest) -> Answer:
        word = request.arguments["command"].split()[-1]
        asked.append(f"{word} {who.get()}")
        return answers[word]

    approver = decide if kind == "plain" else driver.callback(decide)

    async def main() -> None:
        chosen = from_callback(approver) if wrapped else approver
        async with driver.open(**options(place, approver=chosen)) as box:
            who.set("the caller")
            assert (await box.call("shell", {"command": "echo yes"})).success
            refused = await box.call("shell", {"command": "echo no"})
            assert (refused.error.kind, refused.error.why) == ("approval_rejected", "not today")
            plan = await box.prepare("shell", {"command": "echo later"})
            resumed = await box.resume(plan, Answer.once())
            assert resumed.stdout.text() == "later\n"

    contextvars.copy_context().run(driver.run, main)
    assert asked == ["yes the caller", "no the caller"]


def test_standard_input_and_a_sink_are_the_callers_own(driver: Driver, place: Path) -> None:
    """Otherwise what a program streams in and out must be rewritten for another loop."""
    got: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(3):
            if driver.name == "asyncio":
                await asyncio.sleep(0)
            else:
                await trio.lowlevel.checkpoint()
            yield b"%d\n" % number

    async def main() -> None:
        async with driver.open(**options(place)) as box:
            sink = driver.callback(lambda name, chunk: got.append(chunk))
            given = ("shell", {"command": "cat"})
            stdin: Any = chunks() if driver.name != "plain" else [b"0\n", b"1\n", b"2\n"]
            done = await box.call(*given, stdin=stdin, sink=sink)
            assert (done.stdout.text(), b"".join(got)) == ("0\n1\n2\n", b"0\n1\n2\n")
            done = await box.call(*given, stdin=b"all at once", sink=sink)
            assert done.stdout.text() == "all at once"
            # More than is read: it ends with the call.
            done = await box.call("shell", {"command": "head -c 1"}, stdin=b"x" * 1_000_000)
            assert done.stdout.text() == "x"

    driver.run(main)


def test_hooks_run_where_the_program_that_registered_them_runs(driver: Driver, place: Path) -> None:
    """Otherwise a hook that puts into a queue of its loop's does so from another thread."""
    seen: list[Any] = []

    def hook(*given: Any) -> None:
        seen.append((threading.get_ident(), len(given)))

    registry = ToolRegistry()
    registry.register_before_hook(driver.callback(hook))
    registry.register_after_hook(hook)

    async def main() -> None:
        async with driver.open(**options(place, registry=registry)) as box:
            assert (await box.call("shell", {"command": "true"})).success

    driver.run(main)
    assert [count for _, count in seen] == [2, 1]
    is_here = {ident == threading.get_ident() for ident, _ in seen}
    # Plain code waits meanwhile: its hooks run in the supervisor's thread.
    assert is_here == {driver.name != "plain"}


def test_a_failing_sink_ends_the_call_and_not_the_program(driver: Driver, place: Path) -> None:
    """Otherwise a defect of the program's leaves a jail, or a call without an end."""
    hanging = Hanging()

    def fails(name: str, chunk: bytes) -> None:
        raise KeyError("of the program's")

    async def main() -> None:
        async with driver.open(**options(place)) as box:
            done = await box.call(*hanging.given, sink=driver.callback(fails))
            assert done.error.kind == "executor_error"
            assert alive(hanging.marker) == []
            assert (await box.call("shell", {"command": "true"})).success

    driver.run(main)
    assert endings(place) == ["executor_error", None]


def test_a_stream_gives_every_event_and_leaving_it_early_ends_the_call(
    driver: Driver, place: Path
) -> None:
    """Otherwise live output is one loop's alone, or a closed window leaves its tool running."""
    hanging = Hanging()

    async def main() -> None:
        async with driver.open(**options(place, warm_jails=0)) as box:
            seen = await driver.events(
                box, "shell", {"command": "for n in 1 2 3; do echo $n; done"}
            )
            assert isinstance(seen[0], Started)
            assert "".join(one.text for one in seen if isinstance(one, Output)) == "1\n2\n3\n"
            assert isinstance(seen[-1], ToolResult)
            assert text(seen[-1]) == "1\n2\n3\n"
            seen = await driver.events(box, *hanging.given, until=Output)
            assert isinstance(seen[-1], Output)
            assert (alive(hanging.marker), left_below(os.getpid())) == ([], set())
            assert endings(place) == [None, "cancelled"]

    driver.run(main)


# -- what only one of them has -------------------------------------------------------------


def test_timeouts_and_groups_of_asyncio_wait_until_the_tree_is_gone(place: Path) -> None:
    """Otherwise the usual way to bound a call leaves the tool running."""

    async def main() -> None:
        async with Executor(**options(place)) as box:
            for bounded in (timeout, wait_for, group):
                hanging = Hanging()
                await bounded(box, hanging)
                assert alive(hanging.marker) == []
        assert endings(place) == ["cancelled"] * 3

    async def up(box: Executor, hanging: Hanging) -> None:
        async def sink(name: str, chunk: bytes) -> None:
            hanging.seen(name, chunk)

        await box.call(*hanging.given, sink=sink)

    async def timeout(box: Executor, hanging: Hanging) -> None:
        with pytest.raises(TimeoutError):
            await timed(up(box, hanging), hanging)

    async def timed(work: Any, hanging: Hanging) -> None:
        async with asyncio.timeout(None) as limit:
            task = asyncio.create_task(asyncio.to_thread(hanging.started.wait))
            now = asyncio.get_running_loop().time
            task.add_done_callback(lambda _: limit.reschedule(now()))
            await work

    async def wait_for(box: Executor, hanging: Hanging) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(up(box, hanging), 0.2)

    async def group(box: Executor, hanging: Hanging) -> None:
        async def fails() -> None:
            await asyncio.to_thread(hanging.started.wait)
            raise OSError("another task")

        with pytest.raises(ExceptionGroup):
            await grouped(up(box, hanging), fails())

    async def grouped(*works: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)

    asyncio.run(main())


async def test_one_executor_serves_its_own_loop_another_one_and_a_plain_thread(
    place: Path,
) -> None:
    """Otherwise a server with loops and threads needs a policy, a log and a limit for each."""

    async def from_asyncio(box: Executor) -> str:
        return text(await box.call("shell", {"command": "cat"}, stdin=b"asyncio"))

    async with Executor(**options(place)) as box:
        done = await box.call("shell", {"command": "cat"}, stdin=b"trio")
        other = await trio.to_thread.run_sync(lambda: asyncio.run(from_asyncio(box)))
    assert (text(done), other) == ("trio", "asyncio")
    assert endings(place) == [None, None]


def test_a_plain_approver_that_blocks_holds_up_nobody_else(place: Path) -> None:
    """Otherwise one question on a screen stops every other agent of the process."""
    asked, answered = threading.Event(), threading.Event()

    def approver(request: ApprovalRequest) -> Answer:
        if "slow" in request.arguments["command"]:
            asked.set()
            answered.wait()
        return Answer.once()

    said: list[str] = []
    with BlockingExecutor(**options(place, approver=approver)) as box:

        def slow() -> None:
            said.append(text(box.call("shell", {"command": "echo slow"})))

        thread = threading.Thread(target=slow)
        thread.start()
        asked.wait()
        assert box.call("shell", {"command": "echo quick"}).success
        assert said == []
        answered.set()
        thread.join()
    assert said == ["slow\n"]


def test_a_plain_executor_takes_what_the_other_one_takes() -> None:
    """Otherwise the two drift apart, and plain code cannot say what it needs to."""
    for name in ("call", "call_many", "prepare", "resume", "check", "changes_since", "admitted"):
        theirs = list(inspect.signature(getattr(Executor, name)).parameters)
        ours = list(inspect.signature(getattr(BlockingExecutor, name)).parameters)
        # `watch` is `stream`'s own way in.
        assert ours == [one for one in theirs if one != "watch"], name
    theirs = list(inspect.signature(Executor).parameters)
    assert list(inspect.signature(BlockingExecutor).parameters) == theirs


def test_plain_code_needs_no_block_and_a_closed_executor_stays_closed(place: Path) -> None:
    """Otherwise a script's first call is an error, or its last one opens what was closed."""
    box = BlockingExecutor(**options(place))
    shown = box.snapshot()
    assert "shell" in [each["name"] for each in shown.definitions]
    done = shown.settle(ToolCall("python", {"code": "'x' * 60_000"}))
    assert done.success
    (kept,) = done.retained
    page = box.read_retained(kept.handle, 59_990, context=None)
    assert (page.text[:1], page.next_offset) == ("x", None)
    with pytest.raises(LookupError):
        box.read_retained(kept.handle, context=CallContext(session_id="another"))
    box.close()
    box.close()
    late = box.call("python", {"code": "1"})
    assert "not open" in late.error_text
    with box:
        assert box.call("python", {"code": "1"}).success


PROGRAM = """
    import asyncio, os, signal, sys, threading
    from toolcell import Executor
    from toolcell.approval import unsafe_approve_all
    from toolcell.bridges.blocking import BlockingExecutor

    given = {"workspace": sys.argv[1], "state_dir": sys.argv[2], "approver": unsafe_approve_all}
    call = ("shell", {"command": f"setsid sh -c 'echo up; sleep {sys.argv[3]}; :' & sleep 1000"})
    up = threading.Event()

    def sink(name, chunk):
        up.set()

    async def interrupt(name, chunk):
        os.kill(os.getpid(), signal.SIGINT)
    """

DAEMON = """
    box = BlockingExecutor(**given)
    box.__enter__()

    def calls():
        try:
            box.call(*call, sink=sink)
        except RuntimeError:
            pass  # the thread may see it, or the process may be gone

    threading.Thread(target=calls, daemon=True).start()
    up.wait()
    print("done")
    """

PENDING = """
    async def main():
        global task
        box = await Executor(**given).__aenter__()
        task = asyncio.ensure_future(box.call(*call, sink=interrupt_not))
        await asyncio.to_thread(up.wait)

    async def interrupt_not(name, chunk):
        up.set()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    task._log_destroy_pending = False
    print("done")
    """

INTERRUPTED = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    with BlockingExecutor(**given) as box:
        child = os.fork()
        if child == 0:
            try:
                box.call(*call)
            except RuntimeError as error:
                assert "before a fork" in str(error)
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        try:
            box.call(*call, sink=interrupt)
        except KeyboardInterrupt:
            print("done")
    """

INTERRUPTED_ASYNCIO = """
    async def main():
        async with Executor(**given) as box:
            await box.call(*call, sink=interrupt)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("done")
    """


def test_a_program_that_ends_leaves_no_jail_and_no_open_record(place: Path) -> None:
    """Otherwise an exit hangs or crashes, or a tool outlives the program that called it."""
    programs = {
        "a daemon thread still calls": DAEMON,
        "a task was left pending": PENDING,
        "ctrl-c in plain code, after a fork": INTERRUPTED,
        "ctrl-c in asyncio": INTERRUPTED_ASYNCIO,
    }
    running = {}
    for name, source in programs.items():
        root, slept_s = place / name.replace(" ", "-").replace(",", ""), marker()
        (root / "ws").mkdir(parents=True)
        process = subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-c", dedent(PROGRAM) + dedent(source)),
                *(root / "ws", root / "state", slept_s),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        running[name] = (process, root, slept_s)
    for name, (process, root, slept_s) in running.items():
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "done\n", ""), name
        assert alive(slept_s) == [], name
        assert endings(root) == ["cancelled"], name
        assert all(call.terminal for call in calls(root / "state")), name
