"""Limits, sizes, mounts and the rest of what a jail is to be: nothing invalid can be built."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell_sandbox.host import base_environment
from toolcell_sandbox.spec import (
    MAX_SIZE_BYTES,
    CommandHandler,
    JailSpec,
    Limits,
    Mount,
    Network,
    PythonHandler,
    parse_size,
)

K, M, G, T = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (5, 5),
        (MAX_SIZE_BYTES, MAX_SIZE_BYTES),
        ("0", 0),
        ("123", 123),
        ("1b", 1),
        ("1B", 1),
        ("512k", 512 * K),
        ("512K", 512 * K),
        ("512kb", 512 * K),
        ("512KiB", 512 * K),
        ("64M", 64 * M),
        ("64 MB", 64 * M),
        (" 64MiB ", 64 * M),
        ("2GiB", 2 * G),
        ("2gib", 2 * G),
        ("1T", T),
        ("1.5G", 3 * G // 2),
        ("0.5k", 512),
        ("1.25", 1),
        # Beyond what a float can say exactly.
        ("9007199254740993", 9007199254740993),
        (str(MAX_SIZE_BYTES), MAX_SIZE_BYTES),
    ],
)
def test_a_size_is_bytes_or_text_in_binary_multiples(value: int | str, size: int) -> None:
    """A limit that is read a thousandth too small or too large is another limit."""
    assert parse_size(value) == size


@pytest.mark.parametrize(
    "value",
    [
        -1, MAX_SIZE_BYTES + 1, "-1", "", " ", "M", "1X", "1ib", "1e9", "0x10", "1,000", "1_000",
        "1.", ".5", "1.5.5G", "1 0", "64MM", "∞", "٣", "inf", "nan", "9" * 400, "9" * 5_000,
        "9999999T", "1.5" + "0" * 400, True, False, None, 1.5, b"64M", [1],
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused_with_a_sentence(value: Any) -> None:
    """An OverflowError from a command line's text is a traceback before the user."""
    with pytest.raises(ValueError, match="size"):
        parse_size(value)


SIZE_FIELDS = (
    "memory_bytes", "file_size_bytes", "disk_bytes", "head_bytes", "tail_bytes", "result_bytes",
    "stdin_bytes",
)  # fmt: skip
COUNT_FIELDS = {"processes": 1, "disk_files": 16, "open_files": 32}


def limits(**known: Any) -> Limits:
    return Limits(**known)


def test_the_defaults_are_those_of_the_public_face() -> None:
    """Documented, and what a caller who sets nothing relies on."""
    assert limits() == limits(
        wall_s=120,
        cpu_s=None,
        memory_bytes="2GiB",
        processes=256,
        file_size_bytes="512MiB",
        disk_bytes="1GiB",
        disk_files=200_000,
        open_files=1_024,
        head_bytes="32KiB",
        tail_bytes="32KiB",
        result_bytes="8MiB",
        stdin_bytes="64MiB",
    )


@pytest.mark.parametrize("name", SIZE_FIELDS)
def test_each_size_may_be_text_and_is_kept_as_bytes(name: str) -> None:
    """A string that reaches setrlimit(2) fails inside the jail, far from who wrote it."""
    assert getattr(limits(**{name: "64M"}), name) == 64 * M


@pytest.mark.parametrize("name", SIZE_FIELDS)
@pytest.mark.parametrize("value", [-1, "64X", None, 1.5, True, MAX_SIZE_BYTES + 1])
def test_a_size_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    """With twelve limits "out of range" alone says nothing."""
    with pytest.raises(ValueError, match=f"^{name}: "):
        limits(**{name: value})


@pytest.mark.parametrize("name", COUNT_FIELDS)
def test_counts_are_whole_and_leave_room_to_start(name: str) -> None:
    """No process at all, or three descriptors, is a jail that cannot run what it is for."""
    least = COUNT_FIELDS[name]
    assert getattr(limits(**{name: least}), name) == least
    assert getattr(limits(**{name: 2**31 - 1}), name) == 2**31 - 1
    for value in (least - 1, -5, 2**31, 1.0, "20", True, None):
        with pytest.raises(ValueError, match=name):
            limits(**{name: value})


@pytest.mark.parametrize("name", ["wall_s", "cpu_s"])
def test_times_are_finite_and_above_zero(name: str) -> None:
    """A NaN compares false with everything: a deadline that never comes."""
    for fine in (0.001, 1, 1e8):
        assert getattr(limits(**{name: fine}), name) == fine
    for value in (0, -1, math.nan, math.inf, -math.inf, 1e9, "1", True, b"1"):
        with pytest.raises(ValueError, match=name):
            limits(**{name: value})


def test_only_processor_time_may_be_unlimited() -> None:
    """A call without a wall limit can hang for ever."""
    assert limits(cpu_s=None).cpu_s is None
    with pytest.raises(ValueError, match="wall_s"):
        limits(wall_s=None)


