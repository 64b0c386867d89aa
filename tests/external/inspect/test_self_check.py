"""Inspect's own checks of any sandbox provider (`self_check`, PyPI inspect-ai), run on ours.

They are plain async functions that ask for a fixture `sandbox_env`, and know no event loop of
their own: here they run on trio, as every other test.
"""

from __future__ import annotations

import os
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from inspect_ai.util import OutputLimitExceededError
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.limits import override_max_read_file_size

from .provider import ToolcellSandbox

_TMP = "each call has a temporary folder of its own: what one leaves there the next does not find"
EXPECTED_FAILURES = {
    "test_read_and_write_file_including_directory_absolute": _TMP,
    "test_write_text_file_is_directory": _TMP,
    "test_write_binary_file_is_directory": _TMP,
    "test_cwd_absolute": _TMP,
    "test_exec_as_user": "a jail has one user, and nobody in it can add another",
}

CHECKS = 44
globals().update({name: getattr(self_check, name) for name in self_check.__all__})


@pytest.fixture(params=["standard", "container"])
async def sandbox_env(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ledger: None
) -> AsyncIterator[ToolcellSandbox]:
    """A new environment for each check; afterwards nothing of it is left."""
    name = request.node.originalname
    if name in EXPECTED_FAILURES:
        request.applymarker(pytest.mark.xfail(reason=EXPECTED_FAILURES[name], strict=True))
    # They give the cleanup a moment of grace after a timeout. Ours is over by then.
    monkeypatch.setattr(self_check, "anyio", types.SimpleNamespace(sleep=_no_grace))
    environments = await ToolcellSandbox.sample_init("self_check", request.param, {})
    environment = environments["default"].as_type(ToolcellSandbox)
    yield environment
    await ToolcellSandbox.sample_cleanup("self_check", request.param, environments, False)
    for result in environment.results:
        assert result.receipt is not None
        assert request.param == "standard" or result.receipt.isolation == "container"
        assert {"fs_confined", "tree_killed", "net_blocked"} <= result.receipt.held.keys()


async def _no_grace(seconds: float) -> None:
    assert seconds <= 5
    await trio.lowlevel.checkpoint()


def test_every_check_of_this_version_is_collected(request):
    """A check that is renamed or added must not be left out, nor an expectation go stale."""
    collected = {item.originalname for item in request.session.items if item.path == request.path}
    if request.config.option.keyword or "::" in " ".join(request.config.args):
        collected |= set(self_check.__all__)
    assert len(self_check.__all__) == CHECKS
    assert set(self_check.__all__) <= collected
    assert set(self_check.__all__) >= EXPECTED_FAILURES.keys()


async def test_nothing_of_a_command_is_left_on_the_host_after_its_timeout(sandbox_env):
    """The checks look with `ps` in a later jail, which could not see it: so look from outside."""
    mark = f"/{os.getpid()}.left-behind"
    script = f"touch up; sleep 1000 {mark} & setsid sh -c ': {mark}; sleep 1000; :' & wait"
    seen: list[str] = []

    async def look() -> None:
        while not await trio.Path(sandbox_env.folder, "up").exists():
            await trio.sleep(0.005)
        seen.extend(_marked(mark))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        with pytest.raises(TimeoutError):
            await sandbox_env.exec(["sh", "-c", script], timeout=2)
        assert _marked(mark) == []
    assert seen != []


def _marked(mark: str) -> list[str]:
    """Command lines of this machine that hold the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in text:
            found.append(text)
    return found


async def test_output_beyond_the_limit_is_an_error_and_not_a_short_answer(sandbox_env: Any):
    """Half of a JSON document looks like a whole one to whoever did not ask."""
    with override_max_read_file_size(1 << 20):
        await sandbox_env.write_file("f", b"x" * (1 << 20))
        assert len(await sandbox_env.read_file("f", text=False)) == 1 << 20
        await sandbox_env.write_file("f", b"x" * ((1 << 20) + 1))
        with pytest.raises(OutputLimitExceededError):
            await sandbox_env.read_file("f", text=False)
    with pytest.raises(OutputLimitExceededError):
        await sandbox_env.exec(["yes"])


async def test_a_program_that_is_not_there_is_an_answer_and_no_defect(sandbox_env: Any):
    """A model that mistypes a name has to read so, and try another."""
    result = await sandbox_env.exec(["no-such-program"])
    assert (result.success, result.returncode) == (False, 127)
    assert "could not be started" in result.stderr
