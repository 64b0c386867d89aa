"""The supervisor's thread and the ways into it, with a small housed thing instead of jails."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from textwrap import dedent
from typing import Any

import pytest
import trio

from toolcell._loops import callbacks as _callbacks
from toolcell._loops import supervisor as _supervisor
from toolcell._loops.anywhere import (
    anywhere,
    entering,
    iterated_anywhere,
    leaving,
)
from toolcell._loops.callbacks import approver_at_home, at_home, for_trio, marshalled
from toolcell._loops.home import Home, Job, run_at, run_from_thread, running_loop
from toolcell._loops.iteration import HELD_ITEMS, PlainIteration
from toolcell._loops.supervisor import Supervisor, shared

flavour: contextvars.ContextVar[str] = contextvars.ContextVar("flavour", default="plain")


class Housed:
    """As an executor is: async methods that need trio, and a place where they run."""

    def __init__(self, callback: Any = None) -> None:
        self._home: Home | None = None
        self.callback = callback
        self.log: list[str] = []
        self.threads: set[int] = set()
        self.running = threading.Event()

    @entering
    async def __aenter__(self) -> Housed:
        await trio.lowlevel.checkpoint()
        self.log.append("entered")
        return self

    @leaving
    async def __aexit__(self, *_: object) -> None:
        self.log.append("left")

    @anywhere
    async def give(self, value: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.threads.add(threading.get_ident())
        return value

    @anywhere
    async def fail(self, error: BaseException) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    @anywhere
    async def flavour(self) -> str:
        return flavour.get()

    @anywhere
    async def hang(self, error: BaseException | None = None) -> None:
        try:
            self.running.set()
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
            self.log.append("cleaned up")
            if error is not None:
                raise error

    @anywhere
    async def finish(self) -> str:
        with trio.CancelScope(shield=True):
            self.running.set()
            await trio.to_thread.run_sync(self.callback)
        return "finished"

    @anywhere
    async def ask(self, *given: Any) -> Any:
        return await at_home(self.callback)(*given)

    @anywhere
    async def approve(self, request: Any) -> Any:
        said = approver_at_home(self.callback)(request)
        return await said if hasattr(said, "__await__") else said

    @anywhere
    async def feed(self, *, stdin: Any = None, sink: Any = None, stop_after: int = 99) -> list[Any]:
        taken = []
        async for item in stdin:
            taken.append(item)
            if sink is not None:
                await sink("stdout", item)
            if len(taken) == stop_after:
                break
        return taken

    @iterated_anywhere
    async def count(self, to: int, error: BaseException | None = None):
        try:
            for number in range(to):
                await trio.lowlevel.checkpoint()
                self.log.append(f"made {number}")
                yield number
            if error is not None:
                raise error
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            self.log.append("iterated")


# -- from asyncio --------------------------------------------------------------------------


def test_a_method_runs_in_the_supervisors_thread_and_its_value_is_the_very_same():
    """Otherwise an asyncio program could not use what needs trio, or would get a copy."""
    value, housed = object(), Housed()

    async def main() -> None:
        async with housed as entered:
            assert entered is housed
            assert await housed.give(value) is value
        assert await housed.give(value) is value

    asyncio.run(main())
    assert housed.log == ["entered", "left"]
    assert len(housed.threads) == 1
    assert threading.get_ident() not in housed.threads


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), KeyError("k"), ExceptionGroup("two", [OSError(1), ValueError(2)])],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_comes_back_as_the_very_same(error):
    """Otherwise a caller's `except ValueError` holds under one loop only."""

    async def main(housed: Housed) -> None:
        async with housed:
            with pytest.raises(type(error)) as caught:
                await housed.fail(error)
            assert caught.value is error

    asyncio.run(main(Housed()))
    with pytest.raises(type(error)) as caught:
        run_from_thread(shared().home(), functools.partial(Housed().fail, error))
    assert caught.value is error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_what_ends_a_program_ends_the_callers_and_not_the_supervisor(error):
    """Otherwise one callback that exits would take every other executor's calls with it."""
    with pytest.raises(type(error)):
        run_from_thread(shared().home(), functools.partial(Housed().fail, error))
    assert run_from_thread(shared().home(), functools.partial(Housed().give, 1)) == 1


