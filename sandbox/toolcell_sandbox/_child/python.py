"""Runs a Python handler in the worker: import, decode, run, encode, flush, send, exit.

Whatever the handler raises becomes one frame; whatever else it does to its own process is seen
by the init. Nothing here is a boundary: this code shares the interpreter with the handler.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import sys
import types

from . import encode, frames, rlimits
from .state import FENCED, PROCESSES, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MESSAGE_MAX = 8_192
FRAMES_MAX = 40
_READ_BYTES = 1 << 16
_scratch_is_sized = True
_state: State | None = None
# Folders of frames that are ours; the supervisor adds to them.
_hidden = [os.path.dirname(os.path.abspath(__file__)), "<frozen importlib"]


def preload() -> None:
    """Load what every handler's run loads, in the process that it is forked from."""
    import importlib

    for name in ("_posixsubprocess", "resource"):
        importlib.import_module(name)
    _sha256()
    _watch_limits()


def begin(state: State) -> None:
    """From here on this process is a worker, and what it runs into is noted."""
    global _state
    _state = state


def rehearse(limits: dict[str, Any]) -> None:
    """Do once what every run does, with nothing in it."""
    rlimits.raise_fence(limits["memory_bytes"], limits["mapped_bytes"])
    rlimits.lift_fence()
    digest = _sha256()(_read(os.devnull)).hexdigest()
    module = types.ModuleType(digest)
    source = b"def f(a, *, b=None):\n    return {'a': a}\n"
    exec(compile(source, digest, "exec", dont_inherit=True), module.__dict__)
    adapter = _load_adapter(None)
    value = adapter(_resolve(module, "f"), {"a": [1, "b"]}, {})()
    frames.text({"ok": True, "value": encode.plain(value)})
    _flush()


def run(handler: dict[str, Any], result_fd: int, limits: dict[str, Any], state: State) -> int:
    """Run to the end and return the exit code that the process should have."""
    leader = os.getpid()
    # What is there by now is looked at no more: a first collection would touch all of it.
    gc.freeze()
    gc.enable()
    _reseed()
    sys.path.extend(handler["sys_path"])
    _hidden.extend(handler["hidden"])
    global _scratch_is_sized
    _scratch_is_sized = limits["disk_bytes"] is not None
    if rlimits.raise_fence(limits["memory_bytes"], limits["mapped_bytes"]) is not None:
        state.note(FENCED)
    say_last = _opened(handler, limits)
    try:
        message = _outcome(handler, state)
    except SystemExit as error:
        # SystemExit(0) is a result of None; with a number the process exits so, without a result.
        if error.code is None or error.code == 0:
            message = {"ok": True, "value": None}
        elif isinstance(error.code, int):
            with contextlib.suppress(BaseException):
                _flush()
            return error.code & 0xFF
        else:
            message = _described(error, state)
    except BaseException as error:
        message = _described(error, state)
    if os.getpid() != leader:
        # A fork of the handler's that came back here: it has no result, only an exit.
        with contextlib.suppress(BaseException):
            _flush()
        return 0 if message["ok"] else 1
    state.enter("flush")
    try:
        _flush()
    except BaseException as error:
        message = _described(error, state)
    rlimits.lift_fence()
    say_last()
    frames.send(result_fd, message)
    state.enter("done")
    # Whoever waits for the result need not wait for the end of this process as well.
    os.sched_yield()
    return 0


def _reseed() -> None:
    """Give this fork random numbers of its own where a module that was loaded ahead draws them.

    CPython's fork hooks see to its own (`random`); numpy's global generator has none. Generators
    that a module made for itself are its own affair: see the threat model.
    """
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _opened(handler: dict[str, Any], limits: dict[str, Any]) -> Callable[[], None]:
    """Open the handler's channel, where it has one; what is returned says its last word."""
    if not handler["channel"]:
        return lambda: None
    from . import channel

    return channel.open_at(channel.FD, limits["wall_s"]).finish


def _outcome(handler: dict[str, Any], state: State) -> dict[str, Any]:
    state.enter("import")
    target = _resolve(_load(handler), handler["qualname"])
    adapter = _load_adapter(handler["adapter"])
    state.enter("decode")
    thunk = adapter(target, handler["arguments"], handler["context"])
    state.enter("run")
    value = thunk()
    state.enter("encode")
    try:
        return {"ok": True, "value": encode.plain(value)}
    except encode.NotJsonable as error:
        return {"ok": False, "what": "invalid_output", "where": error.where, "message": error.why}


def _load(handler: dict[str, Any]) -> types.ModuleType:
    import importlib

    if handler["file"] is None:
        return importlib.import_module(handler["module"])
    name = handler["module"]
    source = _read(handler["file"])
    if handler["digest"] not in (None, _sha256()(source).hexdigest()):
        raise ImportError(
            f"{os.path.basename(handler['file'])} has changed since it was registered"
        )
    parent, _, _ = name.rpartition(".")
    if parent:
        importlib.import_module(parent)
    module = types.ModuleType(name)
    module.__file__ = handler["file"]
    module.__package__ = parent
    sys.modules[name] = module
    exec(compile(source, handler["file"], "exec", dont_inherit=True), module.__dict__)
    return module


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


