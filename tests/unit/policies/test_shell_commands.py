"""The table of commands and the code for those with a shape of their own."""

import re

import pytest

from toolcell_policies._shell_table import ROLES, default_table, parse_table
from toolcell_policies.shell import CommandKind, Segment, parse_command

TABLE = default_table()


def only(text: str) -> Segment:
    command = parse_command(text)
    assert command.problem is None, command.problem
    return command.segments[-1]


def paths(text: str) -> tuple[list[str | None], list[str | None]]:
    segment = only(text)
    return [one.path for one in segment.reads], [one.path for one in segment.writes]


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("name", sorted(TABLE.commands.keys() - {"["}))
def test_a_row_asks_for_the_level_of_its_kind(name: str) -> None:
    """A row with a slip in it would be found by whoever needs it least."""
    profile = TABLE.commands[name]
    command = parse_command(f"{name} --what-is-this=x")
    assert command.problem is None
    told = profile.kind in command.segments[0].kinds
    assert told or command.level == 3 or profile.special == "git-verb"
    assert profile.lax or command.level == 3 or profile.special or profile.kind != "read"


@pytest.mark.parametrize("role", ["run", "network"])
def test_an_option_that_runs_or_connects_is_level_3(role: str) -> None:
    """However short it is cut."""
    for name, profile in TABLE.commands.items():
        for option, known in profile.options.items():
            if known.role == role:
                forms = [option]
                if option.startswith("--"):
                    forms += [option[:-1], f"{option}=x"] if len(option) > 6 else []
                for form in forms:
                    assert parse_command(f"{name} {form} x").level == 3, (name, form)


def test_what_an_option_writes_is_told() -> None:
    """Otherwise `-o ~/.bashrc` is a read of whatever else is named."""
    for name, profile in TABLE.commands.items():
        if profile.special or " " in name:
            continue
        for option, known in profile.options.items():
            if known.role == "write" and known.value == ":":
                for form in (f"{option} out.x", f"{option}{'=' if option[1] == '-' else ''}out.x"):
                    if len(option) > 2 and option[1] != "-" and form.endswith(f"{option}out.x"):
                        continue  # a long option with one dash has its value behind it
                    assert "out.x" in paths(f"{name} {form} a")[1], (name, form)


def test_roles_are_in_the_order_of_danger() -> None:
    """An option cut short is the first of what it could be."""
    assert ROLES.index("run") < ROLES.index("write") < ROLES.index("read") < ROLES.index("plain")


