"""What a person at a terminal sees while a call runs."""

from __future__ import annotations

from toolcell._session import ProgressLine
from toolcell_sandbox import Progress


def test_the_line_shows_the_last_word_of_progress_and_nothing_that_moves_the_cursor():
    """Otherwise a tool writes over what a person is asked about."""
    line = ProgressLine("index\x1b[2J")
    assert line.line(1.2) == "running index\\x1b[2J, 1 s"
    line.progress(Progress(done=3, total=10, message="a\x1b[1A\nb"))
    assert line.line(2) == "running index\\x1b[2J, 2 s: 3/10 a\\x1b[1A\\nb"
    line.progress(Progress(message="x" * 500))
    assert line.line(2).endswith(": " + "x" * 80)
    line.progress(Progress(done=0.5))
    assert line.line(2).endswith(": 0.5")
