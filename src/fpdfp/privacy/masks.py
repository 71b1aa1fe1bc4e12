"""Masks of pairs of sites, which cancel in the sum over a fixed membership.

Each site makes an X25519 key for a run and signs it with its long-term Ed25519 identity, together with the run and the
membership. Two sites derive the same key from theirs (HKDF-SHA256). The mask of a pair for one request is a ChaCha20
stream, its key HMAC-SHA256 of the pair's key and the digest of the whole request. The site whose name comes first adds
it, the other subtracts it. All but the sum looks uniform to all but the sites themselves.

A mask hides one content. So what a request was answered with is written down before the reply leaves
(:class:`Masker`): the same request has the same reply, also after a restart, and other numbers under the same mask are
refused. A lost site cannot be recovered (K. Bonawitz et al., *Practical secure aggregation for privacy-preserving
machine learning*, 2017, has one): points hardly move between rounds. So the sum without a site, subtracted from the sum
of the round before, is that site's gradient. Two sites are refused, since each would find the other's numbers by a
subtraction.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._kernels import fixed
from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.privacy.fixed_point import WIDE
from fpdfp.privacy.journal import Journal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The least number of sites in a sum.
LEAST = 3
#: Bytes of keys, digests and names of runs, and of signatures.
KEY, SIGNATURE, NONCE = 32, 64, 12
#: How a record of members begins, which is longer than the two digests of an answer, and what seals are for.
MEMBERS, STATEMENT = b"members ", b"fpdfp statement"
#: Bytes of a stream that are made at a time: they stay in the cache of a core.
PIECE = 1 << 17


@dataclasses.dataclass(frozen=True)
class Membership:
    """The sites that add up, with their identities: fixed for a run.

    Parameters
    ----------
    identities
        The public Ed25519 key of each site, by its name; compared out of band.

    Examples
    --------
    >>> Membership({"north": bytes(32), "south": bytes(31) + b"1"})
    Traceback (most recent call last):
      ...
    fpdfp.errors.Refusal: a masked sum needs at least 3 sites: of two, each finds the other's numbers by subtracting \
its own
    """

    identities: Mapping[str, bytes]

    def __post_init__(self) -> None:
        object.__setattr__(self, "identities", dict(sorted(self.identities.items())))
        if any(len(key) != KEY for key in self.identities.values()):
            raise ArgumentError("identities", f"must be public keys of {KEY} bytes")
        if len(set(self.identities.values())) < len(self.identities):
            raise ArgumentError("identities", "must differ: one site cannot stand for two")
        if len(self.identities) < LEAST:
            raise Refusal(
                f"a masked sum needs at least {LEAST} sites: of two, each finds the other's numbers by subtracting its "
                "own"
            )

    @property
    def digest(self) -> bytes:
        """A digest of all names and identities."""
        told = [[name, key.hex()] for name, key in self.identities.items()]
        return hashlib.sha256(json.dumps(["membership", told]).encode()).digest()


def note_members(journal: Journal, membership: Membership, colluding: int) -> None:
    """Write down with whom a site adds up; refuse members that differ by one or two from those of before.

    The difference of sums over both is the sum over these one or two sites, of which each knows its own part. With more
    colluding sites as many more must differ.
    """
    now = sorted(key.hex() for key in membership.identities.values())
    for record in journal.records:
        if not record.startswith(MEMBERS):
            continue
        changed = set(json.loads(record[len(MEMBERS) :])) ^ set(now)
        if not changed:
            return
        if len(changed) <= colluding + 1:
            raise Refusal(
                f"this site has added up its data with members that differ by {len(changed)} from those of its policy: "
                "the difference of both sums would be that of single sites", rule="members",
            )  # fmt: skip
    journal.append(MEMBERS + json.dumps(now).encode())


class RunKey(NamedTuple):
    """The public key of a site for a run, and the site's signature of it, the run and the membership."""

    public: bytes
    signature: bytes


def run_key(private: bytes, identity: Ed25519PrivateKey, membership: Membership, run: bytes) -> RunKey:
    """Return the public half of a site's key of a run, signed.

    Parameters
    ----------
    private
        The site's secret for this run, 32 random bytes.
    identity
        Its long-term key.
    membership, run
        Who adds up, and the run's name, 32 bytes that no one uses twice.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return RunKey(public, identity.sign(_statement(membership, run, public)))


def _statement(membership: Membership, run: bytes, public: bytes) -> bytes:
    if len(run) != KEY:
        raise ArgumentError("run", f"must have {KEY} bytes, got {len(run)}")
    return b"fpdfp run key" + run + membership.digest + public


def pair_keys(
    name: str, private: bytes, keys: Mapping[str, RunKey], membership: Membership, run: bytes
) -> dict[str, bytes]:
    """Return the key that a site shares with each other one; refuse a run key that its site has not signed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if set(keys) != set(membership.identities) or name not in keys:
        raise Refusal("the keys of a run must match its membership and include this site's")
    own = X25519PrivateKey.from_private_bytes(private)
    found = {}
    for other, key in keys.items():
        identity = Ed25519PublicKey.from_public_bytes(membership.identities[other])
        try:
            identity.verify(key.signature, _statement(membership, run, key.public))
        except InvalidSignature:
            raise Refusal(f"the run key of {other} is not signed by the identity that this site knows") from None
        if other == name:
            if key.public != own.public_key().public_bytes_raw():
                raise Refusal("another run key was sent for this site")
            continue
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(key.public))
        except ValueError:
            raise Refusal(f"the run key of {other} is not a key") from None
        first, last = sorted((name, other))
        info = json.dumps(["fpdfp pair", first, last]).encode()
        derive = HKDF(hashes.SHA256(), KEY, salt=run + membership.digest, info=info)
        found[other] = derive.derive(shared)
    return found