@pytest.mark.parametrize(
    "broken",
    [
        'kind = "reed"',
        'kind = "read"\nplane = "-a"',
        'kind = "read"\nplain = "a"',
        'kind = "read"\noperands = "sink"',
        "kind = ",
    ],
)
def test_a_table_with_a_slip_is_not_read_at_all(broken: str) -> None:
    """A half of a table would call what is missing unknown, and what is wrong a read."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_table(f"[command.x]\n{broken}\n[wrapper.y]\n")


def test_a_command_counts_where_the_system_keeps_its_programs() -> None:
    """`./sed` is whatever somebody has put there."""
    for folder in TABLE.program_folders:
        assert only(f"{folder}/cat a").level == 0
    for path in ("./cat", "bin/cat", "/tmp/cat", "//bin/cat", "/usr/bin/../../tmp/cat", "~/cat"):
        segment = only(f"{path} a")
        assert segment.level == 3
        assert CommandKind.RUNNER in segment.kinds


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("sort -k2 -t: a", ["a"], []),
        ("sort -o out a", ["a"], ["out"]),
        ("sort -oout a", ["a"], ["out"]),
        ("sort -ro out a", ["a"], ["out"]),
        ("sort --output out a", ["a"], ["out"]),
        ("sort --output=out a", ["a"], ["out"]),
        ("sort a -o out", ["a"], ["out"]),
        ("sort -- -o out", ["-o", "out"], []),
        ("sort -o", [], [None]),
        ("sort --output", [], [None]),
        ("sort -o$x a", ["a"], [None]),
        ("sort -oa$x b", ["b"], [None]),
        ("sort -o $x a", ["a"], [None]),
        ("sort --output=$x a", ["a"], [None]),
        ("sort -T d a", ["a"], ["d"]),
        ("sort --files0-from=l", ["l"], []),
        ("shuf -o - a", ["a"], []),
        ("head -5 a", ["a"], []),
        ("head -c 5 -n3 a", ["a"], []),
        ("grep -e x a b", ["a", "b"], []),
        ("grep -f pats a", ["pats", "a"], []),
        ("grep x", ["."], []),
        ("rg -f pats a", ["pats", "a"], []),
        ("gofmt -w a", ["a"], ["a"]),
        ("ruff check --fix", ["."], ["."]),
        ("git -C sub add a", ["sub"], ["sub/."]),
        ("cd a && git -C b add c", ["a/b"], ["a/b/."]),
        ("patch -d sub -p1", ["sub"], ["sub/."]),
        ("tree -o out", ["."], ["out"]),
        ("file -C", [], []),
        ("xxd a out", ["a"], ["out"]),
        ("cat <(ls) a", ["a"], []),
        ("tee >(cat)", [], []),
        ("cp a b c", ["a", "b"], ["c"]),
        ("cp a", ["a"], []),
        ("cp -t d a b", ["a", "b"], ["d"]),
        ("mv -t d a b", [], ["d", "a", "b"]),
        ("install -d a b", [], ["a", "b"]),
        ("install -m 755 a b", ["a"], ["b"]),
        ("ln a b", ["a"], ["b"]),
        ("ln -s ../a", ["../a"], ["."]),
        ("chmod 644 a", [], ["a"]),
        ("chmod -rw a", [], ["a"]),
        ("chown --reference=a b", [], ["b"]),
        ("touch -r a b", ["a"], ["b"]),
        ("dd if=a of=b bs=1", ["a"], ["b"]),
        ("dd --help", [], []),
        ("dd of=$x", [], [None]),
        ("jq --rawfile a f . b", ["f", "b"], []),
        ("jq --slurpfile a f --arg b c . d", ["f", "d"], []),
        ("jq . a --args b", ["a"], []),
        ("jq -f p a", ["p", "a"], []),
        ("mktemp -p d", [], ["d"]),
        ("find -name a", ["."], []),
        ("find -L a b -type f", ["a", "b"], []),
        ("find a -newer b -fprintf out %p", ["a", "b"], ["out"]),
        ("find a -fprint", ["a"], []),
        ("find a -newer", ["a"], []),
        ("find a -name", ["a"], []),
        ("tar cf a.tar b c", ["b", "c"], ["a.tar"]),
        ("tar cf", [], [None]),
        ("tar -cf - b", ["b"], []),
        ("tar cf a.tar -C d b /c", ["d/b", "/c"], ["a.tar"]),
        ("tar cf a.tar -C d -C e b", [None], ["a.tar"]),
        ("tar xf a.tar", ["a.tar"], ["."]),
        ("tar xf a.tar -C d", ["a.tar"], ["d"]),
        ("tar -xOf a.tar", ["a.tar"], []),
        ("tar tf a.tar", ["a.tar"], []),
        ("tar rf a.tar $x", [None], ["a.tar"]),
        ("unzip a -d b", ["a"], ["b", "."]),
        ("env -C a cat b", ["a", "a/b"], []),
        ("xargs -a l cat", ["l", None], []),
        ("xargs -I {} cat a {}", ["a", None], []),
        ("xargs -i cat x{}", [None], []),
        ("xargs", [], []),
        ("time -o t cat a", ["a"], ["t"]),
        ("flock l cat a", ["a"], ["l"]),
    ],
)
def test_each_path_of_a_command_is_told_by_its_role(
    text: str, reads: list[str | None], writes: list[str | None]
) -> None:
    """The path rules judge these and nothing else."""
    assert paths(text) == (reads, writes)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("sort -o out a", 2),
        ("sort --strange a", 3),
        ("sort -Q a", 3),
        ("sort $x", 3),
        ("sort -$x", 3),
        ("sort --$x", 3),
        ("sort -n$x", 3),
        ("sort -- $x", 3),
        ("sort *", 3),
        ("sort a*", 0),
        ("sort ./*", 0),
        ("cat *", 0),
        ("ls --color=$x", 0),
        ("ls -$x", 3),
        ("shred -z a", 2),
        ("hostname", 0),
        ("hostname new", 0),
        ("pwd -P", 0),
        ("file -C", 2),
        ("dd a", 3),
        ("chmod $x a", 3),
        ("printf a b", 0),
        ("printf -- a", 0),
        ("printf -v x a", 3),
        ("printf $x a", 3),
        ("printf", 0),
        ("echo -e $x", 0),
        ("set -euo pipefail", 0),
        ("set -- a $x", 0),
        ("set -o posix", 3),
        ("set $x", 3),
        ("shopt -s globstar", 0),
        ("shopt -s extglob", 3),
        ("test -f a", 0),
        ("test -v x", 0),
        ("test -v", 0),
        ("test -v 'x[0]'", 3),
        ("test -v $x", 3),
        ("test $x = a", 3),
        ("test \"a$x\" = a", 0),
        ("read -r a b", 0),
        ("read -p a b", 0),
        ("read -n1 a", 0),
        ("read -Q a", 3),
        ("read $x", 3),
        ("read a*", 3),
        ("export -p", 0),
        ("export -f f", 3),
        ("declare -i x=1", 3),
        ("declare -n x=y", 3),
        ("declare LC_X=$x", 0),
        ("declare $x=1", 3),
        ("getopts a:b opt", 0),
        ("unset x", 0),
        ("unset -f f", 3),
        ("let x", 3),
        ("mapfile x", 3),
        ("find $x", 3),
        ("find ./$x", 3),
        ("find a -size $x", 3),
        ("find a -name $x", 0),
        ("find a $x", 3),
        ("find a -type f *", 3),
        ("find a -strange", 3),
        ("find a -exec", 0),
        ("find a b -exec cat {} +", 3),
        ("find a -execdir cat {} +", 3),
        ("find a -exec cat x{} +", 3),
        ("find a* -exec cat {} +", 3),
        ("find -- -exec cat {} +", 3),
        ("find a -delete", 2),
        ("tar a.tar", 3),
        ("tar -f a.tar", 3),
        ("tar xPf a.tar", 3),
        ("tar cf a.tar --remove-files b", 3),
        ("tar tf h:a.tar", 3),
        ("tar tf ./h:a.tar", 0),
        ("nice", 0),
        ("command -v ls", 0),
        ("command -V ls", 0),
        ("exec", 0),
        ("env", 0),
        ("env LC_X=a", 0),
        ("env -S 'cat a'", 0),
        ("env -S 'cat \"a\"'", 3),
        ("env -S \"$x\"", 3),
        ("env $x cat", 3),
        ("env LC_X=$x cat a", 0),
        ("env -u LC_X cat a", 0),
        ("env -u", 3),
        ("sudo LC_X=a cat a", 3),
        ("sudo sudo cat a", 3),
        ("nice --strange nice --strange ls", 3),
        ("[ -v x ]", 0),
        ("[ -v 'x[a]' ]", 3),
        ("IFS= read -r x", 0),
        ("IFS= cat a", 3),
        ("a[b]=1", 3),
        ("a[1]=b", 0),
        ("[[ 1 -eq 2 ]]", 0),
        ("[[ x -eq 2 ]]", 3),
        ("[[ -f a ]]", 0),
        ("sh -c '[[ a ]]'", 3),
        ("coproc { ls", 3),
        ("watch -n 1 cat a", 0),
        ("watch -x cat a", 0),
        ("watch \"$x\"", 3),
        ("flock l -c 'cat a'", 2),
        ("flock -c 'cat a' l", 2),
        ("flock l", 2),
        ("su", 3),
        ("su -c ls", 3),
        ("runuser -u a -- ls", 3),
        ("coproc ls", 3),
        ("coproc { ls; }", 3),
        ("bash", 3),
        ("bash -x", 3),
        ("bash -c", 3),
        ("bash --strange -c ls", 3),
        ("bash -c ''", 3),
        ("bash -c '('", 3),
        ("bash -c ls*", 3),
        ("bash -o pipefail -c ls", 0),
        ("bash -o strange -c ls", 3),
        ("bash -o", 3),
        ("bash --norc -euxo pipefail -c ls", 0),
        ("bash -c ls > out", 2),
        ("bash -c ls <<< a", 0),
        ("bash +x -c ls", 3),
        ("bash $x -c ls", 3),
        ("fish -c ls", 3),
        ("eval 'a b", 3),
        ("eval 'ls", 3),
        ("kill 1", 2),
        ("npm", 3),
        ("npm run x", 3),
        ("npm $x", 3),
        ("pip list --outdated", 3),
        ("go version", 0),
        ("go version x", 3),
        ("*", 3),
    ],
)  # fmt: skip
def test_a_word_that_decides_is_known_or_asked_about(text: str, level: int) -> None:
    """An option that is not known, or only when it runs, is whatever the attacker needs."""
    command = parse_command(text)
    if text.startswith("eval '"):
        assert command.problem is not None
    assert command.level == level, command


# ---------------------------------------------------------------- git


@pytest.mark.parametrize(
    ("text", "level", "reads", "writes"),
    [
        ("git log", 0, [], []),
        ("git log -5 --oneline -- a", 0, [], []),
        ("git diff a b", 0, [], []),
        ("git diff /etc/x ../b", 0, ["/etc/x", "../b"], []),
        ("git diff --no-index a b", 0, ["a", "b"], []),
        ("git diff --no-in a b", 0, ["a", "b"], []),
        ("git blame --contents f a", 0, ["f"], []),
        ("git branch -vv --merged main", 0, [], []),
        ("git branch --list 'a*'", 0, [], []),
        ("git branch new", 2, [], ["."]),
        ("git branch -d old", 2, [], ["."]),
        ("git branch -m new", 2, [], ["."]),
        ("git tag", 0, [], []),
        ("git tag v1", 2, [], ["."]),
        ("git tag -s v1", 3, [], ["."]),
        ("git remote", 0, [], []),
        ("git remote get-url origin", 0, [], []),
        ("git remote remove origin", 2, [], ["."]),
        ("git remote add a b", 3, [], []),
        ("git remote $x", 3, [], []),
        ("git stash", 2, [], ["."]),
        ("git stash show -p", 0, [], []),
        ("git stash strange", 3, [], ["."]),
        ("git stash $x", 3, [], ["."]),
        ("git worktree list", 0, [], []),
        ("git worktree add ../a b", 2, [], [".", "../a"]),
        ("git reflog", 0, [], []),
        ("git submodule update", 3, [], ["."]),
        ("git config --list", 0, [], []),
        ("git config user.name", 0, [], []),
        ("git config user.name me", 2, [], [".git/config"]),
        ("git config --global user.name me", 2, [], ["/home/user/.gitconfig"]),
        ("git config core.hooksPath x", 3, [], [".git/config"]),
        ("git config --unset user.name", 3, [], [".git/config"]),
        ("git config $x y", 3, [], [".git/config"]),
        ("git config", 3, [], [".git/config"]),
        ("git add .", 2, [], ["."]),
        ("git commit -S -m a", 3, [], ["."]),
        ("git commit --strange", 3, [], ["."]),
        ("git rebase -i main", 3, [], ["."]),
        ("git rebase main", 2, [], ["."]),
        ("git init ../a", 2, [], [".", "../a"]),
        ("git mv a b", 2, [], ["."]),
        ("git rm -- a/b", 2, [], [".", "a/b"]),
        ("git clone ../a b", 2, ["../a"], ["b"]),
        ("git clone /a", 2, ["/a"], ["."]),
        ("git clone host:a", 3, [], []),
        ("git clone -u ./x ../a", 3, ["../a"], ["."]),
        ("git archive HEAD", 3, [], []),
        ("git archive --remote=x HEAD", 3, [], []),
        ("git --version", 0, [], []),
        ("git", 3, [], []),
        ("git $x", 3, [], []),
        ("git -p log", 3, [], []),
    ],
)
def test_git_is_read_by_its_command(
    text: str, level: int, reads: list[str], writes: list[str]
) -> None:
    """`git` alone says nothing: it lists, it writes, it runs a pager, it asks a host."""
    assert parse_command(text).level == level
    assert paths(text) == (reads, writes)


# ---------------------------------------------------------------- programs in words


@pytest.mark.parametrize(
    ("script", "level"),
    [
        ("p", 0),
        ("1,10p;$d", 0),
        ("/a/,/b/{s/x/y/g;p}", 0),
        ("\\,a,d", 0),
        ("1~2d;2,+3d;4,~2d", 0),
        ("/a/I!d", 0),
        ("s/a\\/b/c/2gI", 0),
        ("s|a|b|;y/ab/cd/", 0),
        (":a;N;$!ba;s/\\n/ /g", 0),
        ("a hello; w f", 0),
        ("i\\\nhello\\\nw f", 0),
        ("a\\", 0),
        ("c x", 0),
        ("# w f\np", 0),
        ("q5;l 3;=;Q", 0),
        ("r f", 0),
        ("w out", 2),
        ("s/a/b/w out", 2),
        ("s/a/b/gw out", 2),
        ("w /dev/stdout", 2),
        ("W out", 2),
        ("e", 3),
        ("1e id", 3),
        ("s/a/b/e", 3),
        ("s/a/b/ge", 3),
        ("s/a/b", 3),
        ("s", 3),
        ("y/a/b", 3),
        ("p x", 3),
        ("s/a/b/ x", 3),
        ("Z", 3),
        ("1", 3),
        ("1,2,3p", 3),
        ("s\\a\\b\\", 3),
        ("/a", 3),
    ],
)
def test_a_script_of_sed_is_read(script: str, level: int) -> None:
    """`sed` reads, edits, writes other files and runs commands by one letter."""
    quoted = script.replace("'", "'\\''")
    assert parse_command(f"sed '{quoted}' f").level == level
    assert parse_command(f"sed -n -e p -e '{quoted}' f").level == level


def test_the_files_of_sed_are_told() -> None:
    """A script for a file name is a file nobody judged."""
    assert paths("sed p a b") == (["a", "b"], [])
    assert paths("sed -e p a b") == (["a", "b"], [])
    assert paths("sed 'r x' a") == (["x", "a"], [])
    assert paths("sed 's/a/b/w x' a") == (["a"], ["x"])
    assert paths("sed -i p a") == (["a"], ["a"])
    assert paths("sed -f s a") == (["a"], [])
    assert only("sed").level == 0
    assert only("sed -e").level == 3
    assert only('sed "$x" a').level == 3


@pytest.mark.parametrize(
    ("program", "level"),
    [
        ("{print $1}", 0),
        ("$3 > 5", 0),
        ("$3 > 5 {print $1}", 0),
        ("/a|b/ {n++}", 0),
        ("{x = $1 / 2; print x > \"/dev/stderr\"}", 0),
        ("$1 ~ /[>|]/ {print}", 0),
        ("{print a[1] / 2} # > x", 0),
        ("/[/]/ {print > \"a\"}", 3),
        ("{print \"a|b>c\"; y = .5e3 || 1}", 0),
        ("{if ($1 > 2) print \"x\"}", 0),
        ("{print > \"out\"}", 2),
        ("{print >> \"out\"; n++}", 2),
        ("{print > $1}", 3),
        ("{print > \"a\" \"b\"}", 3),
        ("{print > \"/inet/tcp/0/h/1\"}", 3),
        ("{print | \"sh\"}", 3),
        ("{\"id\" | getline}", 3),
        ("{getline < \"f\"}", 3),
        ("BEGIN{system(\"id\")}", 3),
        ("BEGIN{@f()}", 3),
        ("(1) /\"/; \"a\" | \"sh\"", 3),
        ("x++ /\"/; \"a\" | \"sh\"", 3),
        ("/a > 1", 3),
        ("\"a > 1", 3),
    ],
)  # fmt: skip
def test_a_program_of_awk_is_read(program: str, level: int) -> None:
    """A pipe in a pattern is none; a pipe that looks like a pattern's is one."""
    assert parse_command(f"awk '{program}' f").level == level


