"""`ToolRuntime`: the phase dialect's runner, a thin view of the one executor."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

from toolcell._ledger import Baseline
from toolcell.approval import deny_all
from toolcell.calls import RunDeps, ToolCall
from toolcell.executor import Executor
from toolcell.registry import ToolRegistry
from toolcell.results import ToolResult, Verification
from toolcell.tools import Tool

__all__ = ["ToolRuntime"]


class ToolRuntime:
    """Runs tools of a registry for one run of an agent: `await runtime.execute(name, raw_input)`.

    `deps` says in which workspace, phase and kind of task, with which approver, and what plain
    data handlers get. `options` are the executor's further ones. Only the registry's own tools are
    there, unless `builtin=True` is one of them. Within `async with` one executor is kept open;
    without it each call opens its own. `deps` may be replaced between calls, as the phase moves on.
    """

    def __init__(self, registry: ToolRegistry, deps: RunDeps, **options: Any) -> None:
        self.registry = registry
        self.deps = deps
        self._options = {"builtin": False, **options}
        self._open: Executor | None = None
        self._baseline: Baseline | None = None

    async def __aenter__(self) -> Self:
        executor = self._executor()
        await executor.__aenter__()
        self._open, self._baseline = executor, executor.baseline()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        executor, self._open = self._open, None
        if executor is not None:
            await executor.__aexit__(kind, error, trace)

    async def execute(
        self,
        name: str,
        raw_input: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
    ) -> ToolResult:
        """Run one call under the run's phase and kind of task; how it ended, as `Executor.call`."""
        call = ToolCall(name, raw_input, call_id)
        async with self._opened() as executor:
            return await executor.call(call, context=self.deps.context())

    async def verify(self) -> Verification:
        """Whether what the run edited was taken back: an investigation has to net out to nothing.

        Raises:
            RuntimeError: the runtime is not open: nobody has seen what was there before.
        """
        if self._open is None or self._baseline is None:
            raise RuntimeError("verify() needs `async with ToolRuntime(...)` before the edits")
        return await self._open.verify_net_zero(self._baseline)

    def active_tools(self) -> tuple[Tool, ...]:
        """The tools to show in this phase: what is not among them would be `not_admitted`."""
        executor = self._open or self._executor()
        return executor.admitted(self.deps.context())

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Executor]:
        if self._open is not None:
            yield self._open
            return
        async with self._executor() as executor:
            yield executor

    def _executor(self) -> Executor:
        return Executor(
            self.registry,
            workspace=self.deps.workspace,
            approver=self.deps.approver or deny_all,
            deps=self.deps.extra,
            **self._options,
        )