def test_memory_and_result_have_a_least() -> None:
    """Below, not even the refusal could be told."""
    assert limits(memory_bytes=M, result_bytes=64).memory_bytes == M
    with pytest.raises(ValueError, match="memory_bytes must be at least"):
        limits(memory_bytes=M - 1)
    with pytest.raises(ValueError, match="result_bytes must be at least"):
        limits(result_bytes=63)


LIMITS = st.builds(
    limits,
    wall_s=st.floats(0.001, 1e8),
    cpu_s=st.none() | st.floats(0.001, 1e8),
    memory_bytes=st.integers(M, MAX_SIZE_BYTES),
    processes=st.integers(1, 2**31 - 1),
    file_size_bytes=st.integers(0, MAX_SIZE_BYTES),
    disk_bytes=st.integers(1 << 16, MAX_SIZE_BYTES),
    disk_files=st.integers(16, 2**31 - 1),
    open_files=st.integers(32, 2**31 - 1),
    head_bytes=st.integers(0, MAX_SIZE_BYTES),
    tail_bytes=st.integers(0, MAX_SIZE_BYTES),
    result_bytes=st.integers(64, MAX_SIZE_BYTES),
    stdin_bytes=st.integers(0, MAX_SIZE_BYTES),
)


@settings(max_examples=60, deadline=None)
@given(a=LIMITS, b=LIMITS)
def test_tightened_is_the_least_of_each_limit(a: Limits, b: Limits) -> None:
    """A tool's own limits must never widen what its caller allows."""
    both = a.tightened(b)
    for field in fields(Limits):
        given_ = [getattr(x, field.name) for x in (a, b)]
        set_ = [value for value in given_ if value is not None]
        assert getattr(both, field.name) == (min(set_) if set_ else None)
    assert both == b.tightened(a)
    assert both.tightened(a) == both
    assert a.tightened(a) == a


def test_a_network_is_none_unless_said_otherwise() -> None:
    """What can be reached is named, never assumed."""
    assert Network.none() == Network() == JailSpec().network
    assert Network.none().kind == "none"


@pytest.mark.parametrize("path", ["/", "/usr", "/srv/a b", "/a/..b", "/é"])
def test_a_mount_is_an_absolute_normal_path(path: str) -> None:
    """It is compared as text with the paths that a jail shows already."""
    assert Mount(path=path).path == path


@pytest.mark.parametrize(
    "path", ["", ".", "usr", "./usr", "/usr/", "/usr/../etc", "//etc", "///etc", "/a//b", "/a\0b"]
)
def test_a_mount_that_could_be_another_path_is_refused(path: str) -> None:
    """`//etc` beside `/etc` is one folder under two names."""
    with pytest.raises(ValueError, match="absolute, normal path"):
        Mount(path=path)


@pytest.mark.parametrize("argv", [(), ("",), ("", "x")])
def test_a_command_has_a_name(argv: tuple[str, ...]) -> None:
    """execve(2) of an empty name says ENOENT, which reads like another fault."""
    with pytest.raises(ValueError, match="program's name"):
        CommandHandler(argv=argv)


@pytest.mark.parametrize("argv", [("a\0b",), ("a", "b\0")])
def test_a_commands_words_hold_no_nul(argv: tuple[str, ...]) -> None:
    """execve(2) ends a word there: what was approved is not what would run."""
    with pytest.raises(ValueError, match="NUL"):
        CommandHandler(argv=argv)
    assert CommandHandler(argv=("a", "", "b\n")).argv == ("a", "", "b\n")


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}])
def test_an_environment_that_execve_would_misread_is_refused(env: dict[str, str]) -> None:
    """A name with `=` in it sets another variable than the one that was allowed."""
    with pytest.raises(ValueError, match="environment variable"):
        JailSpec(env=env)
    assert JailSpec(env={"A": "b=c\n"}).env == {"A": "b=c\n"}


def test_a_spec_grants_nothing_by_default() -> None:
    """Defaults make it easy to get things right."""
    spec = JailSpec()
    assert (spec.workspace, spec.workspace_mode, spec.mounts) == (None, "read_only", ())
    assert dict(spec.env) == base_environment()
    assert PythonHandler(module="m", qualname="f").sys_path == ()


@pytest.mark.parametrize("path", ["", "/abs", "a//b", "../up", "a/..", "./a", "a\0b"])
def test_a_mask_that_leads_out_of_its_folder_is_refused(path: str) -> None:
    """It would put a whiteout where nobody asked for one, or none where somebody did."""
    with pytest.raises(ValueError, match="could be masked"):
        JailSpec(workspace="/w", masks={"/w": ("a/.env", path)})
    assert JailSpec(workspace="/w", masks={"/w": ("a/.env",)}).masks == {"/w": ("a/.env",)}


def test_what_is_written_in_place_is_not_layered() -> None:
    """It would be written to a layer that nobody keeps."""
    with pytest.raises(ValueError, match="in place"):
        Mount(path="/srv", writable=True, layered=True)
