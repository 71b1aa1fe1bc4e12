"""Who a process is: a folder with a name, a private key, its certificate, and where the hub is.

::

    identity.toml     the study, the role, the name, and the hub's address
    ca.pem            the study's authority, the only one that is believed
    own.pem           the private key and its certificate, in one file so that both change at once
    pending.pem       a private key for which a certificate was asked and has not come yet
"""

from __future__ import annotations

import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from fpdfp.engines import files
from fpdfp.errors import ArgumentError
from fpdfp.federation import keys
from fpdfp.federation.registry import Role
from fpdfp.federation.text import read_name
from fpdfp.runs import toml

FORMAT = 1
#: A private key for which a certificate was asked and has not come yet.
PENDING = "pending.pem"
#: The longest file in an invitation.
LONGEST = 1 << 16


class About(NamedTuple):
    """What an identity or an invitation says of itself."""

    study: str
    role: Role
    name: str
    address: str


class Credentials(NamedTuple):
    """What is needed to connect: whom to believe, and who one is; all PEM."""

    authority: bytes
    key: bytes
    certificate: bytes


class Identity:
    """A site's or an analyst's folder.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / "identity.toml"
        if not path.is_file():
            raise ArgumentError("folder", f"must be that of a site or an analyst, but {path} is not there")
        self.about = _read_about(path.read_text(), str(path))

    @classmethod
    def write(cls, folder: Path, about: About, authority: bytes, own: bytes) -> Identity:
        """Write the folder of an identity; ``own`` is the private key and its certificate."""
        keys.make_private_folder(folder)
        files.write_whole(folder / "ca.pem", authority, private=True)
        files.write_whole(folder / "own.pem", own, flush=True, private=True)
        # Last: a folder is one of an identity when all of it is there.
        files.write_whole(folder / "identity.toml", _dump_about(about), flush=True, private=True)
        return cls(folder)

    @property
    def credentials(self) -> Credentials:
        """What to connect with, as it is now."""
        own = (self.folder / "own.pem").read_bytes()
        key, _, certificate = own.partition(b"-----BEGIN CERTIFICATE-----")
        return Credentials((self.folder / "ca.pem").read_bytes(), key, b"-----BEGIN CERTIFICATE-----" + certificate)

    @property
    def validity(self) -> keys.Validity:
        """From when to when the certificate is valid."""
        return keys.validity(self.credentials.certificate)

    def replace(self, key: bytes, certificate: bytes) -> None:
        """Take a new key and its certificate."""
        files.write_whole(self.folder / "own.pem", key, certificate, flush=True, private=True)
        (self.folder / PENDING).unlink(missing_ok=True)

    def warn(self) -> str | None:
        """Say that the certificate ends soon, or has ended; None if there is time."""
        return warn(f"the certificate of {self.about.name}", self.validity)


def warn(whose: str, validity: keys.Validity) -> str | None:
    """Say that a certificate ends soon, or has ended; None if there is time."""
    if not validity.is_due():
        return None
    days = validity.left().days
    when = f"ends in {days} days" if days >= 0 else "has ended"
    return f"{whose} {when}, on {validity.ends:%Y-%m-%d}"


def pending_key(folder: Path) -> bytes:
    """Return a private key to ask a certificate for: that of the last attempt, if its answer was lost."""
    path = folder / PENDING
    if not path.exists():
        keys.make_private_folder(folder)
        files.write_whole(path, keys.make_key(), flush=True, private=True)
    return path.read_bytes()


class Invitation(NamedTuple):
    """What is in an invitation: about whom it is, and credentials that serve once, to enrol."""

    about: About
    credentials: Credentials


def write_invitation(path: Path, about: About, credentials: Credentials) -> Path:
    """Write an invitation, readable by its owner alone."""
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("identity.toml", _dump_about(about))
        file.writestr("ca.pem", credentials.authority)
        file.writestr("once.pem", credentials.key + credentials.certificate)
    keys.make_private_folder(path.parent)
    files.write_whole(path, buffer.getvalue(), private=True)
    return path


def read_invitation(path: Path | str) -> Invitation:
    """Return what is in an invitation, or say that it is none."""
    try:
        with zipfile.ZipFile(path) as file:
            found = {}
            for name in ("identity.toml", "ca.pem", "once.pem"):
                if file.getinfo(name).file_size > LONGEST:
                    raise ValueError(f"{name} is too long")
                found[name] = file.read(name)
        about = _read_about(found["identity.toml"].decode(), str(path))
        key, mark, certificate = found["once.pem"].partition(b"-----BEGIN CERTIFICATE-----")
        if not mark:
            raise ValueError("it has no certificate")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, ValueError) as error:
        raise ArgumentError("invitation", f"must be a file that fpdfp federation new has written: {error}") from None
    return Invitation(about, Credentials(found["ca.pem"], key, mark + certificate))


def _dump_about(about: About) -> bytes:
    return toml.dumps({"format": FORMAT, **about._asdict()}).encode()


def _read_about(text: str, where: str) -> About:
    """Return what a text says; refuse another."""
    tree = tomllib.loads(text)
    if tree.get("format") != FORMAT:
        raise ArgumentError("folder", f"{where} has format {tree.get('format')}; this release reads format {FORMAT}")
    if tree.get("role") not in ("site", "analyst") or not all(isinstance(tree.get(one), str) for one in About._fields):
        raise ArgumentError("folder", f"{where} must say {', '.join(About._fields)}")
    for one in ("study", "name"):
        read_name(one, tree[one])
    keys.split_address("address", tree["address"])
    return About(**{name: tree[name] for name in About._fields})
