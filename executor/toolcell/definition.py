"""`ToolDefinition`: a tool as the phase dialect writes it. It compiles to a `Tool`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolcell._code import Code
from toolcell._signature import handed
from toolcell_policies.vocabulary import (
    AccessMode,
    CostTier,
    DangerLevel,
    ExecutionCategory,
    Phase,
)

if TYPE_CHECKING:
    from toolcell._tool_record import Tool
    from toolcell.metadata import ToolMetadata
    from toolcell_sandbox.spec import Limits, Network

__all__ = ["ToolDefinition"]

_ACCESS_OF_TIER: Final = (AccessMode.READONLY, AccessMode.WRITE, AccessMode.EXECUTE)
_OWN: Final = ("name", "description", "input_model", "handler", "phases")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool by its phases and its permission tier; taken wherever a tool is.

    `input_model` is a module-level pydantic model; `handler(args, deps)` or `handler(args)` is a
    module-level function, plain or async, whose `args` is an instance of it and whose `deps` is a
    `RunDeps` without an approver. A second parameter named `context` or `_exec_ctx`, or annotated
    `CallContext`, is the call's context instead. `paths(args)` returns path *values*, and runs in
    the program's process. Without `access_mode` it is by the tier: 0 reads, 1 writes, 2 executes,
    above is mixed; and no less than write where the model has a `WritePath`. `escalation` marks
    the tool that narrows: it is offered in an investigation alone.

    Raises:
        TypeError, ValueError: when it is registered, what cannot be used and the way out.
    """

    name: str
    description: str
    input_model: Any
    handler: Callable[..., Any]
    phases: Iterable[str | Phase]
    permission_tier: int = 0
    paths: Callable[[Any], Any] | None = None
    escalation: bool = False
    access_mode: AccessMode | str | None = None
    danger_level: DangerLevel | str | None = None
    aliases: Iterable[str] = ()
    cost_tier: CostTier | str = CostTier.FREE
    permission_action: str | None = None
    output_model: Any = None
    output_schema: Mapping[str, Any] | None = None
    limits: Limits | None = None
    timeout_s: float | None = None
    network: Network | str | None = None
    is_idempotent: bool = False
    execution_category: ExecutionCategory | str | None = None
    availability_check: Callable[[], object] | None = None
    to_model_output: Callable[[Any], object] | None = None
    metadata: ToolMetadata | None = None

    @property
    def code(self) -> Code:
        """The handler, and how it is called."""
        return Code(self.handler, "model", self.input_model)

    @property
    def function(self) -> Callable[..., Any]:
        """The handler, as it is looked for under the name of this record."""
        return self.handler

    def compiled(self) -> Tool:
        """The one record of it.

        Raises:
            TypeError, ValueError: what cannot be used, and the way out.
        """
        from toolcell._make import of_model

        beside = handed(self.handler, self.name, "args", "deps")
        words = {
            one.name: getattr(self, one.name)
            for one in dataclasses.fields(self)
            if one.name not in _OWN and getattr(self, one.name) != one.default
        }
        words["takes_context"] = beside.is_context
        # A set has no order of its own, and a hash needs one.
        named = {self.phases} if isinstance(self.phases, str) else set(self.phases)
        unknown = sorted(map(str, named - set(Phase)))
        if unknown:
            there_are = ", ".join(Phase)
            raise ValueError(
                f"tool {self.name}: there is no phase {unknown[0]!r}; there are: {there_are}"
            )
        words["phases"] = tuple(phase for phase in Phase if phase in named)
        tier = self.permission_tier
        least = _ACCESS_OF_TIER[tier] if tier in range(3) else AccessMode.MIXED
        return of_model(self.name, self.description, self.code, words, least)
