"""Several processes, a kill at any moment, a full disk: whole, once, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0

# Each script of these forks, which a process with threads should not: hence one of its own.
COMMON = """
    import errno, json, os, random, signal, subprocess, sys, time
    from toolcell.grants import Grants
    state, NOW = sys.argv[1], 1_800_000_000.0

    def add(grants, key):
        grants.add(f"{key:064x}", scope="project", session="s", mode="build", tool_name="t",
                   shape="x" * 3000, workspace="/ws", agent_id=None, now=NOW)

    def found(grants, key):
        return grants.lookup(f"{key:064x}", mode="build", session="s", now=NOW) is not None

    def patient(work):
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise

    def together(count, work):
        gate_r, gate_w = os.pipe()
        told_r, told_w = os.pipe()
        children = []
        for number in range(count):
            child = os.fork()
            if not child:
                code = 1
                try:
                    os.close(gate_w)
                    os.read(gate_r, 1)
                    for line in work(number):
                        os.write(told_w, f"{line}\\n".encode())
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        os.close(told_w)
        os.close(gate_w)
        with open(told_r) as file:
            lines = file.read().split()
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * count
        return lines
"""


def run(script: str, state: Path, *, before: tuple[str, ...] = ()) -> Any:
    text = textwrap.dedent(COMMON) + textwrap.dedent(script)
    done = subprocess.run(
        [*before, sys.executable, "-W", "error", "-c", text, str(state)],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_processes_that_start_and_use_a_plan_together_are_one_winner(tmp_path: Path) -> None:
    """Otherwise a plan would run twice, or a first start would lose what another remembered."""
    found = run(
        """
        def work(number):
            with Grants.open(state) as grants:
                key = patient(grants.seal_key).hex()
                for nonce in range(12):
                    patient(lambda: add(grants, 100 * number + nonce))
                    if patient(lambda: grants.consume(f"n{nonce}", NOW)):
                        yield f"won-{nonce}"
            yield f"key-{key}"

        lines = together(4, work)
        with Grants.open(state) as grants:
            kept = len(grants.list(NOW))
        print(json.dumps([lines, kept, sorted(os.listdir(state))]))
        """,
        tmp_path,
    )
    lines, kept, names = found
    won = sorted(int(line[4:]) for line in lines if line.startswith("won-"))
    assert won == list(range(12))
    assert len({line for line in lines if line.startswith("key-")}) == 1
    assert kept == 48
    assert [name for name in names if "damaged" in name] == []


def test_a_damaged_store_is_set_aside_by_one_of_those_who_find_it(tmp_path: Path) -> None:
    """Otherwise the second would set aside what the first has begun to remember."""
    lines, names, kept = run(
        """
        with open(os.path.join(state, "grants.sqlite"), "wb") as file:
            os.chmod(file.fileno(), 0o600)
            file.write(b"garbage" * 1000)

        def work(number):
            with Grants.open(state) as grants:
                patient(lambda: add(grants, number))
                yield found(grants, number)

        lines = together(4, work)
        with Grants.open(state) as grants:
            kept = len(grants.list(NOW))
        print(json.dumps([lines, sorted(os.listdir(state)), kept]))
        """,
        tmp_path,
    )
    assert lines == ["True"] * 4
    assert sum("damaged" in name for name in names) == 1
    assert kept == 4


def test_a_kill_at_any_moment_loses_nothing_that_was_said_to_be_remembered(tmp_path: Path) -> None:
    """Otherwise a used plan runs again after a crash, or a crash takes every grant with it."""
    rounds, said, lost, twice, names = run(
        """
        dice = random.Random(5)
        said = lost = twice = 0
        for number in range(25):
            told_r, told_w = os.pipe()
            child = os.fork()
            if not child:
                with Grants.open(state) as grants:
                    for key in range(1000 * number, 1000 * number + 1000):
                        add(grants, key)
                        grants.consume(f"n{key}", NOW)
                        os.write(told_w, f"{key}\\n".encode())
                os._exit(0)
            os.close(told_w)
            with open(told_r, "rb", buffering=0) as file:
                first = file.read(1)
                until_s = time.monotonic() + dice.random() * 0.01
                while time.monotonic() < until_s:
                    pass
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                keys = [int(key) for key in (first + file.read()).split()]
            with Grants.open(state) as grants:
                said += len(keys)
                lost += sum(not found(grants, key) for key in keys)
                twice += sum(grants.consume(f"n{key}", NOW) for key in keys)
                # What was begun is there whole or not at all.
                assert all(len(one.shape) == 3000 for one in grants.list(NOW))
        print(json.dumps([number + 1, said, lost, twice, sorted(os.listdir(state))]))
        """,
        tmp_path,
    )
    assert rounds == 25
    assert said >= 25
    assert (lost, twice) == (0, 0)
    assert [name for name in names if "damaged" in name] == []


def test_a_full_disk_and_a_read_only_one_take_nothing_and_still_know(tmp_path: Path) -> None:
    """Otherwise a plan that could not be noted as used would run, or every yes would be lost."""
    steps = run(
        """
        import logging
        logging.disable()
        small = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "none", state]
        subprocess.run(small, check=True)

        def fails(work):
            try:
                work()
            except OSError as error:
                return errno.errorcode[error.errno]
            return None

        def change(grants, key):
            return [fails(lambda: add(grants, key)), fails(lambda: grants.consume(str(key), NOW)),
                    fails(lambda: grants.revoke("all"))]

        steps = {}
        with Grants.open(state) as grants:
            add(grants, 1)
            grants.consume("1", NOW)
            with open(os.path.join(state, "filler"), "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(bytes(4096))
                except OSError:
                    pass
            steps["full"] = [*change(grants, 2), found(grants, 1), found(grants, 2)]
            os.unlink(os.path.join(state, "filler"))
            add(grants, 2)
            used = [grants.consume("2", NOW) for _ in range(2)]
            steps["room again"] = [found(grants, 2), *used]
            steps["used before"] = grants.consume("1", NOW)
        os.mkdir(os.path.join(state, "fresh"), 0o700)
        subprocess.run(["mount", "-o", "remount,bind,ro", state], check=True)
        with Grants.open(state) as grants:
            steps["read-only"] = [*change(grants, 3), found(grants, 1), found(grants, 3)]
        with Grants.open(os.path.join(state, "fresh")) as grants:
            steps["fresh, read-only"] = [*change(grants, 3), fails(grants.seal_key),
                                         fails(lambda: grants.list(NOW)), found(grants, 1)]
        steps["names"] = sorted(name for name in os.listdir(state) if "damaged" in name)
        print(json.dumps(steps))
        """,
        tmp_path,
        before=("unshare", "--user", "--map-root-user", "--mount"),
    )
    assert steps == {
        "full": ["ENOSPC", "ENOSPC", "ENOSPC", True, False],
        "room again": [True, True, False],
        "used before": False,
        "read-only": ["EROFS", "EROFS", "EROFS", True, False],
        "fresh, read-only": ["EROFS", "EROFS", "EROFS", "EROFS", "EROFS", False],
        "names": [],
    }
