"""Landlock behind the mounts: it refuses what they let by, and nothing that they grant."""

from __future__ import annotations

import pytest

from .elsewhere import PLACE, supervised

LATE = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Mount, Pool, run_in_jail

async def main():
    workspace, mode = sys.argv[1:]
    shared, beside = f"{workspace}/shared", f"{workspace}/beside"
    os.makedirs(shared)
    os.mkdir(beside)
    script = "echo x > shared/new; mkdir shared/sub; echo x > beside/new; echo said"
    handler = CommandHandler(argv=("/bin/sh", "-c", script))
    spec = JailSpec(
        workspace=workspace,
        workspace_mode=mode,
        mounts=(Mount(path=shared, writable=True, owned=True),),
    )
    found = []
    async with Pool(waiting=1) as pool:
        await pool.fill(spec)
        for given in (pool, None):
            outcome = await run_in_jail(handler, spec, pool=given)
            found.append([
                outcome.timing.was_waiting,
                outcome.stdout.text(),
                outcome.stderr.text().count("\\n"),
                sorted(os.listdir(shared)),
                os.listdir(beside),
            ])
            os.remove(f"{shared}/new")
            os.rmdir(f"{shared}/sub")
    print(json.dumps(found))

trio.run(main)
"""


@pytest.mark.parametrize("mode", ["read_only", "transaction"])
def test_a_writable_folder_in_a_layered_workspace_can_be_written(mode: str) -> None:
    """A folder that was granted, and where every write is refused, is a tool that fails."""
    found = supervised(LATE, f"{PLACE}/ws", mode)
    # The near miss: a layer took what lies beside it, or it was refused.
    seen = ["said\n", 1 if mode == "read_only" else 0, ["new", "sub"], []]
    assert found == [[True, *seen], [False, *seen]]


BELOW_DEV = """
import json, os, sys, trio
from toolcell_sandbox import CommandHandler, JailSpec, Mount, run_in_jail

async def main():
    os.mkfifo("/dev/pts/fifo")
    os.chmod("/dev/pts/fifo", 0o666)
    # So that a writer need not wait.
    fd = os.open("/dev/pts/fifo", os.O_RDONLY | os.O_NONBLOCK)
    script = "cat /dev/pts/file; echo x > /dev/null; echo x > /dev/shm/own; echo x > /dev/pts/fifo"
    handler = CommandHandler(argv=("/bin/sh", "-c", script))
    outcome = await run_in_jail(handler, JailSpec(mounts=(Mount(path="/dev/pts"),)))
    try:
        heard = os.read(fd, 10)
    except BlockingIOError:
        heard = b""
    print(json.dumps([outcome.stdout.text(), outcome.stderr.text(), heard.decode()]))

trio.run(main)
"""


def test_what_is_shown_below_dev_is_no_device() -> None:
    """A mount that is read-only stops no writer to a pipe of the host's: this fence has to."""
    prepare = "mount -t tmpfs -o mode=0755 tmpfs /dev/pts; echo seen > /dev/pts/file"
    seen, refused, heard = supervised(BELOW_DEV, prepare=prepare)
    assert (seen, heard) == ("seen\n", "")
    # The control: a device and the jail's own /dev/shm are written.
    assert refused.count("\n") == 1
    assert "/dev/pts/fifo: Permission denied" in refused
