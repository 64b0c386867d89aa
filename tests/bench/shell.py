"""`make bench`: what it costs to read a shell command, and how long a text can make it take.

Medians beside each other in one run, so that the machine's speed cancels out of every comparison.
The hostile texts are as long as is read: each is one that the parser alone would take up to
seconds for. Prints JSON with `--json`, a table without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from toolcell_policies.shell import TEXT_BYTES_MAX, parse_command

USUAL = [
    "ls",
    "git log --oneline -5 | head",
    "grep -rn foo src",
    "cd src && sed -i 's/a b/c/g' x.py && git commit -m 'a message'",
    "find . -name '*.py' -exec grep -l foo {} +",
    'for f in src/*.py; do wc -l "$f"; done',
    "cat > a.py <<'EOF'\n" + "print('a line of a file')\n" * 200 + "EOF",
]
HOSTILE = ["x|", "x@(", "a=(", "$[", "$a)", "$a(>", "f()", "<<<", "[ ! -a ", '"$($x=f(){', "eval "]


def median_us(text: str, rounds: int) -> float:
    """The median of so many readings, in microseconds."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        parse_command(text)
        taken.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parse_command("ls")
    usual = {text: median_us(text, options.rounds) for text in USUAL}
    hostile = {
        unit: median_us((unit * TEXT_BYTES_MAX)[:TEXT_BYTES_MAX], 3) / 1e3 for unit in HOSTILE
    }
    if options.json:
        print(json.dumps({"usual_us": usual, "hostile_ms": hostile}, indent=2))
        return
    for text, taken in usual.items():
        print(f"{taken:9.0f} us  {text.splitlines()[0][:70]}")
    for unit, taken in hostile.items():
        print(f"{taken:9.1f} ms  {TEXT_BYTES_MAX} bytes of {unit!r}")


if __name__ == "__main__":
    main()
