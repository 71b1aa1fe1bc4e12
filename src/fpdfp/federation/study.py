"""The folder of a study at the coordinator.

::

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
import json
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fpdfp import _checks
from fpdfp import _files as files
from fpdfp.cohorts.serialization import validate
from fpdfp.errors import ArgumentError, ArgumentTypeError, MessageError
from fpdfp.federation import keys
from fpdfp.federation.keys import About, Credentials, Identity, Role, warn, write_invitation
from fpdfp.federation.text import read_name
from fpdfp.runs import toml

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


FORMAT = 1
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
        keys.names_of_hosts(hosts)
        port = _checks.integer("port", port, at_least=1, at_most=65535)
        read_name("the folder's name", folder.resolve().name)
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} exists already, and is not overwritten")
        keys.make_private_folder(folder).chmod(0o700)
        try:
            authority = keys.make_authority(folder / "authority", name=f"fpdfp {folder.resolve().name}")
            # The coordinator speaks to its own hub by a name that always reaches it.
            keys.make_server_certificate(folder / "hub", authority, _with_own(hosts))
            settings = {"format": FORMAT, "name": folder.resolve().name, "hosts": list(hosts), "port": port}
            files.write_whole(folder / "study.toml", toml.dumps(settings).encode(), private=True)
            study = cls(folder)
            study._enrol_coordinator()
            for site in sites:
                study.invite(site, "site")
            keys.make_private_folder(folder / "runs")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # all of it or nothing: half a study is of no use
            raise
        return study

    @property
    def authority(self) -> keys.Pair:
        """The key that signs, and its certificate."""
        return keys.Pair(self.folder / "authority" / "ca.key", self.folder / "authority" / "ca.pem")

    @property
    def address(self) -> str:
        """The address of the hub for sites and analysts."""
        return keys.join_address(self.hosts[0], self.port)

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
        key = keys.make_key()
        request = keys.make_request(key, name)
        certificate = keys.sign_request(self.authority, request, name, "invitation", days=keys.INVITATION_DAYS)
        self.registry.invite(name, role, keys.fingerprint(certificate))
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
        if not keys.validity(self.credentials().certificate).is_due():
            return False
        keys.make_server_certificate(self.folder / "hub", self.authority, _with_own(self.hosts), overwrite=True)
        return True

    def warnings(self) -> list[str]:
        """Say which certificates end soon: the hub's, the authority's, and the members'."""
        own = {"the certificate of the hub": self.credentials().certificate}
        own["the certificate of the study's authority"] = self.authority.public.read_bytes()
        found = [warn(whose, keys.validity(pem)) for whose, pem in own.items()]
        for member in self.registry.members.values():
            lives = [keys.validity_until(end) for end in member.certificates.values()]
            if lives and not member.removed:
                found.append(warn(f"the certificate of {member.name}", max(lives, key=lambda life: life.ends)))
        return [one for one in found if one]

    def _enrol_coordinator(self) -> None:
        key = keys.make_key()
        request = keys.make_request(key, COORDINATOR)
        certificate = keys.sign_request(self.authority, request, COORDINATOR, "analyst")
        self.registry.invite(COORDINATOR, "analyst", "")
        self.registry.add_certificate(COORDINATOR, certificate)
        about = About(self.name, "analyst", COORDINATOR, keys.join_address("localhost", self.port))
        Identity.write(self.folder / "analyst", about, self.authority.public.read_bytes(), key + certificate)


def _with_own(hosts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
