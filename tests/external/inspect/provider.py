"""A provider of Inspect's sandboxes made of a toolcell executor: each exec is a call of its own.

What persists between calls is the workspace, one folder for each environment, changed in place.
All else of a jail, such as its /tmp and its processes, is gone with the call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import tempfile
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)

from toolcell import AccessMode, CallContext, Executor, Limits, ToolResult
from toolcell.approval import unsafe_approve_all
from toolcell.tools import CommandRef, made
from toolcell_sandbox.failures import Crashed, Timeout

ENV = "/usr/bin/env"
"""Sets a call's variables: by its absolute path, no PATH decides which program that is."""

NOT_STARTED = 127
"""What a shell answers where there is no such program."""

READ = """
[ -d "$1" ] && exit 21
[ -e "$1" ] || exit 2
[ -r "$1" ] || exit 13
[ "$(stat -c %s -- "$1")" -le "$2" ] || exit 27
exec cat -- "$1"
"""
WRITE = """
[ -d "$1" ] && exit 21
mkdir -p -- "$(dirname -- "$1")" || exit 13
[ -e "$1" ] && [ ! -w "$1" ] && exit 13
exec cat > "$1"
"""
"""Their exit codes are numbers of errno.h: EISDIR, ENOENT, EACCES, EFBIG."""


def words(argv: list[str], cwd: str) -> tuple[tuple[str, ...], str, None]:
    """Run a program.

    Args:
        argv: the program and its arguments
        cwd: the folder to run it in
    """
    return tuple(argv), cwd, None


EXEC = made(
    words,
    name="exec",
    access_mode=AccessMode.EXECUTE,
    ref=CommandRef(f"{__name__}:{words.__name__}"),
)


class _Streams:
    """Both streams whole, up to a limit; past it the program is told that nobody reads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.of = {"stdout": bytearray(), "stderr": bytearray()}
        self.over = False

    async def take(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self.of[name] += chunk
        if len(self.of[name]) > self.limit_bytes:
            self.over = True
            raise BrokenPipeError

    def text(self, name: str) -> str:
        return self.of[name].decode("utf-8", "replace")


class ToolcellSandbox(SandboxEnvironment):
    """One environment: an executor on a folder of its own."""

    def __init__(self, folder: str, isolation: str = "standard") -> None:
        super().__init__()
        self._held = contextlib.AsyncExitStack()
        self.folder = f"{folder}/workspace"
        os.makedirs(f"{folder}/workspace")
        self.results: list[ToolResult] = []
        self._executor = Executor(
            tools=(EXEC,),
            builtin=False,
            workspace=f"{folder}/workspace",
            state_dir=f"{folder}/state",
            approver=unsafe_approve_all,
            isolation=isolation,
            # What a command did before it was ended has to be seen by the next one.
            workspace_mode="direct",
        )

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """One environment, in a new temporary folder; `config` is the isolation level or None."""
        held = tempfile.TemporaryDirectory(prefix="sandbox-")
        made = cls(held.name, config or "standard")
        made._held.enter_context(held)
        await made._held.enter_async_context(made._executor)
        return {"default": made}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Close the executors and remove the folders."""
        for environment in environments.values():
            await environment.as_type(cls)._held.aclose()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109  # Inspect's own signature
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program in a jail of its own; all that it started is gone when this returns."""
        if user is not None:
            raise SandboxUserUnsupportedError(f"a jail has one user, so none can be {user!r}")
        if env:
            cmd = [ENV, *(f"{name}={value}" for name, value in env.items()), *cmd]
        streams = _Streams(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE)
        result = await self._run(cmd, streams, input=input, cwd=cwd, wall_s=timeout)
        if streams.over:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit, streams.text("stdout"))
        code = _code(result)
        if code == NOT_STARTED:
            return ExecResult(False, code, "", result.content)
        return ExecResult(code == 0, code, streams.text("stdout"), streams.text("stderr"))

    async def _run(
        self,
        cmd: list[str],
        streams: _Streams,
        *,
        input: str | bytes | None = None,
        cwd: str | None = None,
        wall_s: int | None = None,
    ) -> ToolResult:
        result: ToolResult = await self._executor.call(
            "exec",
            {"argv": cmd, "cwd": cwd or "."},
            context=CallContext(),
            limits=Limits(wall_s=wall_s or 120),
            stdin=input.encode() if isinstance(input, str) else input,
            sink=streams.take,
        )
        self.results.append(result)
        if result.metadata.get("exec_errno") == errno.EACCES:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), cmd[0])
        if "exec_errno" in result.metadata or result.error is None:
            return result
        if isinstance(result.error, Timeout):
            raise TimeoutError(result.content)
        if not isinstance(result.error, Crashed):
            raise SandboxUnavailableError(result.content)
        return result

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a whole file, making the folders that it lies in."""
        streams = _Streams(1 << 16)
        result = await self._run(
            ["/bin/sh", "-c", WRITE, "sh", file], streams, input=contents or b""
        )
        _raise_for(_code(result), file, streams)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a whole file."""
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        streams = _Streams(limit)
        result = await self._run(["/bin/sh", "-c", READ, "sh", file, str(limit)], streams)
        code = _code(result)
        if streams.over or code == errno.EFBIG:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        _raise_for(code, file, streams)
        found = bytes(streams.of["stdout"])
        return found.decode() if text else found


def _code(result: ToolResult) -> int:
    """As a shell would say it: a signal is 128 and its number."""
    if "exec_errno" in result.metadata:
        return NOT_STARTED
    if isinstance(result.error, Crashed):
        return 128 + signal.Signals[result.error.signal]
    assert result.exit_code is not None
    return result.exit_code


def _raise_for(code: int, file: str, streams: _Streams) -> None:
    if code in (errno.EISDIR, errno.ENOENT, errno.EACCES):
        raise OSError(code, os.strerror(code), file)
    if code:
        raise RuntimeError(f"{file}: {streams.text('stderr')}")