def test_a_cancelled_task_goes_on_when_what_it_awaited_has_cleaned_up():
    """Otherwise a program goes on while its tool still writes."""

    async def main(housed: Housed) -> None:
        async with housed:
            task = asyncio.create_task(housed.hang())
            await asyncio.to_thread(housed.running.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert housed.log == ["entered", "cleaned up"]
            assert task.cancelled()

    asyncio.run(main(Housed()))


def test_a_second_cancel_does_not_cut_the_cleaning_up_short():
    """Otherwise an impatient program is left with half a cleanup."""
    go = threading.Event()

    async def main(housed: Housed) -> None:
        async with housed:
            task = asyncio.create_task(housed.finish())
            await asyncio.to_thread(housed.running.wait)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main(Housed(go.wait)))


def test_what_fails_while_it_is_cancelled_says_so():
    """Otherwise an error of the cleanup is lost, which within one loop it is not."""

    async def main(housed: Housed) -> None:
        async with housed:
            task = asyncio.create_task(housed.hang(OSError("disk")))
            await asyncio.to_thread(housed.running.wait)
            task.cancel()
            with pytest.raises(OSError, match="disk"):
                await task

    asyncio.run(main(Housed()))


def test_the_timeouts_and_groups_of_asyncio_keep_their_meaning():
    """Otherwise `asyncio.timeout` raises what nobody catches, or a group never ends."""

    async def grouped(housed: Housed) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(housed.hang())
            await asyncio.to_thread(housed.running.wait)
            group.create_task(housed.fail(ValueError("one")))

    async def main(housed: Housed) -> None:
        async with housed:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await housed.hang()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(housed.hang(), 0.01)
            assert "cleaned up" in housed.log
            housed.log.clear()
            housed.running.clear()
            with pytest.raises(ExceptionGroup) as caught:
                await grouped(housed)
            assert [str(error) for error in caught.value.exceptions] == ["one"]
            assert housed.log == ["cleaned up"]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(housed.give(number)) for number in range(50)]
            assert [task.result() for task in tasks] == list(range(50))

    asyncio.run(main(Housed()))


def test_a_coroutine_that_is_thrown_away_is_cancelled():
    """Otherwise a loop that was closed under its tasks leaves calls that nobody waits for."""
    housed = Housed()
    loop = asyncio.new_event_loop()
    task = loop.create_task(housed.hang())
    while not housed.running.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(RuntimeError):
        task.get_coro().throw(RuntimeError("thrown away"))
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's word would be a warning
    run_from_thread(shared().home(), functools.partial(until, lambda: "cleaned up" in housed.log))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await trio.lowlevel.checkpoint()


def test_context_variables_of_the_caller_are_seen_where_the_work_is_done():
    """Otherwise a trace of who called breaks at the bridge."""

    async def main(housed: Housed) -> None:
        async with housed:
            flavour.set("asyncio")
            assert await housed.flavour() == "asyncio"

    asyncio.run(main(Housed()))
    assert flavour.get() == "plain"


# -- where it lives ------------------------------------------------------------------------


async def test_under_trio_it_is_awaited_as_it_is():
    """Otherwise a program on trio pays for a bridge that it does not cross."""
    housed = Housed()
    async with housed:
        assert await housed.give(1) == 1
        assert housed.threads == {threading.get_ident()}
        with trio.CancelScope() as scope:
            scope.cancel()
            await housed.hang()
        assert [number async for number in housed.count(3)] == [0, 1, 2]
    assert housed._home is None


