"""Splits: ways to distribute rows over clients.

Every function returns the number of the client that holds each row, an array of integers from 0 to ``n_clients`` − 1 in
which every client occurs, to be given as ``clients`` to a loss.
"""

from __future__ import annotations

import heapq
import os
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._plotting import new_axes, save
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError

__all__ = ["by_column", "by_label", "by_quantity", "dirichlet", "iid", "plot", "train_test"]

#: Above this, shares drawn from a Dirichlet distribution are equal but for rounding; far above, sums overflow.
_EQUAL = 1e12
#: In a picture, up to this many clients are named, with their sizes.
NAMED = 20
#: Up to this many clients have bars with gaps between them; with more, gaps would be thinner than a dot.
APART = 150
#: Up to this many labels have a colour each; of more texts, the most frequent ones do.
COLOURED = 10
#: The colours of Okabe and Ito, which colour-blind readers can distinguish, and three more for the last labels.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9",
    "#D55E00", "#F0E442", "#7F4F9E", "#8C6D46", "#1B3A4B",
)  # fmt: skip
GREY = "#A0A0A0"


def iid(n_rows: int, n_clients: int, seed: int = 0) -> IntArray:
    """Distribute rows at random in equal shares: sizes differ by at most one.

    Parameters
    ----------
    n_rows, n_clients
        How many rows and clients there are.
    seed
        The seed of the random order.

    Examples
    --------
    >>> import numpy as np
    >>> clients = iid(10, 3)
    >>> np.bincount(clients)
    array([4, 3, 3])
    """
    n_rows, n_clients = _sizes(n_rows, n_clients)
    clients = np.empty(n_rows, dtype=np.int64)
    clients[_generator(seed).permutation(n_rows)] = np.arange(n_rows) % n_clients
    return clients


def by_column(column: Any) -> IntArray:
    """Number the distinct values of a column, in sorted order: rows with the same value share a client.

    Parameters
    ----------
    column
        The site of each row, such as ``DataSet.site``. ``numpy.unique(column)`` are the names of the clients.

    Examples
    --------
    >>> by_column(["north", "east", "north", "west"])
    array([1, 0, 1, 2])
    """
    return _codes("column", column)


def by_label(y: Any, n_clients: int) -> IntArray:
    """Sort the rows by label and cut them into equal contiguous shares: most clients hold a single label.

    Rows of one label stay in their order. Nothing is random.

    Parameters
    ----------
    y
        The label of each row.
    n_clients
        How many clients there are.

    Examples
    --------
    >>> by_label(["b", "a", "b", "a", "b", "b"], 3)
    array([1, 0, 1, 0, 2, 2])
    """
    codes = _codes("y", y)
    n_rows, n_clients = _sizes(len(codes), n_clients)
    clients = np.empty(n_rows, dtype=np.int64)
    clients[np.argsort(codes, kind="stable")] = np.arange(n_rows) * n_clients // n_rows
    return clients


def dirichlet(y: Any, n_clients: int, concentration: float = 0.5, seed: int = 0, at_least: int = 1) -> IntArray:
    """Distribute the rows of every label in random shares: clients differ in size and in their mixture of labels.

    For every label, the clients' shares of its rows are drawn from a symmetric Dirichlet distribution. Where that
    leaves a client with fewer than ``at_least`` rows, it is given rows one at a time, each from the client that is
    largest then (the first such). That one gives up its rows in random order. The seed decides everything.

    Parameters
    ----------
    y
        The label of each row.
    n_clients
        How many clients there are.
    concentration
        Near 0, one client holds all rows of a label; the larger, the more similar the clients.
    seed
        The seed of all draws.
    at_least
        The fewest rows that a client may hold.

    References
    ----------
    M. Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML (2019), with shares drawn
    for every label, as here; T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data
    distribution for federated visual classification", arXiv:1909.06335 (2019), with a mixture of labels drawn for every
    client.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat([-1, 1], 50)
    >>> clients = dirichlet(y, 3, concentration=0.3)
    >>> for label in (-1, 1):
    ...     print(np.bincount(clients[y == label], minlength=3))
    [21 23  6]
    [40  8  2]
    """
    codes = _codes("y", y)
    concentration = _checks.real("concentration", concentration, positive=True)
    n_rows, n_clients = _sizes(len(codes), n_clients, at_least)
    generator = _generator(seed)
    clients = np.empty(n_rows, dtype=np.int64)
    for label in range(int(codes.max()) + 1):
        rows = generator.permutation(np.flatnonzero(codes == label))
        clients[rows] = _shares(len(rows), n_clients, concentration, generator)
    return _fill_up(clients, n_clients, at_least, generator)


