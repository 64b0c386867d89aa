"""What the mask index is told: the list, keys by content, other names of protected files."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from toolcell._masked_names import MaskedNames
from toolcell._protected import Protected


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    return tmp_path.resolve() / "home"


def names(tmp_path: Path, home: Path) -> MaskedNames:
    top = tmp_path.resolve() / "ws"
    top.mkdir(exist_ok=True)
    protected = Protected.here(str(tmp_path / "state"), str(top))
    own = dataclasses.replace(protected, homes=(str(home),), own_homes=(str(home),))
    return MaskedNames(str(top), own)


def test_a_pem_is_what_it_holds(tmp_path: Path, home: Path) -> None:
    """A certificate is read by every client; a private key by its server alone."""
    judge = names(tmp_path, home)
    assert judge.asks_content("certs", "server.PEM")
    assert not judge.asks_content("certs", "server.txt")
    for text, expected in (
        ("-----BEGIN CERTIFICATE-----\n", False),
        ("-----BEGIN RSA PRIVATE KEY-----\n", True),
        ("x" * 1000 + "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", True),
    ):
        (tmp_path / "x.pem").write_text(text)
        fd = os.open(tmp_path / "x.pem", os.O_RDONLY)
        assert judge.forbids_content(fd) is expected
        os.close(fd)


def test_names_are_those_of_the_list(tmp_path: Path, home: Path) -> None:
    """What is judged before a call and what is hidden during it is one set."""
    judge = names(tmp_path, home)
    assert judge.forbids("a/b", ".env")
    assert judge.forbids("", "id_ed25519")
    assert not judge.forbids("a", ".env.example")
    assert not judge.forbids("a", "environment")


def test_another_name_of_a_protected_file_is_known_by_its_inode(tmp_path: Path, home: Path) -> None:
    """A hard link to a key of the home gives it away under any name."""
    (home / ".ssh" / "id_rsa").write_text("KEY")
    (home / ".ssh" / "known_hosts").write_text("hosts")
    (home / "notes").write_text("x")
    assert names(tmp_path, home).inodes == frozenset()
    for name in (".ssh/id_rsa", ".ssh/known_hosts", "notes"):
        os.link(home / name, tmp_path / name.replace("/", "-"))
    found = (home / ".ssh" / "id_rsa").stat()
    assert names(tmp_path, home).inodes == {(found.st_dev, found.st_ino)}
