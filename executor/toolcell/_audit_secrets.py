"""What a secret looks like, as tables: names of it, forms of its text, flags that carry it.

`_audit_redact` interprets them. Names are compared by their parts, casefolded: what `-`, `_`, `.`
and a change of case set apart. Expressions are RE2's, over bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# -- names ----------------------------------------------------------------------------------

LAST_PARTS: Final = frozenset(
    {
        *("password", "passwords", "passwd", "passphrase", "secret", "secrets", "token"),
        *("apikey", "privatekey", "secretkey", "accesskey", "authorization", "cookie", "cookies"),
        *("credential", "credentials", "sshpass", "jwt", "otp", "cvv", "mnemonic"),
    }
)
"""A name that ends in one of these is a secret's. `max_tokens` and `tokenizer` do not."""

LAST_PAIRS: Final = frozenset(
    {
        *(("api", "key"), ("private", "key"), ("secret", "key"), ("access", "key")),
        *(("auth", "key"), ("signing", "key"), ("encryption", "key"), ("master", "key")),
        *(("account", "key"), ("ssh", "key"), ("seed", "phrase"), ("recovery", "phrase")),
        ("connection", "string"),
    }
)
"""The same of its last two parts."""

SUFFIXES: Final = ("password", "passwd", "passphrase", "token", "apikey", "secret")
"""The end of a last part: `PGPASSWORD`, `authtoken`."""

LAST_OF_MANY: Final = frozenset({"pass", "pwd", "auth"})
"""The last of several parts: `DB_PASS`, and neither `pass` nor `PWD`."""

WHOLE: Final = frozenset({"auth"})
"""A whole name of an argument or a field, where it holds a value of its own."""

IGNORED_LAST: Final = frozenset({"value", "val", "plaintext", "hash", "base64"})
"""Last parts that change nothing: `password_value` is what `password` is."""

HEADERS: Final = frozenset({"authorization", "cookie"})
"""Last parts of names whose value goes on to the end of its line, blanks and all."""

HARMLESS_WORDS: Final = frozenset(
    {
        *(b"true", b"false", b"none", b"null", b"yes", b"no", b"on", b"off"),
        *(b"str", b"string", b"bytes", b"int", b"bool", b"secretstr"),
    }
)
"""Values that give nothing away: a switch, or the name of a type."""

NAME_KEYS: Final = frozenset({"name", "key", "header", "field", "variable"})
VALUE_KEYS: Final = frozenset({"value", "val", "content", "data"})
"""`{"name": "API_KEY", "value": "x"}` names its value too."""

# -- forms ----------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A form of text that is a secret whatever its name is."""

    name: str
    expression: bytes
    hints: tuple[bytes, ...]
    """Every text that has the form has one of these, compared in lower case."""
    group: int = 0
    """What of the match is the secret."""
    needs_digit: bool = False


