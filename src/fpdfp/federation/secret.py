"""A member's secret: 32 random bytes in its folder, from which its identity, keys of runs and noise are derived.

Who the member is, is its public Ed25519 key. It is compared out of band, once, and written into the policies of others:
neither the hub nor its certificate authority vouches for it.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from fpdfp.federation import keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "secret.key"
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
        path = Path(folder) / FILE
        if not path.exists():
            keys.write_private(path, secrets.token_bytes(LENGTH))
        return cls(path.read_bytes())

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 bytes for a purpose."""
        return hmac.digest(self._secret, b"fpdfp secret" + purpose, "sha256")
