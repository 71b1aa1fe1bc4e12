"""Keys and X.509 certificates; who a process is that has them; who may connect; and the coordinator's folder.

A private key never travels. Who wants a certificate makes a key where it will be used (:func:`make_key`), writes a
signing request (:func:`make_request`), and the authority signs that (:func:`sign_request`). Certificates are known by
their fingerprints, which a study lists (:class:`Registry`). The folder of an :class:`Identity`::

    identity.toml     the study, the role, the name, and the hub's address
    ca.pem            the study's authority, the only one that is believed
    own.pem           the private key and its certificate, in one file so that both change at once
    pending.pem       a private key for which a certificate was asked and has not come yet

The folder of a :class:`Study` at the coordinator::

    study.toml                   its name, and where its hub is
    registry.json                who may connect
    authority/                   the key that signs certificates: anyone who has it can be anyone
    hub/                         the hub's key and certificate
    analyst/                     the coordinator's own key as an analyst
    invitations/                 one file for each site, to be handed over and deleted
    runs/                        a folder for each run

Everything is readable by the folder's owner alone, whatever the umask.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import ipaddress
import json
import os
import re
import shutil
import ssl
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fpdfp import _checks
from fpdfp import _files as files
from fpdfp.cohorts.serialization import validate
from fpdfp.errors import ArgumentError, ArgumentTypeError, MessageError
from fpdfp.federation.text import printable, read_name
from fpdfp.runs import toml

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

FORMAT = 1
#: A private key for which a certificate was asked and has not come yet.
PENDING = "pending.pem"
#: The longest file in an invitation.
LONGEST_FILE = 1 << 16
Role = Literal["site", "analyst"]
HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*")
#: Clocks differ: certificates are valid from two days before they were made.
SLACK = datetime.timedelta(days=2)
#: How long certificates are valid, in days: those that are renewed, and those of invitations.
DAYS, INVITATION_DAYS = 397, 14
#: A certificate is renewed when less than this share of its life is left.
RENEW = 1 / 3


class Pair(NamedTuple):
    """The file of a private key, with its certificate or public key."""

    key: Path
    public: Path


def host_name(name: str, value: object) -> str:
    """Return ``value`` if it is a host name or an IP address, or refuse it.

    >>> host_name("host", "hub.example"), host_name("host", "::1")
    ('hub.example', '::1')
    """
    if isinstance(value, str):
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            if HOST.fullmatch(value) is not None and len(value) <= 253:
                return value
    raise ValueError(f"{name} must be a host name or an IP address, got {printable(repr(value), 100)}")


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address.

    >>> join_address("hub.example", 8443), join_address("::1", 8443)
    ('hub.example:8443', '[::1]:8443')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(argument: str, value: object) -> tuple[str, int]:
    """Return the host and the port of an address, or refuse it.

    >>> split_address("address", "[::1]:8443")
    ('::1', 8443)
    """
    host, _, port = str(value).rpartition(":")
    if re.fullmatch(r"[0-9]{1,5}", port) is None or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{argument} must be HOST:PORT, got {printable(repr(value), 100)}")
    return host_name(argument, host.removeprefix("[").removesuffix("]")), int(port)


def make_authority(folder: Path | str, *, name: str = "fpdfp federation", days: int = 3650) -> Pair:
    """Make a private certificate authority: ``ca.key`` and ``ca.pem`` in a folder, if missing.

    Only certificates that this authority has signed are believed by the sites, none of a public authority.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(make_authority(folder).public.name)
    ca.pem
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    pair = Pair(Path(folder) / "ca.key", Path(folder) / "ca.pem")
    refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject(name)
    certificate = _builder(subject, subject, key, key.public_key(), days, authority=True).sign(key, _hash())
    write_private(pair.key, _pem(key))
    write_public(pair.public, _certificate_pem(certificate))
    return pair