async def test_one_that_lives_under_trio_is_used_from_asyncio_threads_and_other_trio_runs():
    """Otherwise an executor that is shared belongs to the first loop that comes."""
    housed = Housed()

    async def from_asyncio() -> tuple[Any, list[int]]:
        return await housed.give("asyncio"), [number async for number in housed.count(3)]

    async def from_trio() -> Any:
        with trio.move_on_after(0.01) as scope:
            await housed.hang()
        assert scope.cancelled_caught
        assert "cleaned up" in housed.log
        with pytest.raises(OSError, match="disk"), trio.move_on_after(0.01):
            await housed.hang(OSError("disk"))
        return await housed.give("trio"), [number async for number in housed.count(3)]

    async with housed:
        home = housed._home
        assert home is not None
        assert await trio.to_thread.run_sync(asyncio.run, from_asyncio()) == ("asyncio", [0, 1, 2])
        assert await trio.to_thread.run_sync(trio.run, from_trio) == ("trio", [0, 1, 2])
        said = await trio.to_thread.run_sync(
            run_from_thread, home, functools.partial(housed.give, "plain")
        )
        assert said == "plain"
    assert housed.threads == {threading.get_ident()}


def test_entering_it_in_a_second_loop_is_refused():
    """Otherwise its parts would belong to two loops at once."""

    async def main(housed: Housed) -> None:
        async with housed:
            with pytest.raises(RuntimeError, match="another event loop"):
                await housed.__aenter__()

    asyncio.run(main(Housed()))


async def test_leaving_ends_what_others_still_have_running():
    """Otherwise the log is closed under calls that are not recorded yet."""
    housed = Housed()
    said: list[BaseException] = []

    def elsewhere() -> None:
        assert housed._home is not None
        try:
            run_from_thread(housed._home, housed.hang)
        except RuntimeError as error:
            said.append(error)

    async with trio.open_nursery() as nursery:
        async with housed:
            nursery.start_soon(trio.to_thread.run_sync, elsewhere)
            await trio.to_thread.run_sync(housed.running.wait)
        assert housed.log == ["entered", "cleaned up", "left"]
    assert "was closed" in str(said[0])


def test_one_that_was_entered_while_its_task_was_cancelled_is_left_again():
    """Otherwise its log stays open, and its thread, with nobody to close them."""
    inside, go = threading.Event(), threading.Event()

    class Slow(Housed):
        @entering
        async def __aenter__(self) -> Housed:
            with trio.CancelScope(shield=True):
                inside.set()
                await trio.to_thread.run_sync(go.wait)
            self.log.append("entered")
            return self

    housed = Slow()

    async def main() -> None:
        async def enters() -> None:
            async with housed:
                housed.log.append("never here")

        task = asyncio.create_task(enters())
        await asyncio.to_thread(inside.wait)
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (housed.log, housed._home) == (["entered", "left"], None)

    asyncio.run(main())


async def test_a_job_that_was_interrupted_before_it_was_posted_is_not_waited_for():
    """Otherwise Ctrl-C at the wrong moment hangs for ever."""
    done = trio.Event()
    job = Job(Home.here(), functools.partial(Housed().give, 1), done.set)
    job.cancel()
    await done.wait()
    with pytest.raises(RuntimeError, match="before it began"):
        job.result()
    ended = Job(await trio.to_thread.run_sync(trio.run, here), Housed().hang, lambda: None)
    ended.cancel()
    assert ended.is_done
    with pytest.raises(RuntimeError, match="has ended"):
        ended.result()


def test_leaving_under_asyncio_ends_the_tasks_that_still_wait():
    """As above; and a task that was cancelled as well is cancelled, not told of the closing."""

    async def main(housed: Housed) -> None:
        async with housed:
            tasks = [asyncio.create_task(housed.hang()) for _ in range(3)]
            await asyncio.to_thread(housed.running.wait)
            await asyncio.sleep(0)
            tasks[0].cancel()
        kinds = [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)]
        assert kinds == [asyncio.CancelledError, RuntimeError, RuntimeError]
        assert housed.log[-1] == "left"

    asyncio.run(main(Housed()))


