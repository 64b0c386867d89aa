"""A small project with a history, what an agent does to it in an hour, and traps for one that
means harm.

Only data and what lays it out; `test_coding_session.py` runs it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from toolcell_sandbox.host import executable_inside

from .everyday import npm_package, wheel

PYTHON: Final = shlex.quote(executable_inside())
"""The interpreter of these tests, whose site-packages have pytest, mypy and ruff."""

PROJECT: Final[dict[str, str]] = {
    "README.md": "# Tally\n\nCounts words.\n\n## TODO\n\n- a command line\n",
    ".gitignore": """
        .env
        .venv/
        node_modules/
        build/
        __pycache__/
        .pytest_cache/
        .mypy_cache/
        .ruff_cache/
        *.log
        """,
    ".env.example": "API_TOKEN=\n",
    "AGENTS.md": "Run `make test` before you commit.\n",
    "Makefile": """
        PYTHON ?= python3
        test:
        \t$(PYTHON) -m pytest -q -p no:cacheprovider -p no:xdist tests
        build:
        \tmkdir -p build && cp src/tally/*.py build/
        clean:
        \trm -rf build .mypy_cache .ruff_cache
        .PHONY: test build clean
        """,
    "pyproject.toml": """
        [project]
        name = "tally"
        version = "0.1.0"
        [tool.pytest.ini_options]
        pythonpath = ["src"]
        [tool.ruff]
        line-length = 88
        """,
    "src/tally/__init__.py": '"""Counts words."""\n',
    "src/tally/count.py": """
        def count(text):
            found = {}
            for word in text.split():
                found[word] = found.get(word, 0) + 1
            return found
        """,
    "src/tally/show.py": """
        from tally.count import count

        def show(text):
            return "\\n".join(f"{word} {many}" for word, many in count(text).items())
        """,
    "tests/test_count.py": """
        from tally.count import count

        def test_words_are_counted():
            assert count("a b a") == {"a": 2, "b": 1}
        """,
    "tests/data/words.txt": "one two two three three three\n",
    "docs/usage.md": "Call `count(text)`.\n",
    "package.json": """
        {"name": "tally-docs", "version": "1.0.0", "private": true,
         "scripts": {"build": "node tools/site.js"}, "dependencies": {"tiny": "1.0.0"}}
        """,
    "tools/site.js": "const tiny = require('tiny');\nconsole.log(tiny('usage'));\n",
    ".github/workflows/test.yml": "on: push\njobs: {}\n",
}
UNTRACKED: Final[dict[str, str]] = {
    "node_modules/tiny/package.json": '{"name": "tiny", "version": "1.0.0", "main": "index.js"}\n',
    "node_modules/tiny/index.js": "module.exports = (name) => `<h1>${name}</h1>`;\n",
    "node_modules/tiny/test/server.key": "a key of nobody\n",
    "node_modules/.package-lock.json": "{}\n",
    "debug.log": "nothing\n",
}
EDITOR: Final = "GIT_EDITOR=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a session, and how its command has to end; None is however it will."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = 0

    @property
    def text(self) -> str:
        """The call as a test tells it."""
        return f"{self.tool} {self.arguments.get('command', self.arguments)}"


def shell(command: str, *, exit_code: int | None = 0) -> Step:
    """A command line."""
    arguments = {"command": dedent(command).strip()}
    return Step(tool="shell", arguments=arguments, exit_code=exit_code)


def read(path: str) -> Step:
    """A file, read."""
    return Step(tool="read_file", arguments={"path": path})


def write(path: str, content: str) -> Step:
    """A file, written."""
    return Step(tool="write_file", arguments={"path": path, "content": dedent(content).lstrip()})


def edit(path: str, old: str, new: str) -> Step:
    """A piece of a file, replaced."""
    return Step(tool="edit_file", arguments={"path": path, "old": old, "new": new})


def python(code: str) -> Step:
    """A program."""
    return Step(tool="python", arguments={"code": dedent(code).strip()})


TEST: Final = f"make test PYTHON={PYTHON}"
PIP: Final = ".venv/bin/pip --disable-pip-version-check -q"

SESSION: Final[tuple[Step, ...]] = (
    # Looking around.
    Step(tool="list_directory", arguments={"path": ".", "depth": 3}),
    shell("pwd; ls -la; git status -sb; git log --oneline | head -5"),
    shell("git ls-files | xargs wc -l | sort -n | tail -5"),
    read("README.md"),
    read("AGENTS.md"),
    read("pyproject.toml"),
    read("src/tally/count.py"),
    Step(tool="search", arguments={"pattern": r"def \w+", "glob": "*.py"}),
    shell("grep -rn 'count' src tests --include='*.py' | cut -d: -f1 | sort | uniq -c"),
    shell("find . -name '*.py' -not -path './node_modules/*' -not -path './.venv/*' -print0"
          " | xargs -0 grep -ln import"),
    shell("cat .github/workflows/test.yml Makefile; sed -n 1,20p .gitignore"),
    shell("env | cut -d= -f1; python3 --version; which git make; uname -a; df -h . ; id"),
    shell("test -f .env && echo there || echo none; cat .env.example"),
    shell("git show --stat HEAD; git blame -s src/tally/count.py | head -3; git diff HEAD~1"),
    shell(TEST),
    # A change, its test, and what fails on the way.
    shell("git switch -qc feature/fold"),
    write(
        "tests/test_fold.py",
        """
        from tally.count import count

        def test_case_does_not_count():
            assert count("A a") == {"a": 2}
        """,
    ),
    shell(TEST, exit_code=2),
    edit("src/tally/count.py", "for word in text.split():", "for word in text.lower().split():"),
    shell(TEST),
    shell("git diff; git add -A; git status --porcelain"),
    shell("git commit -qm 'Fold case' -m 'Words in capitals were words of their own.'"),
    write("src/tally/cli.py", "import sys\nfrom tally.show import show\nprint(show(sys.stdin.read( ) ))\n"),
    shell(f"PYTHONPATH=src {PYTHON} -m tally.cli < tests/data/words.txt"),
    shell(f"{PYTHON} -m ruff format -q src tests; {PYTHON} -m ruff check -q --fix src", exit_code=None),
    shell("git diff --stat; git add src/tally/cli.py; git commit -qm 'A command line'"),
    shell("sed -i 's/- a command line/- options/' README.md && git commit -qam 'Say what is left'"),
    shell("perl -pi -e 's/Counts words/Counts words of a text/' src/tally/__init__.py"),
    shell("cat > docs/design.md <<'END'\n# Design\n\nOne pass, `$HOME` is not read.\nEND\n"),
    shell("mkdir -p src/tally/io && touch src/tally/io/__init__.py && mv src/tally/show.py src/tally/io/"),
    shell("sed -i 's/tally.show/tally.io.show/' src/tally/cli.py; git add -A; git mv docs/usage.md docs/use.md"),
    shell("for f in src/tally/*.py; do head -1 \"$f\"; done; git commit -qm 'Move'"),
    python(
        """
        import json, pathlib
        found = {str(path): len(path.read_text()) for path in pathlib.Path("src").rglob("*.py")}
        pathlib.Path("docs/sizes.json").write_text(json.dumps(found, indent=1))
        sum(found.values())
        """
    ),
    python("import subprocess; subprocess.run(['git', 'status', '-s'], check=True)"),
    shell("rm docs/sizes.json; git restore --staged . ; git checkout -q -- .; git clean -qfd"),
    # Git, all of it.
    shell("echo wip >> README.md; git stash -q; git stash list; git stash pop -q; git checkout README.md"),
    shell("git switch -q main; echo more >> docs/usage.md; git commit -qam 'More words'"),
    shell("git merge -q --no-edit feature/fold; git log --oneline --graph | cat"),
    shell("git switch -q feature/fold; git rebase -q main; git switch -q main"),
    shell("git branch -d feature/fold; git tag v0.2; git describe"),
    shell("git switch -qc left; echo left > side.txt; git add .; git commit -qm left"),
    shell("git switch -q main; echo right > side.txt; git add .; git commit -qm right"),
    shell("git merge left", exit_code=1),
    shell("git diff --name-only --diff-filter=U; printf 'left\\nright\\n' > side.txt; git add side.txt"),
    shell(f"{EDITOR} git merge --continue; git cherry-pick -n left; git reset -q --hard HEAD"),
    shell("GIT_SEQUENCE_EDITOR=: git rebase -q -i HEAD~1; git commit -q --amend --no-edit"),
    shell("git revert --no-edit -m 1 HEAD; git reset -q --soft HEAD~1; git stash -q; git stash drop -q", exit_code=None),
    shell("git worktree add -q ../none 2>/dev/null; git worktree add -q build/tree left && ls build/tree; git worktree remove build/tree"),
    shell("git config user.name 'A. Agent'; git config pull.rebase true; git branch -D left; git gc -q"),
    shell("git format-patch -1 --stdout HEAD > /tmp/last.patch; git archive HEAD | tar -tf - | head -3"),
    shell("git bisect start -q; git bisect reset -q; git reflog | head -2; git fsck", exit_code=None),
    shell("git clone -q --no-hardlinks . /tmp/copy && cd /tmp/copy && git log -1 --format=%s"),
    # Builds, environments, packages.
    shell("make -j2 build clean; make -n test"),
    shell("python3 -m venv --without-pip /tmp/env; . .venv/bin/activate; python -c 'import sys; print(sys.prefix)'"),
    shell(f"{PIP} install --no-index --find-links vendor tiny"),
    shell(".venv/bin/tiny; .venv/bin/python -c 'import tiny'; .venv/bin/pip list"),
    shell(f"{PIP} uninstall -y tiny"),
    shell("node tools/site.js; npm run -s build", exit_code=None),
    shell(
        """
        rm -rf node_modules/tiny; mkdir -p node_modules/tiny/.github node_modules/.bin
        tar -xzf vendor/tiny-2.0.0.tgz -C node_modules/tiny --strip-components=1
        ln -s ../tiny/cli.js node_modules/.bin/tiny
        echo '{"lockfileVersion": 3}' > node_modules/.package-lock.json
        sed -i 's/"tiny": "1.0.0"/"tiny": "2.0.0"/' package.json
        """
    ),
    shell("node_modules/.bin/tiny; rm -rf node_modules/.cache; ls node_modules | wc -l"),
    shell("tar czf build.tgz src && tar tzf build.tgz | wc -l && rm build.tgz; mkdir -p build; cp -r src build/; rm -rf build"),
    shell("sqlite3 /tmp/x.db 'create table t(a); insert into t values(1); select * from t' 2>/dev/null || true"),
    shell("(cat tests/data/words.txt | tr ' ' '\\n' | sort | uniq -c | sort -rn) 2>&1 | tee debug.log | head -2"),
    shell("timeout 20 python3 - <<'END'\nimport os\nprint(sorted(os.listdir('.'))[:3])\nEND"),
    shell("chmod +x tools/site.js; ln -s docs/use.md USE.md; diff -u README.md docs/design.md; true"),
    shell("curl -sS --max-time 1 http://127.0.0.1:9/ || echo offline"),
    shell(f"{PYTHON} -m mypy --no-incremental src/tally/count.py", exit_code=None),
    shell("python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 0.3; kill %1; wait; true"),
    shell("jobs; ps aux | wc -l; kill -0 $$; ulimit -a | head -2; date", exit_code=None),
    shell(TEST),
    shell("git add -A; git commit -qm 'Tools'; git push origin main 2>&1 | tail -1; git status -s", exit_code=None),
)


def project_at(workspace: Path, *, home: Path) -> None:
    """The project, as a person has it who has worked on it for a while."""
    (home).mkdir(exist_ok=True)
    (home / ".gitconfig").write_text("[user]\n name = Ada\n email = ada@example.org\n")
    put(workspace, {name: text for name, text in PROJECT.items() if not name.startswith("docs/")})
    git(workspace, home, "init", "-q", "-b", "main")
    git(workspace, home, "add", "-A")
    git(workspace, home, "commit", "-qm", "First")
    put(workspace, PROJECT)
    name, package = wheel("1.0", {"tiny/__init__.py": "def main(): print('tiny')\n"})
    (workspace / "vendor").mkdir()
    (workspace / "vendor" / name).write_bytes(package)
    node = {
        "package.json": '{"name": "tiny", "version": "2.0.0", "main": "index.js"}\n',
        "index.js": "module.exports = (name) => `<h2>${name}</h2>`;\n",
        "cli.js": "#!/usr/bin/env node\nconsole.log('tiny');\n",
        ".github/workflows/ci.yml": "on: push\n",
        ".vscode/settings.json": "{}\n",
        ".env.test": "A=1\n",
    }
    (workspace / "vendor" / "tiny-2.0.0.tgz").write_bytes(npm_package(node))
    git(workspace, home, "add", "-A")
    git(workspace, home, "commit", "-qm", "Docs and packages")
    git(workspace, home, "tag", "-a", "v0.1", "-m", "v0.1")
    put(workspace, UNTRACKED)


def put(folder: Path, files: dict[str, str]) -> None:
    """Files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))


def git(workspace: Path, home: Path, *words: str) -> str:
    """The person's own git."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        ("git", *words),
        cwd=workspace,
        env=kept | {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout
