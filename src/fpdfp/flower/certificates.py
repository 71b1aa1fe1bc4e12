"""Certificates and keys of a federation: a private authority, the server's certificate, one key pair for each site.

The folder that :func:`make_all` fills has one part for each machine, so that nobody gets more than he needs::

    authority/ca.key             stays with whoever runs the federation, best of all offline
    superlink/ca.pem             these go to the server
    superlink/server.pem
    superlink/server.key
    superlink/nodes/NAME.pub
    sites/NAME/ca.pem            these go to the site NAME
    sites/NAME/node.key
    sites/NAME/node.pub

A site that would rather not receive its private key makes the pair itself with :func:`make_node_key` and sends the
public half, which is put into ``superlink/nodes`` and stays there as it is.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fpdfp import _checks

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

#: What a site may be called: its name becomes a file's, and stands in command lines.
SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*")
#: Clocks differ: certificates are valid from a little before they were made.
SLACK = datetime.timedelta(hours=1)


class Pair(NamedTuple):
    """Where a private key is, and the certificate or public key that belongs to it."""

    key: Path
    public: Path


class Made(NamedTuple):
    """What :func:`make_all` has made, and what was there already and has been kept."""

    made: tuple[Path, ...]
    kept: tuple[Path, ...]


def site_name(name: str, value: object) -> str:
    """Return ``value`` if it can be the name of a site, or say why it cannot.

    >>> site_name("site", "north")
    'north'
    """
    if not isinstance(value, str) or SITE.fullmatch(value) is None:
        raise ValueError(
            f"{name} must be letters, digits, - and _, at most 64 of them, a letter or digit first; got {value!r}"
        )
    return value


def host_name(name: str, value: object) -> str:
    """Return ``value`` if it is a host name or an IP address, or say that it is none.

    >>> host_name("host", "superlink.example"), host_name("host", "::1")
    ('superlink.example', '::1')
    """
    if isinstance(value, str):
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            if HOST.fullmatch(value) is not None and len(value) <= 253:
                return value
    raise ValueError(f"{name} must be a host name or an IP address, got {value!r}")


def make_authority(folder: Path | str, *, name: str = "fpdfp federation", days: int = 3650) -> Pair:
    """Make a private certificate authority: ``ca.key`` and ``ca.pem`` in a folder, where there are none.

    Only certificates that this authority has signed are believed by the sites, none of a public authority.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(make_authority(folder).public.name)
    ca.pem
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    pair = Pair(Path(folder) / "ca.key", Path(folder) / "ca.pem")
    _refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, _hash())
    )
    _write_private(pair.key, _pem(key))
    _write_public(pair.public, _certificate_pem(certificate))
    return pair


def make_server_certificate(
    folder: Path | str, authority: Pair, hosts: Sequence[str], *, days: int = 397, overwrite: bool = False
) -> Pair:
    """Make the server's certificate for host names and IP addresses: ``server.key`` and ``server.pem`` in a folder.

    A site refuses the server where the name it connects to is not among ``hosts``. With ``overwrite`` the certificate
    is renewed, with a new key; the sites notice nothing of that, since it is the authority that they know.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = make_server_certificate(folder, make_authority(folder), ["superlink.example", "127.0.0.1"])
    ...     print(certificate_hosts(pair.public))
    ('superlink.example', '127.0.0.1')
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = _names(hosts)
    issuer, issuer_key = _read_authority(authority)
    pair = Pair(Path(folder) / "server.key", Path(folder) / "server.pem")
    if not overwrite:
        _refuse_existing(pair)
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
    _write_private(pair.key, _pem(key), overwrite)
    _write_public(pair.public, _certificate_pem(certificate))
    return pair


def make_node_key(folder: Path | str, *, name: str = "node", overwrite: bool = False) -> Pair:
    """Make the key pair by which a site is known: ``node.key`` and ``node.pub`` in a folder, or under another name.

    The pair is on the curve P-384 and in OpenSSH's format, which is what Flower's SuperNode reads; ``ssh-keygen -t
    ecdsa -b 384`` makes the same.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(make_node_key(folder).public.read_text()[:19])
    ecdsa-sha2-nistp384
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    site_name("name", name)
    pair = Pair(Path(folder) / f"{name}.key", Path(folder) / f"{name}.pub")
    if not overwrite:
        _refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_private(pair.key, private, overwrite)
    _write_public(pair.public, public + b"\n")
    return pair