async def test_a_home_whose_loop_has_ended_refuses_at_once():
    """Otherwise a call waits for ever for a loop that is gone."""
    home = await trio.to_thread.run_sync(trio.run, here)
    with pytest.raises(RuntimeError, match="has ended"):
        await run_at(home, functools.partial(Housed().give, 1))


async def here() -> Home:
    return Home.here()


async def test_jobs_of_a_loop_that_ends_are_cancelled_and_say_so():
    """Otherwise whoever waits for them waits for ever."""
    housed, said = Housed(), []

    async def main() -> None:
        home = Home.here()
        threading.Thread(target=wait, args=(home,)).start()
        await trio.to_thread.run_sync(housed.running.wait)

    def wait(home: Home) -> None:
        with pytest.raises(RuntimeError, match="has ended") as caught:
            run_from_thread(home, housed.hang)
        said.append(caught.value)
        done.set()

    done = threading.Event()
    await trio.to_thread.run_sync(trio.run, main)
    await trio.to_thread.run_sync(done.wait)
    assert housed.log == ["cleaned up"]
    assert len(said) == 1


async def test_a_job_that_comes_when_trio_takes_no_more_tasks_is_refused():
    """Otherwise that moment crashes the whole run of trio."""
    said: list[str] = []

    async def main() -> None:
        home = Home.here()

        async def last() -> AsyncIterator[None]:
            try:
                yield
            finally:
                # After the system tasks, before the run is over.
                trio.lowlevel.current_trio_token().run_sync_soon(late, home)

        agen = last()
        await anext(agen)
        kept.append(agen)

    def late(home: Home) -> None:
        job = Job(home, functools.partial(Housed().give, 1), lambda: None)
        home.begin(job, contextvars.copy_context())
        with pytest.raises(RuntimeError) as caught:
            job.result()
        said.append(str(caught.value))

    kept: list[Any] = []
    await trio.to_thread.run_sync(trio.run, main)
    assert said == ["the event loop that this executor lives in has ended"]


def test_without_a_loop_there_is_a_reason():
    """Otherwise whoever drives coroutines by hand sees an attribute error."""
    coroutine = Housed().give(1)
    with pytest.raises(RuntimeError, match="no event loop"):
        coroutine.send(None)


def test_under_no_known_loop_asyncio_is_not_even_imported(monkeypatch):
    """Otherwise every command line pays for it."""
    monkeypatch.delitem(sys.modules, "asyncio")
    assert running_loop() is None


async def test_a_home_that_is_left_takes_nothing_more():
    """Otherwise a call begins while the log is being closed."""
    home = Home.here()
    await home.drain()
    with pytest.raises(RuntimeError, match="was closed"):
        await run_at(home, functools.partial(Housed().give, 1))
    housed = Housed()
    await housed.__aexit__()
    assert housed.log == ["left"]


# -- callbacks -----------------------------------------------------------------------------


def test_a_callback_runs_in_the_loop_that_entered_and_in_the_callers_context():
    """Otherwise what asyncio users write, with their futures and queues, fails or hangs."""
    seen: list[Any] = []

    async def ask(*given: Any) -> str:
        await asyncio.sleep(0)
        seen.append((asyncio.get_running_loop(), flavour.get(), threading.get_ident(), given))
        return "yes"

    async def main() -> None:
        async with Housed(ask) as housed:
            flavour.set("asyncio")
            assert await housed.ask(1, 2) == "yes"
            assert await housed.approve(3) == "yes"
            housed.callback = lambda *given: seen.append(threading.get_ident())
            await housed.ask()
            housed.callback = lambda request: ask(request)
            assert await housed.approve(4) == "yes"
            housed.callback = lambda request: "plain"
            assert await housed.approve(5) == "plain"
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        assert seen[0] == (loop, "asyncio", ident, (1, 2))
        assert seen[1] == (loop, "asyncio", ident, (3,))
        assert seen[2] == ident
        assert seen[3] == (loop, "asyncio", ident, (4,))

    asyncio.run(main())


