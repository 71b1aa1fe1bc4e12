"""Splits of rows among clients, and their picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdfp.datasets import splits

Y = np.random.default_rng(7).choice(["a", "b", "c"], 600, p=[0.6, 0.3, 0.1])

SPLITS: dict[str, Any] = {
    "iid": lambda seed: splits.iid(600, 20, seed=seed),
    "dirichlet": lambda seed: splits.dirichlet(Y, 20, seed=seed),
    "by_quantity": lambda seed: splits.by_quantity(600, 20, seed=seed),
}


@pytest.mark.parametrize("name", list(SPLITS))
def test_the_seed_decides_and_every_client_holds_rows(name: str) -> None:
    make = SPLITS[name]
    clients = make(3)
    assert clients.dtype == np.int64
    assert clients.shape == (600,)
    assert set(clients) == set(range(20))
    np.testing.assert_array_equal(clients, make(3))
    assert (clients != make(4)).any()


@given(st.integers(1, 200), st.data())
def test_iid_shares_are_equal(n_rows: int, data: st.DataObject) -> None:
    n_clients = data.draw(st.integers(1, n_rows))
    sizes = np.bincount(splits.iid(n_rows, n_clients), minlength=n_clients)
    assert len(sizes) == n_clients
    assert sizes.max() - sizes.min() <= 1


def test_iid_is_in_random_order() -> None:
    clients = splits.iid(10_000, 2)
    assert 0.45 < (clients[1:] == clients[:-1]).mean() < 0.55


def test_by_column_numbers_sorted_values() -> None:
    np.testing.assert_array_equal(splits.by_column(["b", "a", "c", "a"]), [1, 0, 2, 0])
    np.testing.assert_array_equal(splits.by_column(np.array([10, 2, 10])), [1, 0, 1])
    assert splits.by_column([5]).dtype == np.int64


def test_by_label_cuts_sorted_rows() -> None:
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(splits.by_label(y, 3), [0, 0, 1, 0, 1, 2, 2])
    clients = splits.by_label(Y, 20)
    sizes = np.bincount(clients)
    assert sizes.max() - sizes.min() <= 1
    assert sum(len(set(Y[clients == i])) for i in range(20)) <= 20 + 2
    for i in range(20):  # rows of one label stay in order
        for label in "abc":
            rows = np.flatnonzero((clients == i) & (label == Y))
            later = np.flatnonzero((clients > i) & (label == Y))
            assert not rows.size or not later.size or rows.max() < later.min()


def test_by_label_is_what_the_benchmarks_use() -> None:
    owner = np.empty(len(Y), dtype=np.int64)
    owner[np.argsort(Y, kind="stable")] = np.arange(len(Y)) * 100 // len(Y)
    np.testing.assert_array_equal(splits.by_label(Y, 100), owner)


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([1e-300, 1e-6, 0.1, 1.0, 1e3, 1e300, 1e308]),
    st.integers(0, 100),
    st.integers(0, 50),
)
def test_dirichlet_gives_every_client_at_least_so_many(
    n_clients: int, at_least: int, concentration: float, seed: int, more: int
) -> None:
    n_rows = n_clients * at_least + more
    y = np.arange(n_rows) % 3
    for clients in (
        splits.dirichlet(y, n_clients, concentration, seed=seed, at_least=at_least),
        splits.by_quantity(n_rows, n_clients, concentration, seed=seed, at_least=at_least),
    ):
        sizes = np.bincount(clients, minlength=n_clients)
        assert len(sizes) == n_clients
        assert sizes.sum() == n_rows
        assert sizes.min() >= at_least


def test_concentration_rules_the_skew_of_labels() -> None:
    y = np.arange(20_000) % 2

    def skew(concentration: float) -> float:
        clients = splits.dirichlet(y, 10, concentration, seed=1)
        shares = np.array([(y[clients == i]).mean() for i in range(10)])
        return float(abs(shares - 0.5).mean())

    assert skew(0.05) > 0.35
    assert skew(1e6) < 0.01
    assert skew(0.05) > skew(1.0) > skew(100.0)


def test_concentration_rules_the_sizes_only() -> None:
    y = np.random.default_rng(0).integers(0, 2, 20_000)
    clients = splits.by_quantity(20_000, 5, 0.5, seed=2)
    sizes = np.bincount(clients)
    assert sizes.max() > 2 * sizes.min()
    for i in np.flatnonzero(sizes > 1000):
        assert abs(y[clients == i].mean() - y.mean()) < 0.06
    equal = np.bincount(splits.by_quantity(20_000, 5, 1e12))
    assert equal.max() - equal.min() <= 2


def test_shares_do_not_depend_on_the_number_of_the_client() -> None:
    """The mean of Dirichlet shares is the same for all, the first and the last too."""
    sizes = np.mean([np.bincount(splits.by_quantity(500, 5, 1.0, seed=s), minlength=5) for s in range(400)], axis=0)
    np.testing.assert_allclose(sizes, 100, rtol=0.15)


def test_only_clients_with_too_few_rows_are_given_any() -> None:
    y = np.repeat([0, 1], [300, 300])
    plain = splits.dirichlet(y, 6, 0.1, seed=5)
    filled = splits.dirichlet(y, 6, 0.1, seed=5, at_least=40)
    before, after = np.bincount(plain, minlength=6), np.bincount(filled, minlength=6)
    assert before.min() < 40
    assert (after[before < 40] == 40).all()
    assert (after[before >= 40] <= before[before >= 40]).all()
    assert np.count_nonzero(plain != filled) <= np.maximum(40 - before, 0).sum() + 6


def test_train_and_test_rows() -> None:
    train, test = splits.train_test(1000, 800, seed=0)
    np.testing.assert_array_equal(np.concatenate([train, test]), np.random.default_rng(0).permutation(1000))
    assert len(train) == 800
    assert train.dtype == test.dtype == np.int64


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: splits.iid(0, 1), ValueError, "n_rows must be an integer of at least 1"),
    (lambda: splits.iid(5, 6), ValueError, "n_clients must leave a row for every client: 6 are too many for 5 rows"),
    (lambda: splits.iid(5, 2.0), TypeError, "n_clients must be an integer"),
    (lambda: splits.iid(5, 2, seed=-1), ValueError, "seed must be an integer of at least 0"),
    (lambda: splits.iid(5, 2, seed=None), TypeError, "seed must be an integer"),
    (lambda: splits.by_column([1.0, np.nan]), ValueError, "column must name one for every entry"),
    (lambda: splits.by_column(["a", None]), ValueError, "column must name one for every entry"),
    (lambda: splits.by_column([["a"]]), ValueError, "column must have one entry for each row"),
    (lambda: splits.by_column([]), ValueError, "column must have one entry for each row, and at least one"),
    (lambda: splits.by_label([1, 2], 3), ValueError, "3 are too many for 2 rows"),
    (lambda: splits.by_label([1, np.inf], 1), ValueError, "y must name one for every entry"),
    (lambda: splits.dirichlet(Y, 601), ValueError, "601 are too many for 600 rows"),
    (lambda: splits.dirichlet(Y, 100, at_least=7), ValueError, "n_clients must leave at_least=7 rows for every"),
    (lambda: splits.dirichlet(Y, 3, 0.0), ValueError, "concentration must be a finite number greater than 0"),
    (lambda: splits.dirichlet(Y, 3, at_least=0), ValueError, "at_least must be an integer of at least 1"),
    (lambda: splits.by_quantity(10, 3, "much"), TypeError, "concentration must be a finite number"),
    (lambda: splits.by_quantity(10, 6, at_least=2), ValueError, "at_least=2 rows"),
    (lambda: splits.train_test(10, 10), ValueError, "n_train must be an integer of at least 1 and at most 9"),
    (lambda: splits.train_test(1, 1), ValueError, "n_rows must be an integer of at least 2"),
    (lambda: splits.plot([]), ValueError, "clients must have one entry for each row"),
    (lambda: splits.plot([0, np.nan]), ValueError, "clients must name one for every entry"),
    (lambda: splits.plot([0, 1], [1]), ValueError, "y must have one entry for each of the 2 rows"),
]


@pytest.mark.parametrize(("make", "kind", "message"), BAD)
def test_bad_arguments_are_named(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def heights(figure: Any) -> Any:
    """The bars' heights, label by label from the bottom."""
    return np.array([[bar.get_height() for bar in bars] for bars in figure.axes[0].containers])