class Masker:
    """Masks what one site sends in one run.

    Parameters
    ----------
    name
        Of this site.
    pairs
        The keys that it shares with the others (:func:`pair_keys`).
    run
        The run's name.
    journal
        Where it is written down what each request was answered with.
    """

    def __init__(self, name: str, pairs: Mapping[str, bytes], run: bytes, journal: Journal) -> None:
        if len(pairs) < LEAST - 1:
            raise Refusal(f"a masked sum needs at least {LEAST} sites")
        self.name, self.run, self.journal = name, run, journal
        self._pairs = dict(sorted(pairs.items()))
        self._answered: dict[bytes, bytes] = {}
        for record in journal.records:
            if record.startswith(MEMBERS):
                continue
            if len(record) != 2 * KEY:
                raise RuntimeError(f"{journal.path} is not a journal of masked sums")
            self._answered[record[:KEY]] = record[KEY:]

    @property
    def others(self) -> list[str]:
        """The names of the other sites."""
        return list(self._pairs)

    def seal(self, other: str, contents: bytes, about: bytes) -> bytes:
        """Return contents that another site alone can read, and knows to be this site's."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        nonce = secrets.token_bytes(NONCE)
        said = json.dumps([self.name, other]).encode() + about
        return nonce + ChaCha20Poly1305(self._seal_key(other)).encrypt(nonce, contents, said)

    def unseal(self, other: str, sealed: Any, about: bytes) -> bytes:
        """Return what another site has sealed for this one."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        said = json.dumps([other, self.name]).encode() + about
        try:
            return ChaCha20Poly1305(self._seal_key(other)).decrypt(bytes(sealed[:NONCE]), bytes(sealed[NONCE:]), said)
        except (InvalidTag, TypeError, ValueError):
            raise Refusal(f"the statement of {other} is not sealed by it for this site", rule="members") from None

    def _seal_key(self, other: str) -> bytes:
        return hmac.digest(self._pairs[other], STATEMENT, "sha256")

    def tag(self, request: bytes) -> bytes:
        """Return the digest of a whole request in this run."""
        return hashlib.sha256(b"fpdfp request" + self.run + hashlib.sha256(request).digest()).digest()

    def mask(self, integers: Any, bits: int, request: bytes) -> Any:
        """Return integers plus masks modulo 2^bits, as words of the next machine width.

        Parameters
        ----------
        integers
            Signed integers, or wide ones ((n, 2) words).
        bits
            64, or 128 for wide ones.
        request
            All that was asked, to the last bit.
        """
        total = integers.copy() if bits == WIDE else integers.astype(np.int64).view(np.uint64)
        tag, content = self.tag(request), hashlib.sha256(bytes([bits]) + total.tobytes()).digest()
        known = self._answered.get(tag)
        if known is None:
            self.journal.append(tag + content)
            self._answered[tag] = content
        elif not hmac.compare_digest(known, content):
            raise Refusal("this request was answered with other numbers: a mask is used once")
        add_masks(total, self.name, self._pairs, tag)
        return total


def add_masks(total: Any, name: str, pairs: Mapping[str, bytes], tag: bytes) -> None:
    """Add the masks of a site for one request to words, modulo the width of these words or of rows of two."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    wide, streams = total.ndim == 2, []
    for other, key in pairs.items():
        seed = hmac.digest(key, b"mask" + tag, "sha256")
        # every key is used for one stream, so the nonce may be 0
        draw = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update_into
        streams.append((draw, name < other))
    zeros, piece = memoryview(bytes(PIECE)), bytearray(PIECE)
    drawn, words = memoryview(piece), np.frombuffer(piece, total.dtype).reshape(-1, *total.shape[1:])
    for start in range(0, len(total), len(words)):
        part = total[start : start + len(words)]
        mask = words[: len(part)]
        for draw, first in streams:
            draw(zeros[: part.nbytes], drawn[: part.nbytes])
            if wide:
                (fixed.add if first else fixed.subtract)(part, mask)
            elif first:
                part += mask
            else:
                part -= mask


def add_up(replies: Mapping[str, Any], membership: Membership, bits: int) -> Any:
    """Return the sum of masked replies modulo 2^bits, without masks; every site of the membership must have replied."""
    missing = sorted(set(membership.identities) - set(replies))
    if missing or len(replies) != len(membership.identities):
        raise MessageError(f"a masked sum needs the reply of every site; missing: {', '.join(missing) or 'none'}")
    first, *others = replies.values()
    shape = (len(first), 2) if bits == WIDE else (len(first),)
    if any(reply.shape != shape or reply.dtype != np.uint64 for reply in replies.values()):
        raise MessageError("the replies of a masked sum must have the same layout")
    total = first.copy()
    for reply in others:
        if bits == WIDE:
            fixed.add(total, reply)
        else:
            total += reply
    return total