def test_an_approver_with_an_async_call_and_one_of_our_own_find_their_loops():
    """Otherwise an object that asks, or our own asking on the terminal, runs in the wrong one."""

    class Asks:
        async def __call__(self, request: Any) -> str:
            return f"asyncio {asyncio.get_running_loop() is not None}"

    @for_trio
    async def ours(request: Any) -> str:
        await trio.lowlevel.checkpoint()
        return "trio"

    async def main() -> None:
        async with Housed(Asks()) as housed:
            assert await housed.approve(1) == "asyncio True"
            housed.callback = ours
            assert await housed.approve(1) == "trio"
            assert await housed.ask(1) == "trio"

    asyncio.run(main())


async def test_without_a_bridge_a_callback_is_itself():
    """Otherwise a program on trio pays for a bridge that it does not cross."""
    callback = len
    assert at_home(callback) is callback
    assert approver_at_home(callback) is callback
    assert marshalled(callback, None) is callback


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(4)], ids=["error", "exit"])
def test_what_a_callback_raises_comes_to_whoever_called_it(error):
    """Otherwise a callback that fails is silent, or stops the loop in the middle of it."""

    async def fails(*_: Any) -> None:
        raise error

    async def main() -> None:
        async with Housed(fails) as housed:
            with pytest.raises(type(error)) as caught:
                await housed.ask()
            assert caught.value is error

    asyncio.run(main())


def test_a_cancelled_call_cancels_its_callback_and_waits_for_it():
    """Otherwise a question stays open that nobody waits for the answer of."""
    log: list[str] = []

    async def main() -> None:
        asked = asyncio.Event()

        async def ask(last: BaseException | None = None) -> None:
            asked.set()
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0)
                log.append("callback cleaned up")
                if last is not None:
                    raise last

        async with Housed(ask) as housed:
            task = asyncio.create_task(housed.ask())
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert log == ["callback cleaned up"]
            asked.clear()
            task = asyncio.create_task(housed.ask(OSError("disk")))
            await asked.wait()
            task.cancel()
            with pytest.raises(OSError, match="disk"):
                await task

    asyncio.run(main())


def test_a_callback_that_is_cancelled_before_it_begins_is_not_waited_for(monkeypatch, caplog):
    """Otherwise each such cancel takes as long as the longest cleaning up may."""
    monkeypatch.setattr(_callbacks, "GRACE_S", 60)
    done = threading.Event()
    loop = asyncio.new_event_loop()

    async def cancelled() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await marshalled(len, loop)("abc")
        done.set()

    thread = threading.Thread(target=trio.run, args=(cancelled,))
    thread.start()
    while not done.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    thread.join()
    loop.close()
    assert caplog.text == ""


def test_a_callback_that_is_cancelled_by_others_is_no_cancel_of_the_call():
    """Otherwise a call looks cancelled that nobody cancelled."""

    async def ask() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def main() -> None:
        async with Housed(ask) as housed:
            with pytest.raises(RuntimeError, match="cancelled in its own loop"):
                await housed.ask()

    asyncio.run(main())


async def test_a_callback_whose_loop_is_gone_fails_and_one_that_is_stuck_is_left(
    monkeypatch, caplog
):
    """Otherwise a tree that must be killed waits for a loop that never runs again."""
    loop = asyncio.new_event_loop()
    monkeypatch.setattr(_callbacks, "GRACE_S", 0.01)
    with trio.move_on_after(0.01) as scope:
        await marshalled(len, loop)("abc")
    assert scope.cancelled_caught
    assert "still runs after" in caplog.text
    # What waits in it is cancelled, and so not even begun, when it runs after all.
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        await marshalled(len, loop)("abc")


