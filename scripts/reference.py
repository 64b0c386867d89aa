"""A hook of mkdocs: the pages of the reference, and those that stand at the top of the checkout.

What is public is asked of the packages themselves. A public name that is on no page is an error,
so a new one cannot stay without a place.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import toolcell
import toolcell_sandbox
from toolcell import approval, results

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"index.md": "README.md", "SECURITY.md": "SECURITY.md"}
"""Pages of the site, and the file at the top of the checkout that each one is."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `names` say where each thing is imported from, and `options` go to each entry."""

    title: str
    intro: str
    names: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def _of(module: str, names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names.split())


def _defined(module: Any) -> Iterator[str]:
    """The public functions and classes that a module without `__all__` defines itself."""
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__ and name[0] != "_"
        if is_own and (inspect.isclass(value) or inspect.isfunction(value)):
            yield f"{module.__name__}.{name}"


def _first(names: tuple[str, ...], others: Iterator[str]) -> tuple[str, ...]:
    return (*names, *(name for name in others if name not in names))


SHARED = frozenset({"Limits", "Network", "Progress"})
"""What `toolcell_sandbox` offers, and another page has."""

EVENTS = _of("toolcell.events", "Stream Started Output Progress Asked Answered")
"""What `Executor.stream` gives."""

PAGES = {
    "executor": Page(
        "Calling tools",
        "The executor, its two thin views, and what a caller hands in.",
        (
            "toolcell.Executor",
            "toolcell._entrances.Entrances",
            "toolcell._assembly.Assembly",
            *_of("toolcell", "BlockingExecutor ToolRuntime RunDeps ToolCall CallContext"),
            "toolcell.bridges.blocking.PlainSnapshot",
            *_of("toolcell", "Limits Network"),
            "toolcell.prepared.Plan",
            *EVENTS,
        ),
    ),
    "tools": Page(
        "Tools",
        "Four ways to write one; all of them become a `Tool`.",
        (
            *_of("toolcell", "tool Tool ToolDefinition BaseTool ToolMetadata ToolValidationResult"),
            *_of("toolcell", "ReadPath WritePath ToolError"),
            "toolcell.context.HandlerContext",
        ),
    ),
    "registry": Page(
        "Registries",
        "Which tools there are, and which of them a model is shown.",
        (
            *_of("toolcell", "ToolRegistry Registration Snapshot Hook ToolMetadataRegistry"),
            *_of("toolcell.dialects", "schema_of schemas_of lint annotations_of"),
        ),
    ),
    "results": Page(
        "Results and failures",
        "How a call ended: one class per ending, each with what to do next. A failure has `kind`, "
        "`message`, `blame`, `retryable`, `remedy`, and the evidence of its kind.",
        _first(
            _of("toolcell.results", "ToolResult Effects Verification Truncation Retained"),
            (f"toolcell.results.{name}" for name in results.__all__ if name != "Failure"),
        )
        + _of("toolcell.retained", "Page NotRetained"),
        {"inherited_members": False},
    ),
    "approval": Page(
        "Asking a person",
        "What an approver is shown, and what it may say.",
        tuple(_defined(approval)),
    ),
    "decisions": Page(
        "Words of decisions",
        "The vocabulary that tools, policies and callers share.",
        (
            *_of("toolcell", "AccessMode CostTier DangerLevel ExecutionCategory Mode Priority"),
            *_of("toolcell", "SchemaLevel Policy Decision"),
            *_of("toolcell", "phase_admits_tool is_edit_intent admits_transient_edit"),
        ),
    ),
    "sandbox": Page(
        "The sandbox alone",
        "One jail per call, without tools or policies. `Limits`, `Network` and `Progress` are on "
        "the page about calling tools.",
        _first(
            ("toolcell_sandbox.run_in_jail",),
            (f"toolcell_sandbox.{n}" for n in toolcell_sandbox.__all__ if n not in SHARED),
        ),
    ),
}

OPTIONS: dict[str, dict[str, Any]] = {
    "toolcell._assembly.Assembly": {"heading": "The options of an Executor", "members": False},
    **{name: {"heading": f"Executor.stream: {name.rpartition('.')[2]}"} for name in EVENTS},
}
"""What is different about one entry."""

WITHOUT_ENTRY = frozenset({"Failure", "ToolFailure", "__version__"})
"""The union of all failures, another name of `ToolError`, and the version."""


def _home(name: str) -> str:
    """Where a name is defined, since what is loaded lazily cannot be found by reading."""
    module, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(module), last)
    if inspect.isclass(found) or inspect.isfunction(found):
        return f"{found.__module__}.{found.__qualname__}"
    return name


def _text(page: Page) -> str:
    blocks = [f"# {page.title}", page.intro]
    for name in page.names:
        options = {"heading": name} | OPTIONS.get(name, {}) | page.options
        lines = (f"      {key}: {json.dumps(value)}" for key, value in options.items())
        blocks.append("\n".join((f"::: {_home(name)}", "    options:", *lines)))
    return "\n\n".join(blocks) + "\n"


def _from_root(name: str) -> str:
    """A page from the top of the checkout, its links as they are from within docs/."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"\[([^]]+)\]\((?:CONTRIBUTING|CHANGELOG)\.md\)", r"\1", text)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are in no file of docs/.

    Raises:
        PluginError: a public name of `toolcell` is on no page.
    """
    there = {name.rpartition(".")[2] for page in PAGES.values() for name in page.names}
    if lacking := sorted(set(toolcell.__all__) - there - WITHOUT_ENTRY):
        raise PluginError(f"on no page of the reference: {', '.join(lacking)}")
    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=_text(page)))
    for path, name in FROM_ROOT.items():
        files.append(File.generated(config, path, content=_from_root(name)))
    return files
