"""Each worker of a parallel run has a temporary folder of its own, and sees what is left in it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

_own: list[str] = []


def pytest_configure() -> None:
    """Before anything asks where temporary files go; a short name, since sockets lie below it."""
    # What a shell in the background, or nohup, has switched off is what tests send.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            plain = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, plain)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        _own.append(tempfile.mkdtemp(prefix=f"{worker}-"))
        os.environ["TMPDIR"] = _own[0]
        tempfile.tempdir = None


def pytest_unconfigure() -> None:
    """What is left in it was looked for by those who must leave nothing."""
    for folder in _own:
        shutil.rmtree(folder, ignore_errors=True)