def make_server_certificate(
    folder: Path | str, authority: Pair, hosts: Sequence[str], *, days: int = DAYS, overwrite: bool = False
) -> Pair:
    """Make the server's certificate for host names and IP addresses: ``server.key`` and ``server.pem`` in a folder.

    A site refuses the server where the name it connects to is not among ``hosts``. With ``overwrite`` the certificate
    is renewed, with a new key; the sites notice nothing of that, since it is the authority that they know.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(make_server_certificate(folder, make_authority(folder), ["hub.example", "127.0.0.1"]).public.name)
    server.pem
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = names_of_hosts(hosts)
    issuer, issuer_key = _read_authority(authority)
    pair = Pair(Path(folder) / "server.key", Path(folder) / "server.pem")
    if not overwrite:
        refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    certificate = (
        _builder(_subject(str(hosts[0])[:64]), issuer.subject, issuer_key, key.public_key(), days)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer_key, _hash())
    )
    write_private(pair.key, _pem(key), overwrite)
    write_public(pair.public, _certificate_pem(certificate))
    return pair


class Validity(NamedTuple):
    """From when to when a certificate is valid."""

    starts: datetime.datetime
    ends: datetime.datetime

    def left(self, now: datetime.datetime | None = None) -> datetime.timedelta:
        """The remaining validity; negative once it has ended."""
        return self.ends - (now or datetime.datetime.now(datetime.UTC))

    def is_due(self, now: datetime.datetime | None = None) -> bool:
        """Whether it is time to renew the certificate."""
        return self.left(now) < RENEW * (self.ends - self.starts)

    def problem(self, now: datetime.datetime | None = None) -> str | None:
        """Say why it is not valid by this machine's clock; None if it is."""
        now = now or datetime.datetime.now(datetime.UTC)
        if self.starts <= now <= self.ends:
            return None
        which = f"ended on {self.ends:%Y-%m-%d}" if now > self.ends else f"begins on {self.starts:%Y-%m-%d}"
        return f"its certificate {which}, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC"


def validity(pem: bytes) -> Validity:
    """Return from when to when the first certificate of a PEM text is valid."""
    certificate = _load_certificate(pem)
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def validity_until(ends: str) -> Validity:
    """Return from when to when a certificate of a member is valid that ends then, as ISO 8601."""
    end = datetime.datetime.fromisoformat(ends)
    return Validity(end - datetime.timedelta(days=DAYS) - SLACK, end)


def fingerprint(pem: bytes | str) -> str:
    """Return the SHA-256 of a certificate, by which it is known."""
    text = pem if isinstance(pem, str) else pem.decode("ascii")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = text[text.index(begin) : text.index(end) + len(end)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


def make_key() -> bytes:
    """Return a new private key, as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return _pem(ec.generate_private_key(ec.SECP384R1()))


def make_request(key: bytes, name: str) -> bytes:
    """Return a signing request of a private key, as PEM: it holds the public half."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key, password=None)
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    request = builder.sign(private, _hash())  # type: ignore[arg-type]
    return request.public_bytes(serialization.Encoding.PEM)


def request_digest(request: bytes) -> str:
    """Return the digest of the public key in a signing request, the same however often it is written."""
    from cryptography.hazmat.primitives import serialization

    public = _load_request(request).public_key()
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def sign_request(authority: Pair, request: bytes, name: str, role: str, *, days: int = DAYS) -> bytes:
    """Return a certificate for the public key in a signing request, as PEM; refuse invalid requests.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     authority = make_authority(folder)
    ...     certificate = sign_request(authority, make_request(make_key(), "north"), "north", "site")
    ...     print(validity(certificate).left().days)
    396
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    asked = _load_request(request)
    public = asked.public_key()
    if not asked.is_signature_valid or not isinstance(public, ec.EllipticCurvePublicKey) or public.key_size < 256:
        raise MessageError("a signing request must be signed by its own key, on an elliptic curve of 256 bits or more")
    if asked.subject != _subject(name):
        raise MessageError(f"a signing request must be for {name}, as whom its sender is known")
    issuer, issuer_key = _read_authority(authority)
    certificate = (
        _builder(_subject(name, role), issuer.subject, issuer_key, public, days)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(issuer_key, _hash())
    )
    return _certificate_pem(certificate)


def read_certificate(value: object, key: bytes) -> bytes:
    """Return the certificate that was sent for a private key, as PEM; refuse anything else."""
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = _load_certificate(str(value).encode())
        private = serialization.load_pem_private_key(key, password=None)
    except ValueError:
        raise MessageError("what was sent is not a certificate") from None
    if certificate.public_key() != private.public_key():
        raise MessageError("the certificate that was sent is for another key")
    return _certificate_pem(certificate)


def _load_request(request: bytes) -> x509.CertificateSigningRequest:
    from cryptography import x509

    try:
        return x509.load_pem_x509_csr(request)
    except ValueError as error:
        raise MessageError(f"a signing request cannot be read: {error}") from None


def _load_certificate(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def _read_authority(authority: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(Path(authority.key).read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"authority must have a key on an elliptic curve, but {authority.key} is another kind")
    return _load_certificate(Path(authority.public).read_bytes()), key


def names_of_hosts(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Return host names and addresses as they stand in a certificate, or name the one that is invalid."""
    from cryptography import x509

    if isinstance(hosts, str) or not hosts:
        raise ValueError(f"hosts must be a sequence of at least one host name or IP address, got {hosts!r}")
    names: list[x509.GeneralName] = []
    for i, value in enumerate(hosts):
        host = host_name(f"hosts[{i}]", value)
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _subject(name: str, role: str = "") -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    unit = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role)] if role else []
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *unit])


