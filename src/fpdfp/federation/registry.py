"""The registry of a study: its sites and analysts, and the fingerprints of their certificates.

The registry is one file, written whole and readable by its owner alone. The hub reads it again when it has changed, so
a command that removes a site takes effect while the hub runs; both change it under a lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fpdfp import _files as files
from fpdfp.cohorts.validation import validate
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import keys
from fpdfp.federation.keys import Role
from fpdfp.federation.text import read_name

FORMAT = 1
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
        keys.make_private_folder(self.path.parent)
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
    if len(member.certificates) >= CERTIFICATES or ends is None or not keys.validity_until(ends).is_due():
        raise MessageError(f"it is not time to renew the certificate of {member.name}")


def _certificate(pem: bytes) -> dict[str, str]:
    return {keys.fingerprint(pem): keys.validity(pem).ends.isoformat(timespec="seconds")}
