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

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fpdfp.federation.keys import (
    Pair,
    certificate_end,
    certificate_hosts,
    host_name,
    make_authority,
    make_server_certificate,
    names_of_hosts,
    refuse_existing,
    site_name,
    write_private,
    write_public,
)

__all__ = [
    "Made",
    "Pair",
    "certificate_end",
    "certificate_hosts",
    "host_name",
    "make_all",
    "make_authority",
    "make_node_key",
    "make_server_certificate",
    "site_name",
]


class Made(NamedTuple):
    """What :func:`make_all` has made, and what was there already and has been kept."""

    made: tuple[Path, ...]
    kept: tuple[Path, ...]


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
        refuse_existing(pair)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(pair.key, private, overwrite)
    write_public(pair.public, public + b"\n")
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
    names_of_hosts(hosts)
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
            write_public(known, own.public.read_bytes())
            made.append(known)
        write_public(own.key.parent / "ca.pem", authority.public.read_bytes())
    write_public(superlink / "ca.pem", authority.public.read_bytes())
    return Made(tuple(made), tuple(kept))