def _builder(
    subject: x509.Name, issuer: x509.Name, issuer_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey,
    days: int, *, authority: bool = False,
) -> x509.CertificateBuilder:  # fmt: skip
    """Return a certificate that is not signed yet, whose key may sign others, or prove an identity."""
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=not authority, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=authority, crl_sign=authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + datetime.timedelta(days=_checks.integer("days", days, at_least=1, at_most=7300)))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _hash() -> hashes.SHA384:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA384()


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def refuse_existing(pair: Pair) -> None:
    """Raise an error where a key or its certificate is there already."""
    for path in pair:
        if path.exists():
            raise FileExistsError(f"{path} exists already and is not overwritten")


def make_private_folder(folder: Path) -> Path:
    """Make a folder, if missing, that only its owner may look into, whatever the umask."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    return folder


def write_private(path: Path, content: bytes, overwrite: bool = False) -> None:
    """Write a file that only its owner may read, at no moment readable by others, and whole or not at all."""
    make_private_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            Path(name).replace(path)
        else:
            os.link(name, path)  # unlike a rename, this fails where the file exists
    finally:
        Path(name).unlink(missing_ok=True)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that others may read."""
    make_private_folder(path.parent)
    path.write_bytes(content)
    path.chmod(0o644)


class Asker(NamedTuple):
    """The requester, verified by the hub with mutual TLS.

    Attributes
    ----------
    name, role
        Who it is, mostly an analyst.
    fingerprint
        The SHA-256 of the certificate.
    study
        The name of the study.
    """

    name: str
    role: str
    fingerprint: str
    study: str


class About(NamedTuple):
    """The description of an identity or an invitation."""

    study: str
    role: Role
    name: str
    address: str


