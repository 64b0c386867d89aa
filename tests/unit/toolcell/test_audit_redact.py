"""What a record may hold of a call's arguments: no secret that shows, no more than fits."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from toolcell._audit_redact import (
    DEPTH_MAX,
    ITEMS_MAX,
    REDACTED,
    TEXT_CHARS_MAX,
    WINDOW_CHARS,
    is_secret_name,
    redact,
    redact_text,
)

R = REDACTED
S = "hunter2"
KEY = f"-----BEGIN RSA PRIVATE KEY-----\nMII{S}\n-----END RSA PRIVATE KEY-----"

NAMES = [
    *("password", "PASSWORD", "db_password", "dbPassword", "PGPASSWORD", "passwd", "passphrase"),
    *("secret", "client_secret", "clientSecret", "token", "GH_TOKEN", "access-token", "authToken"),
    *("api_key", "apiKey", "APIKey", "x-api-key", "OPENAI_API_KEY", "aws_secret_access_key"),
    *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "private_key", "privatekey"),
    *("credentials", "DB_PASS", "MYSQL_PWD", "SSHPASS", "password_hash", "token.value", "_auth"),
    *("password2", "connection_string", "signing.key"),
]
NO_NAMES = [
    *("tokenizer", "max_tokens", "tokens", "token_count", "token_type", "page_token_limit"),
    *(
        "password_file",
        "secret_name",
        "--token-file",
        "secretary",
        "keyboard",
        "key",
        "primary_key",
    ),
    *("pass", "PWD", "author", "authored", "bypass", "compass", "cookie_jar_path", "", "123"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_with_a_secret_name_is_not_recorded(name: str) -> None:
    """Otherwise the log is where every password ends up."""
    found = redact({name: S, "other": "kept", "deep": [{name: {"a": S}}]})
    assert S not in json.dumps(found)
    assert found[name] == R
    assert found["other"] == "kept"
    assert redact({name: 4711}) == {name: R}
    assert redact({name: None, f"{name} ": True}) == {name: None, f"{name} ": True}


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_only_looks_like_a_secret_keeps_its_value(name: str) -> None:
    """A log in which everything is redacted answers no question."""
    assert redact({name: S}) == {name: S}
    assert not is_secret_name(name)


TEXTS = [
    # assignments
    (f"export API_KEY={S} && run", f"export API_KEY={R} && run"),
    (f"PGPASSWORD='{S} {S}' psql -h db", f"PGPASSWORD='{R}' psql -h db"),
    (f"cmd --password={S} --verbose", f"cmd --password={R} --verbose"),
    (f"cmd --password {S} --verbose", f"cmd --password {R} --verbose"),
    (f"cmd --api-key '{S} x' y", f"cmd --api-key '{R}' y"),
    (f"env=PASSWORD={S} x", f"env=PASSWORD={R} x"),
    (f'sh -c "DB_PASS={S} run" after', f'sh -c "DB_PASS={R} run" after'),
    (f"https://h/p?token={S}&page=2", f"https://h/p?token={R}&page=2"),
    (f'{{"password": "{S}", "user": "me"}}', f'{{"password": "{R}", "user": "me"}}'),
    (f'{{"password": "a\\"{S}", "user": "me"}}', f'{{"password": "{R}", "user": "me"}}'),
    (f'"{{\\"token\\": \\"{S}\\", \\"a\\": 1}}"', f'"{{\\"token\\": \\"{R}\\", \\"a\\": 1}}"'),
    (f'password = "{S}"  # set', f'password = "{R}"  # set'),
    (f'token: str = "{S}"', f'token: str = "{R}"'),
    (f"if token == '{S}': pass", f"if token == '{R}': pass"),
    (f"os.environ['API_KEY'] = '{S}'", f"os.environ['API_KEY'] = '{R}'"),
    (f":client_secret => '{S}', a", f":client_secret => '{R}', a"),
    (f"password: {S} and {S}\nuser: me", f"password: {R}\nuser: me"),
    (f"  - token: {S}\n", f"  - token: {R}\n"),
    (f"use password: {S} or not", f"use password: {R} or not"),
    (f'password="{S}', f'password="{R}'),
    (f"password=`{S}", f"password=`{S}"),
    # headers
    (f"Authorization: Basic {S} {S}\nHost: h", f"Authorization: {R}\nHost: h"),
    (f"curl -H 'X-Api-Key: {S}' https://h", f"curl -H 'X-Api-Key: {R}' https://h"),
    (f"curl -H 'Cookie: a={S}; b={S}' h", f"curl -H 'Cookie: {R}' h"),
    ("Bearer xyz", f"Bearer {R}"),
    ("with bearer abcdefghijklmnop0", f"with bearer {R}"),
    (
        f"Authorization: Bearer {S}\npassword=ghp_{'a1' * 18} x",
        f"Authorization: {R}\npassword={R} x",
    ),
    # URLs
    (f"git clone https://me:{S}@host/r", f"git clone https://{R}@host/r"),
    (f"git clone https://{S}@host/r", f"git clone https://{R}@host/r"),
    (f"postgres://u:p@{S}@db:5432/x", f"postgres://{R}@db:5432/x"),
    # flags by command
    (f"mysql -u root -p{S} db", f"mysql -u root -p{R} db"),
    (f"mysql -p '-p{S}' db", f"mysql -p '-p{R} db"),
    (f"sshpass -p '{S} x' ssh h", f"sshpass -p {R} ssh h"),
    (f"sudo -n /usr/bin/curl -sS -u me:{S} h", f"sudo -n /usr/bin/curl -sS -u {R} h"),
    (f"a | redis-cli -a {S} ping; b -a c", f"a | redis-cli -a {R} ping; b -a c"),
    (f"docker login -u me -p {S} host", f"docker login -u me -p {R} host"),
    (f"openssl rsa -passin pass:{S} -in k", f"openssl rsa -passin {R} -in k"),
    # forms
    (f"echo {KEY} > k", f"echo {R} > k"),
    (KEY[:-20], R),
    ("x " + KEY.replace("RSA ", ""), f"x {R}"),
    ("PuTTY-User-Key-File-3: ssh\nmore", R),
    ("a ghp_" + "a1" * 18 + " b", f"a {R} b"),
    ("github_pat_" + "a1_" * 10, R),
    ("glpat-" + "a1" * 10, R),
    ("sk-proj-abc123def456ghi789", R),
    ("sk_live_" + "a1" * 10, R),
    ("AKIAIOSFODNN7EXAMPLE,", f"{R},"),
    ("AIza" + "a1" * 17 + "x", R),
    ("ya29." + "a1" * 12, R),
    ("xoxb-1234567890-abc", R),
    ("xoxp-1234567890-abc", R),
    ("npm_" + "a1" * 18, R),
    ("pypi-" + "a1" * 30, R),
    ("hf_" + "a1" * 17, R),
    ("SG." + "a1" * 10 + "." + "b2" * 10, R),
    ("AGE-SECRET-KEY-1QQQ", R),
    ("eyJhbGciOi.eyJzdWIiOi.c2ln x", f"{R} x"),
    (f"{S} \udcff TOKEN={S}", f"{S} \\udcff TOKEN={R}"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_a_secret_in_a_text_goes_and_the_rest_stays(text: str, shown: str) -> None:
    """A command line is the usual place of a password, and what somebody wants to read."""
    assert redact_text(text) == shown
    assert redact({"command": text}) == {"command": shown}
    assert redact_text(shown) == shown, "what was redacted is not redacted again"


NEAR_MISSES = [
    "pytest -q tests/unit -p no:cacheprovider",
    "mkdir -p a/b && cp -p a b; tar -p",
    "docker run -p 8080:80 image; ssh -p 22 host",
    "docker ps; login -p 3",
    "mysql -p db",
    "max_tokens=100, tokenizer=bpe, token_count=3",
    "the bearer of this letter",
    "def f(self, token: str, password: bytes) -> None:",
    "    token: str",
    "enabled password: true",
    "password=",
    "sk-learn-is-not-a-key-at-all",
    "AKIA and AKIASHORT",
    "git@github.com:owner/name.git",
    "https://host/@user and https://host:8080/a?b=c#d@e",
    "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
    "eyJhbGciOi.short",
    "--token --other",
    "grep -rn 'password' src | head",
    "curl -sS https://host/path",
]


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    """Otherwise nobody can tell from the log what was run."""
    assert redact_text(text) == text


def test_lists_and_pairs_name_their_values_too() -> None:
    """An argument vector, a header list and an env list say the same in other shapes."""
    given = {
        "argv": ["cmd", "--password", S, "kept", "-x", "kept"],
        "headers": [["Authorization", S], ("Cookie", S), ["Accept", "kept"]],
        "env": [{"name": "API_KEY", "value": S}, {"name": "LANG", "value": "kept"}],
        "assigned": [f"API_KEY={S}"],
        "three": ["token", "kept", "kept"],
        "said": [f"- a sentence that is long {'and ' * 20} ends with token", "kept"],
    }
    found = redact(given)
    assert S not in json.dumps(found)
    assert json.dumps(found).count("kept") == 7
    assert found["headers"] == [["Authorization", R], ["Cookie", R], ["Accept", "kept"]]


def test_a_long_text_is_cut_and_can_still_be_told_apart() -> None:
    """A megabyte of a file's content is no record, and which content it was is one."""
    text = "a" * 100_000
    shown = redact_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert shown == f"{'a' * TEXT_CHARS_MAX}[cut: 100000 characters, sha256 {digest}]"
    assert redact_text(text + "b") != shown
    exactly = "b" * TEXT_CHARS_MAX
    assert redact_text(exactly) == exactly
    assert redact_text(exactly + "b").endswith("]")