def by_quantity(n_rows: int, n_clients: int, concentration: float = 0.5, seed: int = 0, at_least: int = 1) -> IntArray:
    """Distribute rows at random in random shares: clients differ in size, but not in distribution.

    The shares are drawn from a symmetric Dirichlet distribution. Clients left with fewer than ``at_least`` rows are
    given rows of the largest clients, as ``dirichlet`` does.

    Parameters
    ----------
    n_rows, n_clients
        How many rows and clients there are.
    concentration
        Near 0, one client holds nearly all rows; the larger, the more similar the sizes.
    seed
        The seed of all draws.
    at_least
        The fewest rows that a client may hold.

    Examples
    --------
    >>> import numpy as np
    >>> np.bincount(by_quantity(100, 4, at_least=5))
    array([24,  5, 50, 21])
    """
    concentration = _checks.real("concentration", concentration, positive=True)
    n_rows, n_clients = _sizes(n_rows, n_clients, at_least)
    generator = _generator(seed)
    clients = np.empty(n_rows, dtype=np.int64)
    clients[generator.permutation(n_rows)] = _shares(n_rows, n_clients, concentration, generator)
    return _fill_up(clients, n_clients, at_least, generator)


def train_test(n_rows: int, n_train: int, seed: int = 0) -> tuple[IntArray, IntArray]:
    """Choose rows for training at random; return the numbers of those and of the others, both in random order.

    Parameters
    ----------
    n_rows
        How many rows there are.
    n_train
        How many of them are for training; at least one is left for testing.
    seed
        The seed of the random order.

    Examples
    --------
    >>> train, test = train_test(6, 4)
    >>> len(train), len(test), sorted([*train.tolist(), *test.tolist()])
    (4, 2, [0, 1, 2, 3, 4, 5])
    """
    n_rows = _checks.integer("n_rows", n_rows, at_least=2)
    n_train = _checks.integer("n_train", n_train, at_least=1, at_most=n_rows - 1)
    order = _generator(seed).permutation(n_rows).astype(np.int64)
    return order[:n_train], order[n_train:]


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(_checks.integer("seed", seed, at_least=0))


def _codes(name: str, value: Any) -> IntArray:
    """Return the number of each entry's label, by sorted distinct label."""
    _, codes = _checks.labels(name, value)
    if codes.ndim != 1 or codes.size == 0:
        raise ArgumentError(name, f"must have one entry for each row, and at least one, got shape {codes.shape}")
    return codes


def _sizes(n_rows: Any, n_clients: Any, at_least: Any = 1) -> tuple[int, int]:
    """Check the numbers of rows and clients, and that there are rows enough."""
    n_rows = _checks.integer("n_rows", n_rows, at_least=1)
    n_clients = _checks.integer("n_clients", n_clients, at_least=1)
    at_least = _checks.integer("at_least", at_least, at_least=1)
    if n_clients * at_least > n_rows:
        each = "a row" if at_least == 1 else f"at_least={at_least} rows"
        raise ArgumentError(
            "n_clients", f"must leave {each} for every client: {n_clients} are too many for {n_rows} rows"
        )
    return n_rows, n_clients


def _shares(n_rows: int, n_clients: int, concentration: float, generator: np.random.Generator) -> Array:
    """Return the clients of a given number of rows in order, in shares drawn from a Dirichlet distribution."""
    shares = generator.dirichlet(np.full(n_clients, min(concentration, _EQUAL)))
    ends = np.rint(np.cumsum(shares) * n_rows).astype(np.int64)
    ends[-1] = n_rows
    return np.searchsorted(ends, np.arange(n_rows), side="right")


def _fill_up(clients: IntArray, n_clients: int, at_least: int, generator: np.random.Generator) -> IntArray:
    """Move rows from the largest clients to those with fewer than ``at_least``."""
    sizes = np.bincount(clients, minlength=n_clients)
    receivers = np.repeat(np.arange(n_clients), np.maximum(at_least - sizes, 0))
    if receivers.size == 0:
        return clients
    largest = [(-size, client) for client, size in enumerate(sizes.tolist())]
    heapq.heapify(largest)
    givers = np.empty(len(receivers), dtype=np.int64)
    for i in range(len(receivers)):
        size, givers[i] = largest[0]
        heapq.heapreplace(largest, (size + 1, int(givers[i])))
    for giver in np.unique(givers):
        rows = generator.permutation(np.flatnonzero(clients == giver))
        to = receivers[givers == giver]
        clients[rows[: len(to)]] = to
    return clients