# -- iteration -----------------------------------------------------------------------------


def test_what_a_caller_gives_to_read_and_to_call_is_run_in_its_own_loop():
    """Otherwise an asyncio stream cannot be a tool's standard input."""
    seen: list[Any] = []

    async def chunks(error: BaseException | None = None):
        try:
            for number in range(5):
                async with asyncio.timeout(5):
                    await asyncio.sleep(0)
                    yield number
            if error is not None:
                raise error
        finally:
            seen.append("closed")

    async def sink(stream: str, item: Any) -> None:
        await asyncio.sleep(0)
        seen.append((stream, item, threading.get_ident()))

    async def main() -> None:
        ident = threading.get_ident()
        async with Housed() as housed:
            assert await housed.feed(stdin=chunks(), sink=sink) == [0, 1, 2, 3, 4]
            assert [one for one in seen if one != "closed"] == [
                ("stdout", n, ident) for n in range(5)
            ]
            with pytest.raises(OSError, match="disk"):
                await housed.feed(stdin=chunks(OSError("disk")))
            seen.clear()
            # Read no further than half: it ends with the call.
            assert await housed.feed(stdin=chunks(), stop_after=2) == [0, 1]
            while seen != ["closed"]:
                await asyncio.sleep(0)

    asyncio.run(main())


def test_an_iteration_crosses_in_order_and_raises_what_was_raised():
    """Otherwise live output is scrambled, or ends as if all were well."""

    async def main() -> None:
        async with Housed() as housed:
            assert [number async for number in housed.count(100)] == list(range(100))
            numbers = housed.count(3, OSError("disk"))
            assert [await anext(numbers) for _ in range(3)] == [0, 1, 2]
            with pytest.raises(OSError, match="disk"):
                await anext(numbers)

    asyncio.run(main())
    housed = Housed()
    home = shared().home()
    count: Any = functools.partial(housed.count, 100)
    assert list(PlainIteration(home, count)) == list(range(100))


class Numbers:
    """An async iterator that has nothing to close."""

    def __init__(self, to: int) -> None:
        self.left = list(range(to))

    def __aiter__(self) -> Numbers:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


def test_an_iterator_that_cannot_be_closed_crosses_both_ways():
    """Otherwise only generators can be read, and streams of other libraries cannot."""

    async def main() -> None:
        async with Housed() as housed:
            assert await housed.feed(stdin=Numbers(5)) == [0, 1, 2, 3, 4]
            unread: Any = housed.count(3)
            await unread.aclose()
            with pytest.raises(TypeError):
                await housed.feed(stdin=b"no async iterable, as it is")

    asyncio.run(main())
    home = shared().home()
    assert list(PlainIteration(home, functools.partial(Numbers, 5))) == [0, 1, 2, 3, 4]
    count: Any = functools.partial(Housed().count, 1, OSError("disk"))
    numbers = PlainIteration(home, count)
    assert next(numbers) == 0
    with pytest.raises(OSError, match="disk"):
        next(numbers)
    numbers.close()


def test_a_slow_reader_holds_up_whoever_writes_and_leaving_early_ends_it():
    """Otherwise a flood fills the memory, or a stream that nobody reads goes on for ever."""
    housed = Housed()

    async def main() -> None:
        async with housed:
            numbers: Any = housed.count(10_000)
            async with numbers:
                async for _ in numbers:
                    break
            with pytest.raises(StopAsyncIteration):
                await anext(numbers)
            assert housed.log[-1] == "iterated"
            assert 1 <= len(housed.log) - 2 <= 2 * HELD_ITEMS + 2

    asyncio.run(main())
    housed.log.clear()
    count: Any = functools.partial(housed.count, 10_000)
    with PlainIteration(shared().home(), count) as numbers:
        assert next(numbers) == 0
    assert list(numbers) == []
    assert housed.log[-1] == "iterated"