def test_the_files_of_awk_are_told() -> None:
    """`name=value` among them sets a variable."""
    assert paths("awk 1 a x=1 b") == (["a", "b"], [])
    assert paths("awk '{print > \"o\"}' a") == (["a"], ["o"])
    assert paths("awk -F : -v x=1 1 a") == (["a"], [])
    assert only("awk").level == 0
    assert only('awk "$x" a').level == 3
    assert only("awk 1 $x").level == 3


# ---------------------------------------------------------------- removals


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /home/user", "rm -rf /home", "rm -rf /home/other", "rm -rf /h*", "rm -rf /home/u*",
        "rm -rf ~/./", "rm -rf ../..", "rm -rf ../.*", "rm -rf ~/[!.]*", "rm -rf ~/?*",
        "cd $x; rm -rf ..", "find .. -delete", "find / -name '*' -delete", "find ~ -exec rm {} +",
        "find / -exec shred {} +", "cat a > /dev/sda", "dd of=/dev/mmcblk0", "mkswap a",
    ],
)  # fmt: skip
def test_a_removal_that_no_work_needs_is_critical(text: str) -> None:
    """Nobody who agrees to one of these has read it."""
    command = parse_command(text)
    assert any(CommandKind.REMOVAL_CRITICAL in each.kinds for each in command.segments), command