@functools.cache
def _sha256() -> Callable[[bytes], Any]:
    """CPython's own code where it can be had: hashlib loads OpenSSL, into every jail."""
    import importlib

    for name in ("_sha2", "_sha256", "hashlib"):  # Before Python 3.12 it is the second.
        with contextlib.suppress(ImportError):
            found: Callable[[bytes], Any] = importlib.import_module(name).sha256
            return found
    raise ImportError("this Python has no SHA-256")


def _resolve(module: types.ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in filter(None, qualname.split(".")):
        found = getattr(found, part)
    return found


def _load_adapter(name: str | None) -> Callable[[Any, Any, Any], Callable[[], object]]:
    if name is None:
        return lambda target, arguments, context: lambda: target(**arguments)
    import importlib

    module, _, function = name.partition(":")
    found: Callable[[Any, Any, Any], Callable[[], object]]
    found = getattr(importlib.import_module(module), function)
    return found


def _flush() -> None:
    for stream in dict.fromkeys((sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        # A reader that is gone or a closed stream is the handler's own affair.
        if stream is not None and not getattr(stream, "closed", False):
            with contextlib.suppress(BrokenPipeError):
                stream.flush()


def _described(error: BaseException, state: State) -> dict[str, Any]:
    """What was raised, as plain data; hostile exceptions that break their own description too."""
    rlimits.lift_fence()
    try:
        return _facts(error, state)
    except BaseException as second:
        return {
            "ok": False,
            "what": "exception",
            "type": "Exception",
            "message": f"an exception that could not be described ({type(second)!r:.100})",
            "stage": state.stage,
        }


def _facts(error: BaseException, state: State) -> dict[str, Any]:
    expected = sys.modules.get("toolcell.errors")
    if expected is not None and isinstance(error, expected.ToolError):
        hint = error.hint
        try:
            beside = {} if error.beside is None else {"value": encode.plain(error.beside)}
        except encode.NotJsonable as wrong:
            why = {"where": wrong.where, "message": wrong.why}
            return {"ok": False, "what": "invalid_output", **why}
        return {
            "ok": False,
            "what": "tool_error",
            "message": _cut(str(error)),
            "hint": None if hint is None else _cut(str(hint)),
            "retryable": error.retryable if error.retryable in ("yes", "no", "maybe") else "no",
            **beside,
        }
    if isinstance(error, MemoryError):
        error.__traceback__, error.__context__ = None, None
    number = error.errno if isinstance(error, OSError) else None
    full = None
    if number in (errno.ENOSPC, errno.EDQUOT) and _scratch_is_sized:
        full = _scratch_full_of()
    return {
        "ok": False,
        "what": "exception",
        "type": _cut(type(error).__name__, 200),
        "message": _cut(_words(error)),
        "traceback": _traceback(error),
        "memory": isinstance(error, MemoryError),
        "errno": number if isinstance(number, int) else None,
        "scratch_full": full,
        "processes": state.has(PROCESSES),
        "stage": state.stage,
    }


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:
        return f"(its own message raised {type(second).__name__})"


def _cut(text: str, limit: int = MESSAGE_MAX) -> str:
    text = str(text)[: limit + 1]
    cut = text if len(text) <= limit else f"{text[:limit]}…"
    return cut.encode("utf-8", "backslashreplace").decode()


def _traceback(error: BaseException) -> str:
    import traceback

    try:
        whole = traceback.TracebackException.from_exception(error, limit=None, compact=True)
        own = [f for f in whole.stack if not f.filename.startswith(tuple(_hidden))]
        shown = own if len(own) <= FRAMES_MAX else own[: FRAMES_MAX // 2] + own[-FRAMES_MAX // 2 :]
        whole.stack = traceback.StackSummary.from_list(shown)
        return _cut("".join(whole.format(chain=False)), 4 * MESSAGE_MAX)
    except BaseException:
        return ""


def _scratch_full_of() -> str | None:
    """What of the scratch has run out: bytes or files; None where it has room."""
    found = os.statvfs("/tmp")
    if found.f_favail == 0:
        return "files"
    return "bytes" if found.f_bavail == 0 else None


def _watch_limits() -> None:
    """Note a refused fork or thread, and lift the fence for what is executed from here.

    Only evidence and courtesy: the limits themselves are the kernel's.
    """
    import _posixsubprocess
    import _thread

    def spawning(call: Callable[..., Any], *, execs: bool) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            if _state is None:
                return call(*arguments, **keywords)
            import resource

            fence = resource.getrlimit(resource.RLIMIT_AS)
            if execs:
                rlimits.lift_fence()
            try:
                return call(*arguments, **keywords)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    _state.note(PROCESSES)
                raise
            except RuntimeError:
                _state.note(PROCESSES)
                raise
            finally:
                if execs:
                    resource.setrlimit(resource.RLIMIT_AS, fence)

        return wrapped

    for module, names, execs in (
        (_posixsubprocess, ("fork_exec",), True),
        (sys.modules.get("subprocess"), ("_fork_exec",), True),
        (os, ("posix_spawn", "posix_spawnp", "system", "execv", "execve"), True),
        (os, ("fork", "forkpty"), False),
        (_thread, ("start_new_thread", "start_joinable_thread"), False),
        (
            sys.modules.get("threading"),
            ("_start_new_thread", "_start_joinable_thread"),
            False,
        ),
    ):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, spawning(getattr(module, name), execs=execs))