@pytest.mark.parametrize("before", [0, 1_000, TEXT_CHARS_MAX - 3, WINDOW_CHARS - 20, WINDOW_CHARS])
def test_no_half_of_a_secret_is_left_at_a_cut(before: int) -> None:
    """Ten characters of a token are a token for whoever has time."""
    for filler in (". ", f"password={S} "):
        text = (filler * WINDOW_CHARS)[:before] + " ghp_" + "a1" * 18 + " b" * 5_000
        shown = redact_text(text)
        assert "ghp_" not in shown
        assert "a1a1" not in shown
    # The digest of a text that is known but for a short secret would say what that is.
    assert "sha256" not in redact_text(f"password={S}" + " b" * 5_000)


def test_depth_items_and_the_whole_are_bounded() -> None:
    """A record has a size, whatever a model sends."""
    deep: Any = "end"
    for _ in range(DEPTH_MAX + 5):
        deep = {"a": [deep]}
    found = json.dumps(redact({"deep": deep}))
    assert "deeper, not recorded" in found
    assert '"end"' not in found
    wide = redact({"many": list(range(1_000)), **{f"k{n}": n for n in range(1_000)}})
    assert wide["many"][-1] == f"[{1_000 - ITEMS_MAX} more]"
    assert wide["[cut]"] == f"{1_001 - ITEMS_MAX} more"
    for fat in (["x" * 3_000] * 500, [["y" * 100] * 99] * 99, [f"password={S} " * 400] * 90):
        assert len(json.dumps(redact({"fat": fat}))) < 16_000
    assert "too much in one call" in json.dumps(redact({"fat": ["x" * 3_000] * 90}))
    assert "too much in one call" in json.dumps(redact({"fat": [f"password={S}" * 400] * 90}))
    assert "more]" in json.dumps(redact({"fat": [list(range(99))] * 99}))