SHAPES: Final = (
    Shape(
        "private_key",
        rb"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rb".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
        (b"private key",),
    ),
    Shape("putty_key", rb"(?s)PuTTY-User-Key-File-\d.*", (b"putty-user-key-file-",)),
    Shape("age_key", rb"AGE-SECRET-KEY-1[0-9A-Za-z]+", (b"age-secret-key-1",)),
    Shape("github", rb"\bgh[oprsu]_[A-Za-z0-9]{16,}", tuple(b"gh%c_" % c for c in b"oprsu")),
    Shape("github_fine", rb"\bgithub_pat_[A-Za-z0-9_]{16,}", (b"github_pat_",)),
    Shape("gitlab", rb"\bgl(?:pat|rt|dt|ft)-[A-Za-z0-9_-]{16,}", (b"glpat-", b"glrt-", b"gldt-")),
    Shape("model_key", rb"\bsk-[A-Za-z0-9_-]{16,}", (b"sk-",), needs_digit=True),
    Shape("payment", rb"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", (b"k_live_", b"k_test_")),
    Shape("aws", rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", (b"akia", b"asia")),
    Shape("google", rb"\bAIza[A-Za-z0-9_-]{35}", (b"aiza",)),
    Shape("google_access", rb"\bya29\.[A-Za-z0-9_-]{20,}", (b"ya29.",)),
    Shape("chat", rb"\bxox[abeoprs]-[A-Za-z0-9-]{8,}", (b"xox",)),
    Shape("npm", rb"\bnpm_[A-Za-z0-9]{36}", (b"npm_",)),
    Shape("pypi", rb"\bpypi-[A-Za-z0-9_-]{50,}", (b"pypi-",)),
    Shape("hub", rb"\bhf_[A-Za-z0-9]{30,}", (b"hf_",)),
    Shape("mail", rb"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", (b"sg.",)),
    Shape("jwt", rb"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*", (b"eyj",)),
    Shape("bearer", rb"\b(?:Bearer|BEARER)\s+([A-Za-z0-9._~+/=-]+)", (b"bearer",), 1),
    Shape("bearer_low", rb"\bbearer\s+([A-Za-z0-9._~+/=-]{16,})", (b"bearer",), 1),
    Shape(
        "element",
        rb"(?i)<[a-z:_-]{0,40}(?:password|passphrase|secret|token|apikey|privatekey)>([^<]+)</",
        (b"</",),
        1,
    ),
    Shape("url_userinfo", rb"""[A-Za-z0-9+.-]://([^\s/?#'"<>]+)@""", (b"://",), 1),
)

# -- commands -------------------------------------------------------------------------------


class Flag(NamedTuple):
    """A flag whose value is a secret though its name does not say so."""

    word: str
    is_joined: bool = False
    """The value may follow in the same word."""
    is_apart: bool = True
    """The value may be the next word."""


_JOINED: Final = (Flag("-p", is_joined=True, is_apart=False),)
_P: Final = (Flag("-p", is_joined=True),)


def _glued(*words: str) -> tuple[Flag, ...]:
    return tuple(Flag(word, is_joined=True, is_apart=False) for word in words)


_A: Final = (Flag("-a"), Flag("--auth"), *_glued("--auth="))

COMMAND_FLAGS: Final[dict[str, tuple[Flag, ...]]] = {
    "7z": _JOINED,
    "mariadb": _JOINED,
    "mariadb-dump": _JOINED,
    "mysql": _JOINED,
    "mysqladmin": _JOINED,
    "mysqldump": _JOINED,
    "mongo": _P,
    "mongodump": _P,
    "mongosh": _P,
    "sshpass": _P,
    "http": _A,
    "https": _A,
    "redis-cli": (Flag("-a"), Flag("--pass"), *_glued("--pass=")),
    "curl": (
        Flag("-u", is_joined=True),
        Flag("-U", is_joined=True),
        Flag("-b", is_joined=True),
        *map(Flag, ("--user", "--proxy-user", "--pass")),
        *_glued("--user=", "--proxy-user=", "--pass="),
    ),
    "ldapmodify": (Flag("-w", is_joined=True),),
    "ldapsearch": (Flag("-w", is_joined=True),),
    "lftp": (Flag("-u"),),
    "openssl": tuple(map(Flag, ("-passin", "-passout", "-pass", "-k", "-K"))),
    "smbclient": (Flag("-U"),),
    "sqlcmd": (Flag("-P", is_joined=True),),
    "unzip": (Flag("-P"),),
    "xfreerdp": (Flag("/p:", is_joined=True, is_apart=False),),
    "zip": (Flag("-P"),),
}

SETTING_COMMANDS: Final = frozenset({"config", "configure"})
"""After one of these, a name of a secret is followed by it: `npm config set _authToken x`."""

LOGIN_COMMANDS: Final = frozenset(
    {"az", "buildah", "docker", "helm", "nerdctl", "podman", "skopeo"}
)
LOGIN_FLAGS: Final = _P
"""What `-p` is to these after the word `login`; before, it is a port or a project."""