class Layer(NamedTuple):
    """One colour of the bars: how many rows each client holds of a label, or of any where the name is None."""

    name: str | None
    counts: IntArray
    colour: str


def plot(clients: Any, y: Any = None, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw how many rows each client holds, by label where labels are given.

    Parameters
    ----------
    clients
        Who holds each row: numbers or names.
    y
        The label of each row. Numbers with more than ten distinct values are taken as continuous, and only sizes are
        shown; of more than ten texts, the nine most frequent have colours of their own.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> figure = plot(["A", "B", "B", "C"], y=[-1, 1, 1, -1])
    >>> figure.axes[0].get_xlabel()
    'client'
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    names, codes = _checks.labels("clients", clients)
    if codes.ndim != 1 or codes.size == 0:
        raise ValueError(f"clients must have one entry for each row, and at least one, got shape {codes.shape}")
    layers = _layers(codes, len(names), y)
    axes = new_axes(min(max(4.8, 1.6 + 0.5 * len(names)), 9.0), 3.8, hidden=["top", "right"])
    _draw(axes, layers, len(names))
    if len(names) <= NAMED:
        texts = [_short(name) for name in names]
        tilted = max(map(len, texts)) * len(texts) > 60
        axes.set_xticks(range(len(names)), texts, rotation=30 if tilted else 0, ha="right" if tilted else "center")
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("client")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
        axes.set_xlabel(f"client ({len(names):,} in all)")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(0, 1.08 * np.bincount(codes).max())
    axes.set_ylabel("rows")
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if layers[0].name is not None:
        handles, texts = axes.get_legend_handles_labels()
        # in the order of the bars, the topmost colour first, and besides them, where it hides nothing
        axes.figure.legend(handles[::-1], texts[::-1], title="label", loc="outside right upper", frameon=False)
    return save(axes.figure, path)


def _layers(codes: IntArray, n_clients: int, y: Any) -> list[Layer]:
    """Return what the bars are made of, from the bottom to the top."""
    sizes = Layer(None, np.bincount(codes, minlength=n_clients), COLOURS[0])
    if y is None:
        return [sizes]
    labels, numbers = _checks.labels("y", y)
    if numbers.shape != codes.shape:
        raise ArgumentError("y", f"must have one entry for each of the {len(codes)} rows, got shape {numbers.shape}")
    if len(labels) > COLOURED and labels.dtype.kind in "fiu":
        return [sizes]
    counts = np.bincount(numbers * n_clients + codes, minlength=len(labels) * n_clients).reshape(-1, n_clients)
    shown = np.arange(len(labels))
    if len(labels) > COLOURED:
        shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[: COLOURED - 1])
    layers = [Layer(_short(labels[i]), counts[i], colour) for i, colour in zip(shown, COLOURS, strict=False)]
    others = len(labels) - len(shown)
    if others:
        layers.append(Layer(f"{others} others", sizes.counts - counts[shown].sum(axis=0), GREY))
    return layers


def _draw(axes: Any, layers: list[Layer], n_clients: int) -> None:
    bottom = np.zeros(n_clients)
    for name, counts, colour in layers:
        if n_clients <= APART:
            width = 0.75 if n_clients <= NAMED else 0.85
            axes.bar(range(n_clients), counts, width, bottom=bottom, color=colour, label=name)
        else:
            edges = np.arange(n_clients + 1) - 0.5
            axes.stairs(bottom + counts, edges, baseline=bottom, fill=True, color=colour, label=name)
        bottom = bottom + counts
    if n_clients <= NAMED:
        small = 8 if n_clients <= 10 else 6
        for client, size in enumerate(bottom):
            place = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "fontsize": small}
            axes.annotate(f"{size:,.0f}", (client, size), **place)


def _short(name: Any) -> str:
    """Write a name or a label in few letters: whole numbers without a point."""
    if isinstance(name, float | np.floating):
        return f"{name:g}".replace("-", "−")
    text = str(name)
    return text if len(text) <= 24 else text[:23] + "…"