def test_the_picture_shows_labels_by_client(tmp_path: Path) -> None:
    clients, y = [0, 0, 1, 2, 2, 2], [-1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    figure = splits.plot(clients, y, tmp_path / "split.png")
    np.testing.assert_array_equal(heights(figure), [[1, 0, 0], [1, 1, 3]])
    assert legend(figure) == ["1", "−1"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0", "1", "2"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["2", "1", "3"]
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_shows_sizes_without_labels_or_with_continuous_ones(tmp_path: Path) -> None:
    clients = splits.iid(600, 4)
    for y in (None, np.linspace(0, 1, 600)):
        figure = splits.plot(clients, y)
        np.testing.assert_array_equal(heights(figure), [[150] * 4])
        assert legend(figure) == []


@pytest.mark.parametrize("n_clients", [1, 3, 20, 21, 100, 2000])
def test_few_clients_are_named_and_many_counted(n_clients: int, tmp_path: Path) -> None:
    y = np.arange(4000) % 2
    figure = splits.plot(splits.iid(4000, n_clients), y, tmp_path / "split.pdf")
    axes = figure.axes[0]
    assert len(axes.get_xticklabels()) <= 20
    assert axes.get_xlabel() == ("client" if n_clients <= 20 else f"client ({n_clients:,} in all)")
    assert legend(figure) == ["1", "0"]
    assert (tmp_path / "split.pdf").stat().st_size > 1000


def test_names_of_clients_and_rare_labels_are_shortened(tmp_path: Path) -> None:
    names = np.array(["a hospital with a name that does not end", "B", "C", "D" * 30])
    labels = np.array([f"label {i:02d}" for i in range(14)])
    y = labels[np.repeat(np.arange(14), np.arange(1, 15))]
    clients = names[np.arange(len(y)) % 4]
    figure = splits.plot(clients, y, tmp_path / "split.svg")
    assert legend(figure)[0] == "5 others"
    assert legend(figure)[1:] == [f"label {i:02d}" for i in range(13, 4, -1)]
    assert heights(figure).sum() == len(y)
    assert heights(figure)[-1].sum() == 1 + 2 + 3 + 4 + 5
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert max(map(len, ticks)) == 24
    assert ticks[-1].endswith("…")