def test_a_task_that_is_cancelled_while_it_reads_leaves_nothing_running():
    """Otherwise a cancelled agent leaves its tool running."""
    housed = Housed()

    async def reads(got: asyncio.Event) -> None:
        async for _ in housed.count(10_000):
            got.set()
            await asyncio.sleep(3600)

    async def main() -> None:
        async with housed:
            got = asyncio.Event()
            task = asyncio.create_task(reads(got))
            await got.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
        assert "iterated" in housed.log

    asyncio.run(main())


# -- the thread ----------------------------------------------------------------------------


def test_many_loops_and_threads_share_one_thread():
    """Otherwise each of them pays for one, and their limits do not add up."""
    housed = [Housed() for _ in range(8)]

    async def uses(one: Housed) -> list[int]:
        async with one:
            return list(await asyncio.gather(*(one.give(n) for n in range(20))))

    def plain(one: Housed) -> list[int]:
        return [run_from_thread(shared().home(), functools.partial(one.give, n)) for n in range(20)]

    said: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda one=one: said.append(asyncio.run(uses(one))))
        for one in housed[:4]
    ] + [threading.Thread(target=lambda one=one: said.append(plain(one))) for one in housed[4:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [list(range(20))] * 8
    assert len(set.union(*(one.threads for one in housed))) == 1


def test_a_call_from_the_supervisors_own_thread_is_refused_and_not_a_deadlock():
    """Otherwise an approver that calls a tool stops every call of the process for ever."""

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="the very thread"):
            run_from_thread(shared().home(), functools.partial(Housed().give, 1))

    run_from_thread(shared().home(), inside)


def test_closing_ends_what_runs_and_the_next_use_starts_again():
    """Otherwise a thread stays that nobody wants, or none comes when one is wanted."""
    supervisor, housed, said = Supervisor(), Housed(), []
    assert supervisor.close()

    def wait() -> None:
        with pytest.raises(RuntimeError) as caught:
            run_from_thread(supervisor.home(), housed.hang)
        said.append(str(caught.value))

    thread = threading.Thread(target=wait)
    thread.start()
    housed.running.wait()
    old = supervisor.home()
    assert supervisor.close()
    thread.join()
    assert (said, housed.log) == (
        ["the event loop that this executor lives in has ended"],
        ["cleaned up"],
    )
    assert supervisor.close()
    with pytest.raises(RuntimeError, match="has ended"):
        run_from_thread(old, functools.partial(housed.give, 1))
    assert run_from_thread(supervisor.home(), functools.partial(housed.give, 1)) == 1
    supervisor.close_for_good()
    with pytest.raises(RuntimeError, match="exiting"):
        supervisor.home()


def test_a_thread_that_does_not_start_is_a_reason_and_no_hang(monkeypatch):
    """Otherwise the first call waits for ever for a loop that never came."""
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(args.exc_value))
    monkeypatch.setattr(Supervisor, "_main", None)
    said: list[Any] = []
    with pytest.raises(RuntimeError, match="did not start"):
        Supervisor().home()


def test_what_does_not_end_in_time_is_said(monkeypatch, caplog):
    """Otherwise an exit would hang, or leave silently."""
    monkeypatch.setattr(_supervisor, "EXIT_S", 0.01)
    supervisor, go = Supervisor(), threading.Event()
    housed = Housed(go.wait)
    thread = threading.Thread(target=run_from_thread, args=(supervisor.home(), housed.finish))
    thread.start()
    housed.running.wait()
    assert not supervisor.close(within_s=0.01)
    supervisor.close_for_good()
    assert "calls still run" in caplog.text
    go.set()
    assert supervisor.close()
    thread.join()


