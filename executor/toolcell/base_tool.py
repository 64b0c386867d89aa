"""`BaseTool`: a tool as the metadata dialect writes it. It compiles to a `Tool`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from toolcell._code import Code
from toolcell_policies.vocabulary import CostTier, SchemaLevel

if TYPE_CHECKING:
    from toolcell._tool_record import Tool
    from toolcell.dialects import Dialect
    from toolcell.metadata import ToolMetadata
    from toolcell.validation import ToolValidationResult

__all__ = ["BaseTool"]


class BaseTool:
    """Subclass it with `name`, `description`, `parameters` (a JSON Schema) and `execute`.

    `async def execute(self, _exec_ctx, **kwargs)`, or a plain function; the arguments may be named
    one by one as well. `_exec_ctx` is given by the executor, a dict where it is annotated so, and
    never settable by a model. The object that runs is built in the jail, as `cls()` or by
    `factory = "module:function"`, so what `__init__` is told must not matter; plain data of a run
    comes in the context's `deps`.

    Any other word of a tool may be an attribute or a property too, under the name that `@tool` has
    for it (`access_mode`, `timeout`, `stages`, ...). Without `access_mode` it is readonly.
    """

    factory: ClassVar[str | None] = None

    if TYPE_CHECKING:
        # So that a subclass may have them as attributes, of the class or not, or as properties.
        @property
        def name(self) -> str:
            """What it is called by."""

        @property
        def description(self) -> str:
            """What it does, for a model."""

        @property
        def parameters(self) -> Mapping[str, Any]:
            """The JSON Schema of its arguments."""

    @property
    def cost_tier(self) -> CostTier:
        """What a call costs, roughly."""
        return CostTier.FREE

    @property
    def is_idempotent(self) -> bool:
        """Whether the same call twice is as good as once."""
        return False

    @property
    def metadata(self) -> ToolMetadata | None:
        """What selection goes by; None has it generated from name, description and schema."""
        return None

    # By these types any signature overrides it.
    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """`execute(_exec_ctx, **arguments)` runs the tool; a subclass writes it, async or not."""
        raise NotImplementedError

    def validate_parameters(self, /, **parameters: Any) -> bool:
        """Whether these arguments are valid as they stand, without any repair."""
        return self._record().validate_parameters(**parameters)

    def validate_parameters_detailed(self, /, **parameters: Any) -> ToolValidationResult:
        """What is wrong with these arguments as they stand, by parameter."""
        return self._record().validate_parameters_detailed(**parameters)

    def to_schema(
        self, level: SchemaLevel | str = SchemaLevel.FULL, dialect: Dialect = "json-schema"
    ) -> dict[str, Any]:
        """What a model is told of it, at one level of detail, in one provider's shape."""
        return self._record().to_schema(level, dialect)

    @property
    def code(self) -> Code:
        """This very object, as it is called in the process that made it."""
        return Code(type(self), "base", live=self)

    def _record(self) -> Tool:
        from toolcell._make import of_base

        return of_base(self, rebuilt=False)
