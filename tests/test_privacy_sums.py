"""Masked sums: exact, uniform to everybody who sees single messages, and refused where they would protect nobody."""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.privacy.fixed_point import from_wide, headroom, to_wide
from fpdfp.privacy.journal import Journal
from fpdfp.privacy.masks import KEY, Masker, Membership, RunKey, add_up, pair_keys, run_key

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Sites:
    """Sites of one run, each with a journal."""

    def __init__(self, n: int, folder: Path) -> None:
        self.names = [f"s{i:02d}" for i in range(n)]
        self.identities = {name: Ed25519PrivateKey.generate() for name in self.names}
        public = {name: key.public_key().public_bytes_raw() for name, key in self.identities.items()}
        self.membership, self.run = Membership(public), secrets.token_bytes(KEY)
        self.secrets = {name: secrets.token_bytes(KEY) for name in self.names}
        self.keys = {
            name: run_key(self.secrets[name], key, self.membership, self.run) for name, key in self.identities.items()
        }
        self.folder, self.journals = folder, contextlib.ExitStack()
        self.maskers = {name: self.start(name) for name in self.names}

    def start(self, name: str) -> Masker:
        pairs = pair_keys(name, self.secrets[name], self.keys, self.membership, self.run)
        journal = self.journals.enter_context(Journal(self.folder / f"{name}-{self.run.hex()}"))
        return Masker(name, pairs, self.run, journal)

    def sum(self, terms: list[np.ndarray], bits: int, request: bytes) -> Any:
        replies = {
            name: self.maskers[name].mask(term, bits, request) for name, term in zip(self.names, terms, strict=True)
        }
        return add_up(replies, self.membership, bits)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Sites]]:
    with contextlib.ExitStack() as stack:

        def begin(n: int) -> Sites:
            sites = Sites(n, tmp_path)
            stack.enter_context(sites.journals)
            return sites

        yield begin


def nearest(value: float) -> int:
    """The integer nearest to value · 2⁶⁴, ties to even, by exact fractions."""
    return round(Fraction(value) * 2**64)


def whole(words: np.ndarray) -> list[int]:
    return [
        (low | high << 64) - (2**128 if high >> 63 else 0)
        for low, high in zip(words[:, 0].tolist(), words[:, 1].tolist(), strict=True)
    ]


@settings(deadline=None)
@given(st.lists(st.floats(-(2.0**60), 2.0**60), max_size=20))
def test_wide_integers_are_those_of_exact_fractions(values: list[float]) -> None:
    words = to_wide(np.array(values), 3)
    assert whole(words) == [nearest(value) for value in values]
    assert from_wide(words).tolist() == [float(Fraction(nearest(value), 2**64)) for value in values]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1, max_size=20))
def test_decoding_rounds_once(numbers: list[int]) -> None:
    words = np.array([[n & (2**64 - 1), n >> 64 & (2**64 - 1)] for n in numbers], np.uint64)
    assert from_wide(words).tolist() == [float(Fraction(n, 2**64)) for n in numbers]


@pytest.mark.parametrize("bad", [2.0**61, -(2.0**61), math.inf, math.nan])
def test_what_does_not_fit_is_refused(bad: float) -> None:
    to_wide(np.array([np.nextafter(2.0**61, 0)]), 3)
    with pytest.raises(Refusal, match="cannot be added up exactly"):
        to_wide(np.array([1.0, bad]), 3)


def test_the_largest_numbers_do_not_overflow_in_a_sum(start: Callable[[int], Sites]) -> None:
    for n in (3, 4, 5, 9):
        top = np.nextafter(2.0 ** (63 - headroom(n)), 0)
        for sign in (1, -1):
            found = start(n).sum([to_wide(np.array([sign * top]), n)] * n, 128, b"top")
            assert whole(found) == [sign * n * nearest(top)]


@pytest.mark.parametrize("n", range(3, 31))
def test_masked_sums_are_plain_integer_sums(n: int, start: Callable[[int], Sites]) -> None:
    sites, rng = start(n), np.random.default_rng(n)
    for size in (2**7, 2**50):
        terms = [rng.integers(-size, size, 40) for _ in range(n)]
        assert sites.sum(terms, 64, b"%d" % size).view(np.int64).tolist() == np.sum(terms, axis=0).tolist()
    floats = [rng.standard_normal(40) * 10.0 ** rng.integers(-8, 12, 40) for _ in range(n)]
    found = whole(sites.sum([to_wide(one, n) for one in floats], 128, b"wide"))
    assert found == [sum(nearest(value) for value in values) for values in zip(*floats, strict=True)]


def test_the_same_request_has_the_same_reply_also_after_a_restart(start: Callable[[int], Sites]) -> None:
    sites = start(3)
    terms = np.array([1, 2, 3])
    before = sites.maskers["s00"].mask(terms, 64, b"a request")
    assert (sites.maskers["s00"].mask(terms, 64, b"a request") == before).all()
    sites.maskers["s00"].journal.close()
    again = sites.start("s00")
    assert (again.mask(terms, 64, b"a request") == before).all()
    with pytest.raises(Refusal, match="answered with other numbers"):
        again.mask(terms + 1, 64, b"a request")
    with pytest.raises(Refusal, match="answered with other numbers"):
        again.mask(to_wide(terms, 3), 128, b"a request")
    assert (again.mask(terms, 64, b"another") != before).any()