def test_a_forked_child_has_a_supervisor_of_its_own_and_no_use_of_its_parents_home():
    """Otherwise it waits for a thread that is not there."""
    source = """
        import functools, os, sys, warnings
        from toolcell._loops.home import run_from_thread
        from toolcell._loops.supervisor import shared
        warnings.simplefilter("ignore", DeprecationWarning)

        async def pid():
            return os.getpid()

        home = shared().home()
        assert run_from_thread(home, pid) == os.getpid()
        child = os.fork()
        if child == 0:
            try:
                run_from_thread(home, pid)
            except RuntimeError as error:
                assert "before a fork" in str(error)
                assert run_from_thread(shared().home(), pid) == os.getpid()
                sys.exit(7)
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert run_from_thread(home, pid) == os.getpid()
        """
    assert program(source).returncode == 0


EXITS = """
    import asyncio, functools, sys, threading, trio
    from toolcell._loops.home import run_from_thread
    from toolcell._loops.supervisor import shared

    running = threading.Event()

    async def hang():
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                # A thread is what a record needs, and what an exiting interpreter may refuse.
                await trio.to_thread.run_sync(print, "cleaned up")

    def wait():
        try:
            run_from_thread(shared().home(), hang)
        except RuntimeError as error:
            print("refused")

    async def left_pending():
        from toolcell._loops.home import run_at
        global task
        task = asyncio.create_task(run_at(shared().home(), hang))
        await asyncio.to_thread(running.wait)
    """


@pytest.mark.parametrize(
    ("name", "end", "code", "out"),
    [
        (
            "a daemon thread waits",
            "threading.Thread(target=wait, daemon=True).start(); running.wait()",
            0,
            {"cleaned up"},
        ),
        (
            "a loop is left as it is",
            "loop = asyncio.new_event_loop(); loop.run_until_complete(left_pending()); "
            "task._log_destroy_pending = False; loop.close(); sys.exit(5)",
            5,
            {"cleaned up"},
        ),
        ("nothing runs", "run_from_thread(shared().home(), trio.lowlevel.checkpoint)", 0, set()),
        ("nothing was ever started", "pass", 0, set()),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_at_the_interpreters_exit_what_runs_is_ended_first(name, end, code, out):
    """Otherwise an exit hangs, crashes, or leaves jails without their last record."""
    done = program(EXITS, end)
    assert (done.returncode, done.stderr) == (code, "")
    assert out <= set(done.stdout.splitlines()) <= {*out, "refused"}


def test_what_a_thread_does_that_python_waits_for_is_waited_for():
    """Otherwise a program whose main thread is done loses its other threads' calls."""
    done = program(
        """
        import functools, threading, time, trio
        from toolcell._loops.home import run_from_thread
        from toolcell._loops.supervisor import shared

        async def give(value):
            await trio.sleep(0.01)
            return value

        def work():
            for number in range(10):
                assert run_from_thread(shared().home(), functools.partial(give, number)) == number
            print("all ten")

        threading.Thread(target=work).start()
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "all ten\n", "")


@pytest.mark.parametrize("interrupts", [1, 2])
def test_an_interrupt_waits_for_the_cleaning_up_and_a_second_one_does_not(interrupts):
    """Otherwise Ctrl-C leaves jails running, or cannot be had when somebody means it."""
    source = f"""
        import os, signal, sys, threading, trio
        from toolcell._loops.home import run_from_thread
        from toolcell._loops.supervisor import shared

        async def hang():
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    if {interrupts} == 2:
                        os.kill(os.getpid(), signal.SIGINT)
                        await trio.to_thread.run_sync(gone_on.wait)
                    await trio.to_thread.run_sync(said.append, "cleaned up")

        said, gone_on = [], threading.Event()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run_from_thread(shared().home(), hang)
        except KeyboardInterrupt:
            print(*said, "interrupted")
            gone_on.set()
        """
    done = program(source)
    said = "cleaned up interrupted\n" if interrupts == 1 else "interrupted\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def program(*parts: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own; what it has to say, and how it ended."""
    source = "\n".join(dedent(part) for part in parts)
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", source],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
