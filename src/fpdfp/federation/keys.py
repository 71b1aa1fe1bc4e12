"""Keys and X.509 certificates, and who a process is that has them: a folder for a site or an analyst.

A private key never travels. Who wants a certificate makes a key where it will be used (:func:`make_key`), writes a
signing request (:func:`make_request`), and the authority signs that (:func:`sign_request`). Certificates are known by
their fingerprints, which a study lists (:mod:`fpdfp.federation.study`). The folder of an :class:`Identity`::

    identity.toml     the study, the role, the name, and the hub's address
    ca.pem            the study's authority, the only one that is believed
    own.pem           the private key and its certificate, in one file so that both change at once
    pending.pem       a private key for which a certificate was asked and has not come yet
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import re
import ssl
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from fpdfp import _checks
from fpdfp import _files as files
from fpdfp.errors import ArgumentError, MessageError
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
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    pair = Pair(Path(folder) / "ca.key", Path(folder) / "ca.pem")
    refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, _hash())
    )
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
        _builder(_subject(str(hosts[0])[:64]), issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
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
        _builder(_subject(name, role), issuer.subject, public, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
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


def _read_certificate(path: Path) -> x509.Certificate:
    return _load_certificate(path.read_bytes())


def _load_certificate(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def _read_authority(authority: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(Path(authority.key).read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"authority must have a key on an elliptic curve, but {authority.key} is another kind")
    return _read_certificate(Path(authority.public)), key


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
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + datetime.timedelta(days=_checks.integer("days", days, at_least=1, at_most=7300)))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    """The use of the key: to sign certificates, or to prove an identity."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
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
