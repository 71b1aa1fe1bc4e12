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

import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fpdfp import _checks
from fpdfp import _files as files
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.federation import keys
from fpdfp.federation.keys import About, Credentials, Identity, Role, warn, write_invitation
from fpdfp.federation.registry import Registry
from fpdfp.federation.text import read_name
from fpdfp.runs import toml

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
            A folder that is not there yet; its name becomes that of the study.
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
        """Say which certificates end soon: the hub's, the authority's, and those of members."""
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