class Credentials(NamedTuple):
    """The credentials of a connection: trusted authority and own identity, all PEM."""

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
            raise ArgumentError("folder", f"must be the folder of a site or an analyst, but {path} is missing")
        self.about = _read_about(path.read_text(), str(path))

    @classmethod
    def write(cls, folder: Path, about: About, authority: bytes, own: bytes) -> Identity:
        """Write the folder of an identity; ``own`` is the private key and its certificate."""
        make_private_folder(folder)
        files.write_whole(folder / "ca.pem", authority, private=True)
        files.write_whole(folder / "own.pem", own, flush=True, private=True)
        # Last: a folder is one of an identity when all of it is there.
        files.write_whole(folder / "identity.toml", _dump_about(about), flush=True, private=True)
        return cls(folder)

    @property
    def credentials(self) -> Credentials:
        """The current credentials."""
        own = (self.folder / "own.pem").read_bytes()
        key, _, certificate = own.partition(b"-----BEGIN CERTIFICATE-----")
        return Credentials((self.folder / "ca.pem").read_bytes(), key, b"-----BEGIN CERTIFICATE-----" + certificate)

    @property
    def validity(self) -> Validity:
        """From when to when the certificate is valid."""
        return validity(self.credentials.certificate)

    def replace(self, key: bytes, certificate: bytes) -> None:
        """Take a new key and its certificate."""
        files.write_whole(self.folder / "own.pem", key, certificate, flush=True, private=True)
        (self.folder / PENDING).unlink(missing_ok=True)

    def warn(self) -> str | None:
        """Say that the certificate ends soon, or has ended; None if there is time."""
        return warn(f"the certificate of {self.about.name}", self.validity)


def warn(whose: str, validity: Validity) -> str | None:
    """Say that a certificate ends soon, or has ended; None if there is time."""
    if not validity.is_due():
        return None
    days = validity.left().days
    when = f"ends in {days} days" if days >= 0 else "has ended"
    return f"{whose} {when}, on {validity.ends:%Y-%m-%d}"


def pending_key(folder: Path) -> bytes:
    """Return a private key to ask a certificate for: the key of the last attempt, if its answer was lost."""
    path = folder / PENDING
    if not path.exists():
        make_private_folder(folder)
        files.write_whole(path, make_key(), flush=True, private=True)
    return path.read_bytes()


class Invitation(NamedTuple):
    """The content of an invitation: its recipient, and credentials that serve once, to enrol."""

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
    make_private_folder(path.parent)
    files.write_whole(path, buffer.getvalue(), private=True)
    return path


def read_invitation(path: Path | str) -> Invitation:
    """Return what is in an invitation, or refuse it."""
    try:
        with zipfile.ZipFile(path) as file:
            found = {}
            for name in ("identity.toml", "ca.pem", "once.pem"):
                if file.getinfo(name).file_size > LONGEST_FILE:
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
    split_address("address", tree["address"])
    return About(**{name: tree[name] for name in About._fields})


#: How many certificates a member may have at once, and how often an invitation may be signed whose answer was lost.
CERTIFICATES, SIGNED = 3, 10
STATES = ("invited", "joined", "removed")


@dataclasses.dataclass(frozen=True)
class Member:
    """A site or an analyst.

    Attributes
    ----------
    name, role
        Who it is.
    certificates
        The fingerprints of the certificates with which it may connect, and the days on which these end.
    invitation
        The fingerprint of the certificate in its invitation; empty for one that has none.
    used, used_by, signed
        When the invitation was used, the digest of the public key that was signed then, and how often; empty, and 0,
        before that.
    removed
        When it was removed; empty for one that was not.
    accepted
        How often the coordinator has accepted that the site's log begins anew.
    """

    name: str
    role: Role
    certificates: dict[str, str] = dataclasses.field(default_factory=dict)
    invitation: str = ""
    used: str = ""
    used_by: str = ""
    signed: int = 0
    removed: str = ""
    accepted: int = 0

    @property
    def era(self) -> str:
        """A key that distinguishes a site's log from one that began after a new invitation or was accepted."""
        return f"{self.used_by[:16]}-{self.accepted}"

    @property
    def state(self) -> str:
        """Say how far it is: invited, joined or removed."""
        return "removed" if self.removed else "joined" if self.certificates else "invited"