def make_all(folder: Path | str, hosts: Sequence[str], sites: Sequence[str], *, renew: bool = False) -> Made:
    """Make everything that a federation needs, a part of the folder for each machine; keep what is there already.

    So a site is added by calling it again with one more name. ``renew`` makes a new certificate for the server, and
    nothing else anew. A public key in ``superlink/nodes`` is never written over: a site whose key is there, and whose
    private key is not in this folder, has made the pair itself and is given none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = make_all(folder, ["localhost"], ["north", "east"])
    ...     again = make_all(folder, ["localhost"], ["north", "east", "south"])
    ...     print(len(first.made), len(again.made))
    10 3
    """
    folder = Path(folder)
    if isinstance(sites, str):
        raise TypeError(f"sites must be a sequence of names, got the string {sites!r}")
    for i, site in enumerate(sites):
        site_name(f"sites[{i}]", site)
    if len(set(sites)) != len(sites):
        raise ValueError(f"sites must be different names, got {', '.join(sites)}")
    _names(hosts)
    made: list[Path] = []
    kept: list[Path] = []

    authority = Pair(folder / "authority" / "ca.key", folder / "authority" / "ca.pem")
    if authority.key.exists() and authority.public.exists():
        kept += authority
    else:
        made += make_authority(authority.key.parent)

    superlink = folder / "superlink"
    server = Pair(superlink / "server.key", superlink / "server.pem")
    if server.public.exists() and server.key.exists() and not renew:
        if set(certificate_hosts(server.public)) != {host_name("hosts", host) for host in hosts}:
            raise FileExistsError(
                f"{server.public} is for {', '.join(certificate_hosts(server.public))}; with other hosts it has to be "
                "renewed (renew=True, --renew)"
            )
        kept += server
    else:
        made += make_server_certificate(superlink, authority, hosts, overwrite=renew)

    for site in sites:
        own = Pair(folder / "sites" / site / "node.key", folder / "sites" / site / "node.pub")
        known = superlink / "nodes" / f"{site}.pub"
        if own.key.exists() and own.public.exists():
            kept += own
        elif not known.exists():
            made += make_node_key(own.key.parent)
        if known.exists():
            kept.append(known)
        else:
            _write_public(known, own.public.read_bytes())
            made.append(known)
        _write_public(own.key.parent / "ca.pem", authority.public.read_bytes())
    _write_public(superlink / "ca.pem", authority.public.read_bytes())
    return Made(tuple(made), tuple(kept))


def certificate_hosts(path: Path | str) -> tuple[str, ...]:
    """The host names and IP addresses that a certificate is for, as they stand in it."""
    from cryptography import x509

    extensions = _read_certificate(Path(path)).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(str(name.value) for name in names)


def certificate_end(path: Path | str) -> datetime.datetime:
    """The moment after which a certificate is no longer valid."""
    return _read_certificate(Path(path)).not_valid_after_utc


def _read_certificate(path: Path) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(path.read_bytes())


def _read_authority(authority: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(Path(authority.key).read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"authority must have a key on an elliptic curve, but {authority.key} is another kind")
    return _read_certificate(Path(authority.public)), key


def _names(hosts: Sequence[str]) -> list[x509.GeneralName]:
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


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


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
    """What the key may be used for: to sign certificates, or to prove who one is."""
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


def _refuse_existing(pair: Pair) -> None:
    for path in pair:
        if path.exists():
            raise FileExistsError(f"{path} exists already and is not overwritten")


def _write_private(path: Path, content: bytes, overwrite: bool = False) -> None:
    """Write a file that only its owner may read, at no moment readable by others, and whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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


def _write_public(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(content)
    path.chmod(0o644)
