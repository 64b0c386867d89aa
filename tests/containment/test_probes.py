"""Every attempt of probes.py, in each cell of the matrix, beside its positive control."""

from __future__ import annotations

import functools

import pytest

from .cells import CELLS, IS_ROOT, Cell, Controls, Seen, run_cell
from .probes import PROBES
from .rows import cannot


@functools.cache
def seen_in(cell: Cell) -> Seen:
    """All attempts of one cell, made once, in one jail."""
    return run_cell(cell)


def _ids() -> list[tuple[str, Cell]]:
    return [
        (name, cell)
        for cell in CELLS
        for name in PROBES
        if not cannot(name, level=cell.level, mode=cell.workspace_mode, is_root=IS_ROOT)
    ]


@pytest.mark.parametrize(
    ("name", "cell"),
    _ids(),
    ids=[f"row_{PROBES[name].row:03}-{PROBES[name].name}-{cell.title}" for name, cell in _ids()],
)
def test_an_attempt_is_refused_here_and_succeeds_elsewhere(
    name: str, cell: Cell, controls: Controls
) -> None:
    """One that succeeds is a hole; one that fails everywhere says nothing about the jail."""
    seen = seen_in(cell)
    assert seen.problems == ()
    got = seen.probes[name]
    assert got.get("broke") is None
    assert not got["through"], got
    assert controls.problem(name) is None
