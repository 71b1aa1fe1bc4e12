"""Sealed messages: who runs the hub can neither read, change nor replay what an analyst and a site say to each other.

Each side knows the other's public Ed25519 key from outside (:class:`Pins`); neither the hub nor its certificate
authority vouches for it. The two agree on keys once for each process of the analyst and of the site::

    analyst → site    "H"  an X25519 key  signature of (greeting, study, site's identity, key)
    site → analyst    "H"  an X25519 key  signature of (answer, both keys, analyst's identity)

The shared secret goes through HKDF-SHA256, with all that was said as its salt, to one key for each direction. Then ::

    analyst → site    "S"  session (8 bytes)  number (8 bytes)  ChaCha20-Poly1305 of the request
    site → analyst    "S"  nonce (12 bytes)  ChaCha20-Poly1305 of the reply, bound to the session and the number

so a request is 33 bytes longer, and a reply 29. A reply opens under no other request. A request that is replayed is the
same request: sites answer none that is older than one they have seen (:mod:`fpdfp.federation.rollback`). A site that
does not know a session (any more) says "U", and the analyst greets it again. Keys of sessions are in memory alone, so a
secret that leaks later opens nothing that was said before.
"""

from __future__ import annotations

import collections
import hashlib
import hmac
import itertools
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SECRET = "secret.key"
LENGTH = 32


class Secret:
    """A secret of 32 bytes.

    Attributes
    ----------
    identity
        The private Ed25519 key.
    public
        Its public half, 32 bytes: who the member is.

    Examples
    --------
    >>> Secret(bytes(32)).public.hex()[:16]
    'fcf7cca634ed6aa0'
    """

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(secret) != LENGTH:
            raise ValueError(f"a secret must have {LENGTH} bytes, got {len(secret)}")
        self._secret = secret
        self.identity: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(self.derive(b"identity"))
        self.public = self.identity.public_key().public_bytes_raw()

    @classmethod
    def of(cls, folder: Path) -> Secret:
        """Return the secret in a folder; it is made if missing."""
        path = Path(folder) / SECRET
        if not path.exists():
            keys.write_private(path, secrets.token_bytes(LENGTH))
        return cls(path.read_bytes())

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 bytes for a purpose."""
        return hmac.digest(self._secret, b"fpdfp secret" + purpose, "sha256")


HELLO, SEALED, UNKNOWN = b"H", b"S", b"U"
KEY, SIGNATURE, SESSION, NUMBER, NONCE = 32, 64, 8, 8, 12
#: How many sessions a site remembers.
MOST = 256
#: The file of the identities that a member knows.
FILE = "pins.toml"


class Pins:
    """The identities that a member knows from outside, in its folder: anyone who is here is spoken to under seal alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Pins(Path(folder)).add("north", "ab" * 32)
    ...     Pins(Path(folder)).read()["north"].hex()[:8]
    'abababab'
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / FILE

    def read(self) -> dict[str, bytes]:
        """Return the public keys by name."""
        import tomllib

        try:
            found = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {name: _read_key(name, key) for name, key in found.items()}

    def add(self, name: str, key: str) -> None:
        """Write down a key; refuse another one for a name that is there."""
        known, made = self.read(), _read_key(name, key)
        if known.get(name, made) != made:
            raise ArgumentError("name", f"{name} has another key in {self.path}: remove the line if that is right")
        lines = [f'"{one}" = "{value.hex()}"\n' for one, value in sorted({**known, name: made}.items())]
        keys.write_private(self.path, "".join(lines).encode(), overwrite=True)


def _read_key(name: str, key: object) -> bytes:
    if not isinstance(key, str) or re.fullmatch("[0-9a-f]{64}", key) is None:
        raise ArgumentError("key", f"of {name!r} must have 64 digits from 0 to f, got {key!r}")
    return bytes.fromhex(key)


class Session(NamedTuple):
    """The keys of a session, its name, and who the analyst is."""

    name: bytes
    up: bytes
    down: bytes
    analyst: str = ""


def _agree(private: bytes, other: bytes, said: bytes) -> Session:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise MessageError("a key of a greeting is not a key") from None
    made = HKDF(hashes.SHA256(), 2 * KEY + SESSION, hashlib.sha256(said).digest(), b"fpdfp seal").derive(shared)
    return Session(made[2 * KEY :], made[:KEY], made[KEY : 2 * KEY])


