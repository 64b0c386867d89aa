"""The command line: words in, one call or one report out, and an exit code that says which.

Every command is a few lines over the library. Heavy imports wait until a command runs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from toolcell._exits import CANCELLED, OUR_FAILURE, Refused
from toolcell._given import STDIN
from toolcell._render import say, write_out
from toolcell._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App

_VERBOSE = ("-v", "--verbose")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Never raises, whatever the words are."""
    _hold_standard_descriptors()
    words = list(sys.argv[1:] if argv is None else argv)
    ours = words[: words.index("--")] if "--" in words else words
    verbose = any(word in _VERBOSE for word in ours)
    _quiet_logs(verbose=verbose)
    try:
        if words == ["--version"]:
            write_out(f"{__version__}\n")
            return 0
        return _run(_settled(words, len(ours)))
    except Refused as refused:
        say(str(refused), lines=refused.lines)
        return refused.code
    except KeyboardInterrupt:
        say("interrupted")
        return CANCELLED
    except BrokenPipeError:
        return 0
    except Exception as error:  # noqa: BLE001 - a defect of ours is one line and its exit code
        if verbose:
            import traceback

            traceback.print_exc()
        say(f"a defect of toolcell: {type(error).__name__}: {error} (-v shows where)")
        return OUR_FAILURE
    finally:
        _flush()


def _run(words: list[str]) -> int:
    from cyclopts import CycloptsError

    from toolcell._session import Interrupted

    try:
        code = _app()(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise Refused(" ".join(str(error).split())) from None
    except Interrupted as interrupted:
        say(str(interrupted))
        return CANCELLED
    return code if isinstance(code, int) else 0


def _settled(words: list[str], ours: int) -> list[str]:
    """The words as the parser takes them: a lone `-` is no option, `-v` may stand first."""
    words = [STDIN if word == "-" and place < ours else word for place, word in enumerate(words)]
    if len(words) > 1 and words[0] in _VERBOSE:
        words[:2] = [words[1], words[0]]
    return words


def _hold_standard_descriptors() -> None:
    """Keep 0, 1 and 2 taken, so that a pipe of a jail never gets one of these numbers."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return
        os.set_inheritable(fd, True)


def _quiet_logs(*, verbose: bool) -> None:
    """Our own log is for whoever asks: without -v, a result says what there is to say."""
    import logging

    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.getLogger("toolcell").addHandler(logging.NullHandler())
        logging.getLogger("toolcell").propagate = False


def _flush() -> None:
    """Flush what others printed (help); a reader that went away is no traceback at exit."""
    for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def _app() -> App:
    """The commands, as the parser knows them."""
    from cyclopts import App

    app = App(
        name="toolcell",
        help="Run one tool call in a jail of its own, and say exactly how it ended.",
        version=__version__,
        version_flags=["--version"],
        help_flags=["--help", "-h"],
        backend="trio",
        result_action="return_value",
    )
    from toolcell import _commands

    for name, command in _commands.COMMANDS.items():
        app.command(command, name=name)
    for name, (about, commands) in _commands.GROUPS.items():
        group = App(name=name, help=about)
        for inner, command in commands.items():
            group.command(command, name=inner)
        app.command(group)
    return app
