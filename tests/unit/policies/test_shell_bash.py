"""What is read, held against what a real bash does with the same text.

No command of these texts exists: PATH names no folder, and bash tells what it would
have run to a function of its own. Each runs in an empty folder.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from toolcell_policies.shell import Segment, parse_command

HOME = "/home/user"
ENVIRONMENT = {"PATH": "/nonexistent", "HOME": HOME, "LC_ALL": "C.UTF-8"}

# Reads texts from its input, each ended by NUL, and runs each in a subshell. What would run is
# written to a file of its own: words ended by \2, commands by \1, a \3 for each line feed so that
# bash writes each command at once.
TRACER = r"""
command_not_found_handle() {
    local told; printf -v told '%s\002' "$@"; printf '%s\001' "${told//$'\n'/$'\003'}" >&9
    [ $(( $# % 2 )) = 0 ]
}
number=0
while IFS= read -r -d '' text; do
    number=$(( number + 1 ))
    ( exec 9> "$TOLD/$number" 0< /dev/null > /dev/null 2>&1
      cd "$EMPTY" && eval "$text"; wait )
done
"""

PARTS = [
    "a", "b", "-x", "--y=z", "/p/q", "..", "x=y", "é", "%", "a,b", "#n", "n#", "~", "~/z", "a~",
    "p=~/q", "p=a:~/q", "=", "{}", "{a,b}", "{1..3}", "a{b,}c", "{a", "a}", "{a}", "{a,{b,c}}",
    "\\ ", "\\$", "\\\"", "\\'", "\\\\", "\\n", "\\;", "\\#", "\\~", "\\{a,b}", "''", "'a b'",
    "\"a b\"", "'$x'", "\"$HOME\"", "\"\\$x \\\" \\\\ \\q \\`\"", "$'a\\tb'",
    "$'\\x41\\101\\u00e9\\''",
    "$\"t r\"", "$", "\"$\"", "a$", "$HOME", "${HOME}", "\"a\\\nb\"", "a\\\nb", "\\\n", "'\n'",
    "\"a\nb\"", "'\"'", "\"'\"", "in", "do", "if", "time", "!", "]", "-",
]  # fmt: skip
RUNNING = [
    "$(cX q)", "\"$(cX q)\"", "`cX r`", "\"`cX \\\"s t\\\"`\"", "`cX \\`cX u\\``", "<(cX v)",
    "\"$(cX \"w x\")\"", "$((1+2))", "\"$(cX 'a)b')\"", "${U:-d}", "$UNSET", "\"$UNSET\"",
]  # fmt: skip
REDIRECTS = [
    ">f", "> f", "2>g", ">>f", "2>&1", ">&2", "</dev/null", "&>f", "<<<x", "<<< \"a b\"", ">|f",
    "2>/dev/null", "> \"f g\"", "3>h",
]  # fmt: skip


class Maker:
    """Makes texts of commands that do not exist, the same ones each time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def one(self, *options: Callable[[], str] | str) -> str:
        chosen = self.rng.choice(options)
        return chosen if isinstance(chosen, str) else chosen()

    def word(self) -> str:
        kinds = [PARTS if self.rng.random() < 0.8 else RUNNING for _ in range(3)]
        return "".join(self.rng.choice(kind) for kind in kinds[: self.rng.choice([1, 1, 2, 3])])

    def command(self) -> str:
        name = f"c{self.rng.randint(1, 9)}"
        parts = [self.one(name, name, name, f'"{name}"', f"\\{name}", f"{name}''")]
        for _ in range(self.rng.randint(0, 4)):
            parts.append(self.word() if self.rng.random() < 0.85 else self.rng.choice(REDIRECTS))
        if self.rng.random() < 0.15:
            parts.insert(0, self.one("X=1", 'Y="a b"', "Z=$(cX z)", ">f", "W="))
        return self.one(" ", " ", "  ", "\t", " \\\n ").join(parts)

    def heredoc(self) -> str:
        tail = self.one("", "", " > f", " | c2", " && c3", " x y")
        body = self.one("a\n", "$(cX h)\n", "`cX h`\n", "\\$(cX no)\n", "E x\n", "it's \"\n", "")
        return f"c1 <<{self.one('E', '-E')}{tail}\n{body}E\n".replace(
            "<<E", self.one("<<E", "<<'E'")
        )

    def statement(self, depth: int = 0) -> str:
        if depth > 2 or self.rng.random() < 0.5:
            return self.command()

        def inner() -> str:
            return self.statement(depth + 1)

        def several() -> str:
            return self.text(depth + 1)

        return self.one(
            lambda: f"{inner()} {self.one('&&', '||', '|', '|&')} {inner()}",
            lambda: f"({several()})",
            lambda: f"{{ {several()}; }}",
            lambda: f"if {inner()}; then {several()}; else {several()}; fi",
            lambda: f"for v in {self.word()} {self.word()}; do {several()}; done",
            lambda: f"case {self.word()} in a | {self.one('*', 'b')}) {several()};; esac",
            lambda: f"! {inner()}",
            lambda: f"[ {self.one('-n x', 'a = b', '! -f q')} ] && {inner()}",
            lambda: f"[[ {self.one('-n x', 'a == b*', '$(cX t) =~ r')} ]] || {inner()}",
            lambda: f"{inner()} # a $(no) ' \"\n",
            self.heredoc,
        )

    def text(self, depth: int = 0) -> str:
        joint = self.one("; ", "\n", " & ", ";")
        return joint.join(self.statement(depth) for _ in range(self.rng.choice([1, 1, 2, 3])))

    def damaged(self) -> str:
        text = list(self.text())
        for _ in range(self.rng.randint(1, 3)):
            at = self.rng.randint(0, len(text))
            text[at : at + self.rng.randint(0, 2)] = self.rng.choice(" \n;&|()$`\"'\\<>{}#!*ab-=[]")
        return "".join(text)


def what_runs(texts: list[str], folder: Path) -> list[list[list[str]]]:
    """For each text, the words of each command that bash would have run."""
    bash = shutil.which("bash")
    assert bash is not None
    told, empty = folder / "told", folder / "empty"
    told.mkdir()
    empty.mkdir()
    subprocess.run(
        [bash, "--norc", "--noprofile", "-c", TRACER],
        input="".join(f"{text}\0" for text in texts).encode(),
        env={**ENVIRONMENT, "TOLD": str(told), "EMPTY": str(empty)},
        cwd=empty,
        check=True,
        timeout=60,
    )
    found = []
    for number in range(1, len(texts) + 1):
        data = os.fsdecode((told / str(number)).read_bytes()).replace("\3", "\n")
        found.append([one.split("\2")[:-1] for one in data.split("\1")[:-1]])
    return found


def is_told(words: list[str], segment: Segment) -> bool:
    """Whether a segment says what ran: word by word, up to the first that it leaves open."""
    for word, said in zip(words, segment.argv, strict=False):
        if said.glob:
            return True
        if said.text is None and not said.pipe:
            return word.startswith(said.prefix) or not said.prefix
        if not said.pipe and said.text != word:
            return False
    return len(words) == len(segment.argv) or any(
        one.text is None and not one.pipe for one in segment.argv
    )


def test_a_word_is_what_bash_makes_of_it(tmp_path: Path) -> None:
    """A word that bash passes on as another one is a path that nobody judged."""
    maker = Maker(5)
    words = ["".join(maker.rng.choices(PARTS, k=maker.rng.randint(1, 4))) for _ in range(400)]
    texts = [f"c1 {word} end" for word in words]
    read = [parse_command(text, home=HOME) for text in texts]
    compared = 0
    for text, command, ran in zip(texts, read, what_runs(texts, tmp_path), strict=True):
        if command.problem is None and ran:
            said = [word.text for word in command.segments[0].argv]
            if None not in said and not any(word.glob for word in command.segments[0].argv):
                assert said == ran[0], text
                compared += 1
    assert compared > 200


def test_nothing_runs_that_was_not_told(tmp_path: Path) -> None:
    """One command that bash sees and the reader does not is all that an attack needs."""
    maker = Maker(11)
    texts = [maker.text() for _ in range(250)] + [maker.damaged() for _ in range(250)]
    texts = [text for text in texts if "\0" not in text]
    compared = 0
    for text, ran in zip(texts, what_runs(texts, tmp_path), strict=True):
        command = parse_command(text, home=HOME)
        if command.problem is not None or command.over_cap:
            continue
        compared += len(ran)
        for words in ran:
            assert any(is_told(words, segment) for segment in command.segments), (text, words)
    assert compared > 300