class Registry:
    """The members of a study, in the order in which they were named.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._members: dict[str, Member] = {}
        self._allowed: dict[str, Member] = {}
        self._invited: dict[str, Member] = {}

    def reread(self) -> bool:
        """Read the file if it has changed; return whether it has."""
        found = self.path.stat()
        seen = found.st_mtime_ns, found.st_ino, found.st_size
        if seen == self._seen:
            return False
        tree = json.loads(self.path.read_text())
        if tree.get("format") != FORMAT:
            raise MessageError(f"{self.path} has format {tree.get('format')}; this release reads format {FORMAT}")
        members: list[Member] = [validate(one, Member, str(self.path)) for one in tree["members"]]
        self._members = {member.name: member for member in members}
        present = [member for member in self._members.values() if not member.removed]
        self._allowed = {one: member for member in present for one in member.certificates}
        self._invited = {member.invitation: member for member in self._members.values() if member.invitation}
        self._seen = seen
        return True

    @property
    def members(self) -> dict[str, Member]:
        """All clients by name, as the file says now."""
        self.reread()
        return dict(self._members)

    def named(self, name: str) -> Member:
        """Return a member, or say who there is."""
        members = self.members
        if name not in members:
            raise ArgumentError("name", f"must be one of {', '.join(members)}, got {name!r}")
        return members[name]

    def sites(self) -> list[str]:
        """Return the names of the sites that were not removed."""
        return [one.name for one in self.members.values() if one.role == "site" and not one.removed]

    def find(self, fingerprint: str) -> Member | None:
        """Return the member who may connect with a certificate; None for no one."""
        self.reread()
        return self._allowed.get(fingerprint)

    def find_invitation(self, fingerprint: str) -> Member | None:
        """Return the member whose invitation holds a certificate, used or not."""
        self.reread()
        return self._invited.get(fingerprint)

    def was_of(self, fingerprint: str) -> Member | None:
        """Return the member who was removed and had a certificate, to notify the person."""
        return next((one for one in self.members.values() if one.removed and fingerprint in one.certificates), None)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Member]]:
        """Within this, no one else changes the registry; what is changed is written at the end."""
        make_private_folder(self.path.parent)
        with self.path.with_suffix(".lock").open("w") as lock:
            self.path.with_suffix(".lock").chmod(0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists():
                self.reread()
            members = dict(self._members)
            yield members
            tree: dict[str, Any] = {"format": FORMAT, "members": [dataclasses.asdict(one) for one in members.values()]}
            files.write_whole(self.path, json.dumps(tree, indent=1).encode(), flush=True, private=True)
            self._seen = None
            self.reread()

    def invite(self, name: str, role: Role, invitation: str) -> None:
        """Name a member, or give him a new invitation: his certificates, and the old invitation, are of no use then."""
        read_name("name", name)
        with self._changing() as members:
            if name in members and members[name].role != role:
                raise ArgumentError("name", f"must be new, but {name} is the name of a {members[name].role}")
            members[name] = Member(name, role, invitation=invitation)

    def enrol(self, invitation: str, digest: str, certificate: bytes) -> None:
        """Burn an invitation: its certificate may not be used again, but by the key that it was used for."""
        with self._changing() as members:
            member = next((one for one in members.values() if one.invitation == invitation), None)
            if member is None or member.removed:
                raise MessageError("this invitation is no longer valid: ask the coordinator for a new one")
            refuse_used(member, digest)
            if member.signed >= SIGNED:
                raise MessageError(f"the invitation of {member.name} was signed {SIGNED} times: request a new one")
            when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            members[member.name] = dataclasses.replace(
                member,
                certificates=_certificate(certificate),
                used=member.used or when,
                used_by=digest,
                signed=member.signed + 1,
            )

    def add_certificate(self, name: str, certificate: bytes) -> None:
        """Allow a member another certificate, besides those that he has."""
        with self._changing() as members:
            member = members[name]
            if len(member.certificates) >= CERTIFICATES:
                raise MessageError(f"{name} has {CERTIFICATES} certificates, and must use the newest before another")
            members[name] = dataclasses.replace(
                member, certificates={**member.certificates, **_certificate(certificate)}
            )

    def keep_only(self, name: str, fingerprint: str) -> None:
        """Allow a member only the certificate that he uses now."""
        member = self.members[name]
        if len(member.certificates) > 1 and fingerprint in member.certificates:
            with self._changing() as members:
                kept = {fingerprint: members[name].certificates[fingerprint]}
                members[name] = dataclasses.replace(members[name], certificates=kept)

    def forget(self, name: str) -> None:
        """Accept that a site's log begins anew: what was remembered of it does not count any longer."""
        self.named(name)
        with self._changing() as members:
            members[name] = dataclasses.replace(members[name], accepted=members[name].accepted + 1)

    def remove(self, name: str) -> None:
        """Remove a member: his certificates and his invitation are refused from now on."""
        self.named(name)
        with self._changing() as members:
            when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            members[name] = dataclasses.replace(members[name], removed=when)