@pytest.mark.parametrize(
    "text",
    [
        "rm /", "rm -f ~/*", "rm -rf ../a", "rm -rf ../a*", "rm -rf *", "rm -rf ./.*", "rm -rf .*",
        "rm -rf /home/user/a", "rm -rf /opt/a/b", "rm -rf /tmp/*", "rm -rf /srv/x/*", "rm -rf $x/*",
        "rm -rf build/*", "rm -rf a/../b", "find / -name '*.pyc' -delete", "find . -delete",
        "find . -exec rm -rf {} +", "find / -name a -exec rm -rf {} +", "ls -r /", "dd of=disk.img",
        "rmdir /", "rm -rf ~x",
    ],
)  # fmt: skip
def test_an_everyday_removal_is_not_critical(text: str) -> None:
    """A fence that cannot be opened must not stand in the way of work."""
    command = parse_command(text)
    assert command.problem is None
    assert all(CommandKind.REMOVAL_CRITICAL not in one.kinds for one in command.segments), command


def test_codes_of_reasons_are_a_closed_set() -> None:
    """Programs compare them."""
    texts = (
        "rm a; curl; python; make; unheard; $x; sudo ls; PATH=. ls; sed -i; rm -rf /; eval; ((x))"
    )
    codes = {reason.code for each in parse_command(texts).segments for reason in each.reasons}
    assert codes == {
        "command_dynamic", "command_env", "command_interpreter", "command_network",
        "command_not_understood", "command_redefines", "command_runner", "command_unknown",
        "command_wrapper", "command_write", "removal_critical",
    }  # fmt: skip
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)