class Rude(Mapping[str, Any]):
    """A mapping that does not behave."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


def test_any_object_gives_an_answer_in_json() -> None:
    """Arguments come from a model: what cannot be written down must not stop a record."""
    odd = {
        "nan": float("nan"),
        "inf": float("inf"),
        "float": 1.5,
        "huge": 1 << 20_000,
        "largest": 2**63,
        "bytes": b"x",
        "object": object(),
        ("a", "tuple"): 1,
        7: "seven",
        "lone\udcff": "\ud800",
        f"password={S}": 1,
    }
    found = redact(odd)
    text = json.dumps(found, allow_nan=False)
    text.encode("ascii")
    assert S not in text
    assert (found["nan"], found["inf"], found["float"]) == ("nan", "inf", 1.5)
    assert found["huge"] == "[an integer of 20001 bits]"
    assert found["largest"] == 2**63
    assert found["bytes"] == "[bytes, not recorded]"
    assert (found["tuple"], found["7"]) == (1, "seven")
    assert redact([S]) == {"[arguments]": "[list, not recorded]"}
    assert redact(Rude()) == {"[arguments]": "[RuntimeError while they were read, not recorded]"}
    itself: dict[str, Any] = {}
    itself["me"] = itself
    assert "deeper" in json.dumps(redact(itself))


HOSTILE = [
    *("password=", "password='", 'x="', "\\", "'", "-----BEGIN PRIVATE KEY-----", "eyJ", "://"),
    *("mysql -p ", "--token ", "a.", "- ", ":=", "password=\\", "token: str = ", "Bearer ", "@"),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_nobody_looks_beyond_the_window_of_a_hostile_text(piece: str) -> None:
    """Otherwise one argument of a megabyte holds up every call of the process."""
    text = piece * (WINDOW_CHARS // len(piece))
    text += " " * (WINDOW_CHARS - len(text))
    shown = redact_text(text + "z" * 1_000_000)
    assert f"[cut: {len(text) + 1_000_000} characters" in shown
    assert len(shown) < TEXT_CHARS_MAX + 100
    # What lies beyond changes the digest alone.
    assert redact_text(text + "y" * 1_000_000).partition("[cut")[0] == shown.partition("[cut")[0]


def test_the_environment_is_nobodys_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference is recorded as it was written, not as what it stands for."""
    monkeypatch.setenv("TOOLCELL_TEST_VALUE", S)
    assert os.environ["TOOLCELL_TEST_VALUE"] == S
    text = "echo $TOOLCELL_TEST_VALUE ${TOOLCELL_TEST_VALUE} ~"
    assert redact({"command": text}) == {"command": text}
