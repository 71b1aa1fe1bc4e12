"""Randomness is a function of seed, round, client, purpose and index."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fpdfp._kernels import philox
from fpdfp.rng import Draws, Purpose, choose_clients, table_size

# The known answers of the Random123 distribution for philox4x32-10: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    block, tag, client, round_ = words(counter)
    lane, group = block % philox.BLOCKS, block // philox.BLOCKS
    out = np.zeros(philox.GROUP, dtype=np.uint32)
    k0, k1 = words(key)
    philox.fill_group(k0, k1, tag, client, round_, group, out)
    assert out[lane :: philox.BLOCKS].tolist() == words(expected)


def test_words_do_not_depend_on_the_batch_or_on_how_many_are_drawn() -> None:
    clients = np.array([3, 8, 1])
    together = Draws(2**40 + 5, 9, clients).words(Purpose.QUANTIZE, 1000)
    for row, client in enumerate(clients):
        alone = Draws(2**40 + 5, 9, np.array([client])).words(Purpose.QUANTIZE, 700)
        np.testing.assert_array_equal(alone[0], together[row, :700])


def test_every_part_of_the_counter_and_the_key_matters() -> None:
    def draw(seed: int = 1, round_: int = 2, client: int = 3, purpose: int = 4, step: int = 5) -> bytes:
        return Draws(seed, round_, np.array([client]), step).words(purpose, 8).tobytes()

    seen = [
        draw(),
        draw(seed=2),
        draw(seed=1 + 2**32),
        draw(round_=3),
        draw(client=4),
        draw(purpose=5),
        draw(step=6),
    ]
    assert len(set(seen)) == len(seen)


def test_words_are_uniform() -> None:
    drawn = Draws(0, 0, np.arange(4)).words(Purpose.QUANTIZE, 50_000)
    # Kolmogorov-Smirnov at a fixed seed: the p-value is what it is, and a skewed generator would give ~0.
    assert stats.kstest((drawn.ravel() + 0.5) / 2**32, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(("n_clients", "count"), [(1, 1), (5, 1), (7, 6), (10, 10), (1000, 300), (10**9, 50)])
def test_chosen_clients_are_distinct_sorted_and_in_range(n_clients: int, count: int) -> None:
    for round_ in range(5):
        chosen = choose_clients(0, round_, n_clients, count)
        assert len(chosen) == count
        assert (np.diff(chosen) > 0).all()
        assert chosen[0] >= 0
        assert chosen[-1] < n_clients


def test_every_subset_is_equally_likely() -> None:
    rounds = 20_000
    subsets = list(itertools.combinations(range(6), 3))
    counts = dict.fromkeys(subsets, 0)
    for round_ in range(rounds):
        counts[tuple(choose_clients(3, round_, 6, 3).tolist())] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_a_round_can_be_drawn_without_the_rounds_before_it() -> None:
    in_order = [choose_clients(5, k, 100, 10).tolist() for k in range(20)]
    backwards = [choose_clients(5, k, 100, 10).tolist() for k in reversed(range(20))]
    assert in_order == backwards[::-1]


def test_the_hash_table_is_always_at_least_half_empty() -> None:
    for count in range(1, 200):
        size = table_size(count)
        assert size >= 2 * count
        assert size & (size - 1) == 0


@pytest.mark.parametrize(("size", "count"), [(1000, 4), (5000, 31), (20_000, 128)])
def test_a_set_of_bits_draws_the_same_as_a_hash_table(size: int, count: int) -> None:
    drawn = []
    for length in (table_size(count), 64 * table_size(count)):
        out = np.empty(count, dtype=np.int64)
        philox.sample_subset(1, 2, 3, 4, 5, size, count, np.empty(length, dtype=np.int64), out)
        drawn.append(out.tolist())
    assert 64 * table_size(count) < size  # the first table has no bit for each
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == count