def _public(private: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _verify(key: bytes, signature: bytes, statement: bytes, who: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        raise MessageError(f"a greeting is not signed by {who}, as whom it comes") from None


def _encrypt(key: bytes, nonce: bytes, body: bytes, about: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(nonce, body, about)


def _decrypt(key: bytes, nonce: bytes, body: bytes, about: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(nonce, body, about)
    except InvalidTag:
        raise MessageError("a sealed message was changed on its way") from None


def _greeting(study: str, site: bytes, key: bytes) -> bytes:
    return b"fpdfp greeting" + hashlib.sha256(study.encode()).digest() + site + key


def _answer(analyst: bytes, first: bytes, second: bytes) -> bytes:
    return b"fpdfp answer" + analyst + first + second


class Sealer:
    """An analyst's side.

    Parameters
    ----------
    study
        The name of the study.
    secret
        The analyst's.
    pins
        The public keys of the sites.
    """

    def __init__(self, study: str, secret: Secret, pins: Mapping[str, bytes]) -> None:
        self._study, self._secret, self._pins = study, secret, dict(pins)
        self._greeted: dict[str, bytes] = {}
        self._sessions: dict[str, Session] = {}
        self._numbers = itertools.count(1)

    def knows(self, site: str) -> bool:
        """Whether there is a session with a site."""
        return site in self._sessions

    def greet(self, site: str) -> bytes:
        """Return a greeting for a site; refuse a site whose key is not known."""
        if site not in self._pins:
            raise ArgumentError(
                "sites", f"must have keys that you know: `fpdfp federation trust` notes the key of {site}"
            )
        self._greeted[site] = private = secrets.token_bytes(KEY)
        key = _public(private)
        return HELLO + key + self._secret.identity.sign(_greeting(self._study, self._pins[site], key))

    def meet(self, site: str, reply: bytes) -> None:
        """Take a site's answer to a greeting."""
        if len(reply) != 1 + KEY + SIGNATURE or reply[:1] != HELLO or site not in self._greeted:
            raise MessageError(f"{site} does not answer a greeting: does it know your key?")
        private = self._greeted.pop(site)
        first, second = _public(private), reply[1 : 1 + KEY]
        said = _answer(self._secret.public, first, second)
        _verify(self._pins[site], reply[1 + KEY :], said, site)
        self._sessions[site] = _agree(private, second, said + self._pins[site])

    def forget(self, site: str) -> None:
        """Forget the session with a site, which does not know it any more."""
        self._sessions.pop(site, None)

    def seal(self, site: str, body: bytes) -> bytes:
        """Return a request under seal."""
        session, number = self._sessions[site], next(self._numbers).to_bytes(NUMBER, "big")
        about = SEALED + session.name + number
        return about + _encrypt(session.up, bytes(NONCE - NUMBER) + number, body, about)

    def open(self, site: str, asked: bytes, reply: bytes) -> bytes | None:
        """Return the reply to a sealed request; None if the site does not know the session."""
        if reply == UNKNOWN:
            return None
        session, length = self._sessions[site], 1 + SESSION + NUMBER
        if reply[:1] != SEALED or len(reply) < 1 + NONCE:
            raise MessageError(f"the reply of {site} is not sealed")
        return _decrypt(session.down, reply[1 : 1 + NONCE], reply[1 + NONCE :], asked[:length])


class Unsealer:
    """A site's side.

    Parameters
    ----------
    study
        The name of the study.
    secret
        The site's.
    pins
        The public keys of analysts.
    """

    def __init__(self, study: str, secret: Secret, pins: Mapping[str, bytes]) -> None:
        self._study, self._secret, self._pins = study, secret, dict(pins)
        self._sessions: collections.OrderedDict[bytes, Session] = collections.OrderedDict()

    def respond(self, asker: str, body: bytes, answer: Callable[[bytes], bytes]) -> bytes:
        """Return what is sent back to someone, who the hub says is ``asker``.

        Parameters
        ----------
        asker
            The name that the hub says.
        body
            What has come.
        answer
            Returns the reply to a request that was opened. It is called for requests of this analyst alone.
        """
        if body[:1] == HELLO:
            return self._meet(asker, body)
        length = 1 + SESSION + NUMBER
        if body[:1] != SEALED or len(body) < length:
            raise MessageError("this site answers sealed requests alone, of analysts whose keys it knows")
        session = self._sessions.get(body[1 : 1 + SESSION])
        if session is None:
            return UNKNOWN
        if session.analyst != asker:
            raise MessageError("a sealed request is another analyst's than the hub says")
        about = body[:length]
        request = _decrypt(session.up, bytes(NONCE - NUMBER) + about[1 + SESSION :], body[length:], about)
        nonce = secrets.token_bytes(NONCE)
        return SEALED + nonce + _encrypt(session.down, nonce, answer(request), about)

    def _meet(self, asker: str, body: bytes) -> bytes:
        known = self._pins.get(asker)
        if known is None or len(body) != 1 + KEY + SIGNATURE:
            raise MessageError(f"this site does not know the key of {asker}")
        first = body[1 : 1 + KEY]
        _verify(known, body[1 + KEY :], _greeting(self._study, self._secret.public, first), asker)
        private = secrets.token_bytes(KEY)
        second = _public(private)
        said = _answer(known, first, second)
        session = _agree(private, first, said + self._secret.public)._replace(analyst=asker)
        self._sessions[session.name] = session
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        return HELLO + second + self._secret.identity.sign(said)