def refuse_used(member: Member, digest: str) -> None:
    """Refuse an invitation that another key was signed for; the same key may ask again, if the answer was lost."""
    if member.used and member.used_by != digest:
        raise MessageError(
            f"the invitation of {member.name} was used on {member.used[:10]}, and serves once; if that was not you, "
            f"tell the coordinator, who makes a new one: fpdfp federation invite STUDY {member.name}"
        )


def refuse_early(member: Member, fingerprint: str) -> None:
    """Refuse to renew a certificate that is valid for long, or when others were signed that were not used yet."""
    ends = member.certificates.get(fingerprint)
    if len(member.certificates) >= CERTIFICATES or ends is None or not validity_until(ends).is_due():
        raise MessageError(f"it is not time to renew the certificate of {member.name}")


def _certificate(pem: bytes) -> dict[str, str]:
    return {fingerprint(pem): validity(pem).ends.isoformat(timespec="seconds")}


PORT = 8443
#: The coordinator's name as an analyst.
COORDINATOR = "coordinator"


class Study:
    """A study, as its coordinator has it.

    Parameters
    ----------
    folder
        The folder, which :meth:`create` has made.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        path = self.folder / "study.toml"
        if not path.is_file():
            raise ArgumentError(
                "study", f"must be a folder that fpdfp federation new has made, but {path} is not there"
            )
        tree = tomllib.loads(path.read_text())
        if tree.get("format") != FORMAT:
            raise ArgumentError("study", f"{path} has format {tree.get('format')}; this release reads format {FORMAT}")
        self.name: str = read_name("the name of the study", tree["name"])
        self.hosts: list[str] = tree["hosts"]
        self.port: int = _checks.integer("port", tree["port"], at_least=1, at_most=65535)
        self.registry = Registry(self.folder / "registry.json")

    @classmethod
    def create(
        cls, folder: Path | str, sites: Sequence[str], *, hosts: Sequence[str] = ("localhost",), port: int = PORT
    ) -> Study:
        """Make a study: its authority, the hub's certificate, a key for the coordinator, an invitation for each site.

        Parameters
        ----------
        folder
            A folder that is not there yet; its name becomes the study's.
        sites
            The names of the sites, in the order in which their sums are added.
        hosts, port
            The names or addresses by which sites reach the hub, the first of them that in the invitations, and its
            port.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     study = Study.create(f"{folder}/trial", ["north", "east"])
        ...     print(study.registry.sites(), [path.name for path in study.invitations()])
        ['north', 'east'] ['invitation-east.zip', 'invitation-north.zip']
        """
        folder = Path(folder)
        if isinstance(sites, str) or not sites:
            raise ArgumentTypeError("sites", f"must be names, at least one, got {sites!r}")
        for i, site in enumerate(sites):
            read_name(f"sites[{i}]", site)
        if len(set(sites)) < len(sites) or COORDINATOR in sites:
            raise ArgumentError("sites", f"must be different names, and not {COORDINATOR!r}, got {', '.join(sites)}")
        names_of_hosts(hosts)
        port = _checks.integer("port", port, at_least=1, at_most=65535)
        read_name("the folder's name", folder.resolve().name)
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} exists already, and is not overwritten")
        make_private_folder(folder).chmod(0o700)
        try:
            authority = make_authority(folder / "authority", name=f"fpdfp {folder.resolve().name}")
            # The coordinator speaks to its own hub by a name that always reaches it.
            make_server_certificate(folder / "hub", authority, _with_own(hosts))
            settings = {"format": FORMAT, "name": folder.resolve().name, "hosts": list(hosts), "port": port}
            files.write_whole(folder / "study.toml", toml.dumps(settings).encode(), private=True)
            study = cls(folder)
            study._enrol_coordinator()
            for site in sites:
                study.invite(site, "site")
            make_private_folder(folder / "runs")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # all of it or nothing: half a study is of no use
            raise
        return study

    @property
    def authority(self) -> Pair:
        """The key that signs, and its certificate."""
        return Pair(self.folder / "authority" / "ca.key", self.folder / "authority" / "ca.pem")

    @property
    def address(self) -> str:
        """The address of the hub for sites and analysts."""
        return join_address(self.hosts[0], self.port)

    @property
    def analyst(self) -> Identity:
        """The coordinator as an analyst."""
        return Identity(self.folder / "analyst")

    def invitations(self) -> list[Path]:
        """Return the invitations that lie in the folder."""
        return sorted((self.folder / "invitations").glob("invitation-*.zip"))

    def invite(self, name: str, role: Role) -> Path:
        """Write an invitation; the certificates that a member of this name has are dropped."""
        read_name("name", name)
        key, certificate = self._issue(name, "invitation", INVITATION_DAYS)
        self.registry.invite(name, role, fingerprint(certificate))
        about = About(self.name, role, name, self.address)
        path = self.folder / "invitations" / f"invitation-{name}.zip"
        return write_invitation(path, about, Credentials(self.authority.public.read_bytes(), key, certificate))

    def remove(self, name: str) -> None:
        """Remove a site or an analyst; the hub drops its connection at once."""
        if name == COORDINATOR:
            raise ArgumentError("name", f"must be a site or an analyst elsewhere, and {COORDINATOR} is neither")
        self.registry.remove(name)
        (self.folder / "invitations" / f"invitation-{name}.zip").unlink(missing_ok=True)

    def credentials(self) -> Credentials:
        """Return what the hub shows to those who connect."""
        hub = self.folder / "hub"
        key, certificate = (hub / "server.key").read_bytes(), (hub / "server.pem").read_bytes()
        return Credentials(self.authority.public.read_bytes(), key, certificate)

    def renew_hub(self) -> bool:
        """Make a new certificate for the hub if it is time; return whether it was."""
        if not validity(self.credentials().certificate).is_due():
            return False
        make_server_certificate(self.folder / "hub", self.authority, _with_own(self.hosts), overwrite=True)
        return True

    def warnings(self) -> list[str]:
        """Say which certificates end soon: the hub's, the authority's, and the members'."""
        own = {"the certificate of the hub": self.credentials().certificate}
        own["the certificate of the study's authority"] = self.authority.public.read_bytes()
        found = [warn(whose, validity(pem)) for whose, pem in own.items()]
        for member in self.registry.members.values():
            lives = [validity_until(end) for end in member.certificates.values()]
            if lives and not member.removed:
                found.append(warn(f"the certificate of {member.name}", max(lives, key=lambda life: life.ends)))
        return [one for one in found if one]

    def _issue(self, name: str, role: str, days: int) -> tuple[bytes, bytes]:
        """Return a new key and a certificate for it."""
        key = make_key()
        return key, sign_request(self.authority, make_request(key, name), name, role, days=days)

    def _enrol_coordinator(self) -> None:
        key, certificate = self._issue(COORDINATOR, "analyst", DAYS)
        self.registry.invite(COORDINATOR, "analyst", "")
        self.registry.add_certificate(COORDINATOR, certificate)
        about = About(self.name, "analyst", COORDINATOR, join_address("localhost", self.port))
        Identity.write(self.folder / "analyst", about, self.authority.public.read_bytes(), key + certificate)


def _with_own(hosts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