def test_a_mask_that_is_used_twice_would_open_the_difference(start: Callable[[int], Sites]) -> None:
    """The attack that the journal prevents: without it the difference of two contents is in the clear."""
    sites = start(3)
    first = sites.maskers["s00"].mask(np.array([100]), 64, b"q")
    sites.maskers["s00"].journal.close()
    (sites.folder / f"s00-{sites.run.hex()}").unlink()
    second = sites.start("s00").mask(np.array([107]), 64, b"q")
    assert (second - first).tolist() == [7]


def test_two_sites_and_two_names_of_one_site_are_refused() -> None:
    keys = [secrets.token_bytes(KEY) for _ in range(3)]
    with pytest.raises(Refusal, match="at least 3 sites: of two, each finds"):
        Membership({"a": keys[0], "b": keys[1]})
    with pytest.raises(ArgumentError, match="one site cannot stand for two"):
        Membership({"a": keys[0], "b": keys[1], "c": keys[1]})


def test_keys_that_the_pinned_identity_has_not_signed_are_refused(start: Callable[[int], Sites]) -> None:
    sites = start(3)
    mallory = Ed25519PrivateKey.generate()
    forged = run_key(secrets.token_bytes(KEY), mallory, sites.membership, sites.run)

    def meet(keys: dict[str, RunKey], membership: Membership = sites.membership, run: bytes = sites.run) -> None:
        pair_keys("s00", sites.secrets["s00"], keys, membership, run)

    with pytest.raises(Refusal, match="s01 is not signed"):
        meet(sites.keys | {"s01": forged})
    with pytest.raises(Refusal, match="s01 is not signed"):
        meet(sites.keys | {"s01": RunKey(forged.public, sites.keys["s01"].signature)})
    with pytest.raises(Refusal, match="is not signed"):  # the keys of another run
        meet(sites.keys, run=secrets.token_bytes(KEY))
    with pytest.raises(Refusal, match="must match its membership"):
        meet({name: sites.keys[name] for name in ("s00", "s01")})
    with pytest.raises(Refusal, match="must match its membership"):  # an invented peer
        meet(sites.keys | {"mallory": forged})
    larger = Membership({**sites.membership.identities, "mallory": mallory.public_key().public_bytes_raw()})
    with pytest.raises(Refusal, match="is not signed"):  # the same keys for a larger membership
        meet(sites.keys | {"mallory": forged}, larger)
    own = run_key(secrets.token_bytes(KEY), sites.identities["s00"], sites.membership, sites.run)
    with pytest.raises(Refusal, match="another run key was sent for this site"):
        meet(sites.keys | {"s00": own})
    low = bytes(KEY)  # a point of low order: the shared key would be known
    statement = b"fpdfp run key" + sites.run + sites.membership.digest + low
    with pytest.raises(Refusal, match="is not a key"):
        meet(sites.keys | {"s01": RunKey(low, sites.identities["s01"].sign(statement))})


def test_a_sum_without_a_site_is_noise(start: Callable[[int], Sites]) -> None:
    sites = start(4)
    replies = {name: sites.maskers[name].mask(np.zeros(20_000, np.int64), 64, b"q") for name in sites.names}
    with pytest.raises(MessageError, match="missing: s03"):
        add_up({name: replies[name] for name in sites.names[:3]}, sites.membership, 64)
    partial: Any = sum(replies[name] for name in sites.names[:3])
    assert chisquare(np.bincount(partial.view(np.uint8), minlength=256)).pvalue > 1e-6
    assert (add_up(replies, sites.membership, 64) == 0).all()


def test_single_messages_are_uniform(start: Callable[[int], Sites]) -> None:
    """400 chi-square tests with fresh keys, two contents; a false alarm once in 500 runs (two tests at 1e-3)."""
    for content in (0, 100):
        found = []
        for i in range(200):
            if i % 20 == 0:
                sites = start(3)
            words = sites.maskers["s00"].mask(np.full(1000, content), 64, b"%d %d" % (content, i))
            found.append(chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue)
        assert kstest(found, "uniform").pvalue > 1e-3


def test_masks_of_wide_words_have_no_carry_left_over(start: Callable[[int], Sites]) -> None:
    sites = start(3)
    words = sites.maskers["s01"].mask(np.zeros((20_000, 2), np.uint64), 128, b"q")
    for part in (words[:, 0], words[:, 1]):
        assert chisquare(np.bincount((part >> np.uint64(56)).astype(np.int64), minlength=256)).pvalue > 1e-6
        assert chisquare(np.bincount((part & np.uint64(255)).astype(np.int64), minlength=256)).pvalue > 1e-6
