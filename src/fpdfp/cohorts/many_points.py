"""Answers of clients for many problems at once: losses, gradients, sums at dual points, and scores, at many points."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Points, Question, question, reveals, rows_of
from fpdfp.compress.fixed import EXACT, count_bytes, largest_step, read_fixed, scale_rows, write_fixed
from fpdfp.errors import MessageError
from fpdfp.folds import Folds
from fpdfp.losses.base import Losses
from fpdfp.losses.classes import ClassModel, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, SingleForm
from fpdfp.losses.linear import LinearModel, ManySums, PointDuals
from fpdfp.precondition.base import full, lower
from fpdfp.problem import LocalLosses
from fpdfp.scores import by_name
from fpdfp.scores.auc import AUC
from fpdfp.scores.base import Score, outcome_of
from fpdfp.survival.response import Times

#: What is sent in place of a loss or a gap that is not finite, and what is surely one of those in a mean.
OUTSIDE, BEYOND = 1e30, 1e20
#: Bits of the entries of a Hessian, which are correlations, and their step: they are at most 1.
ENTRY = 14
UNIT = 1.0 / largest_step(ENTRY)
#: Bits of the entries of gradients where those of the point are excluded, unless a question names another number.
COARSE = 6
#: The types of what is sent.
SENT = {"numbers": "<f8", "slopes": "|u1", "scales": "<f4", "entries": "|u1", "roots": "<f4", "ridge": "<f8",
        "columns": "<f4"}  # fmt: skip
#: What is added to the exponents of units, which are sent as bytes.
ZERO = 128
#: The most points, and the most numbers of all of them, in a question.
MOST_POINTS, MOST_NUMBERS = 1 << 14, 1 << 26


def unit_sizes(units: Array) -> Array:
    """Return the units of entries, given their exponents as they are sent."""
    return np.asarray(2.0 ** (units.astype(np.float64) - ZERO))


class Evaluated(NamedTuple):
    """The answer of each client.

    Attributes
    ----------
    numbers
        At each point the loss of the rows that are used and half the deviance of the excluded rows; the weights of
        each fold. Where no rows are excluded, the deviance is replaced by what makes the loss of all half a deviance
        (0 but for partial likelihoods).
    slopes, scales
        The gradients in fixed point, first their entries in the places that were sent, and the largest of each.
    entries, roots
        The lower triangles of Hessians, relative to the roots of their diagonals, in fixed point; and these.
    ridge
        The ridge of each entry of x, which is in none of these, along with Hessians.
    """

    numbers: Array
    slopes: Array
    scales: Array
    entries: Array
    roots: Array
    ridge: Array


class Sums(NamedTuple):
    """The means over clients: losses with and without the rows excluded, gradients, weights of folds, and Hessians.

    ``sizes`` is the largest entry of a client's gradient at each point, in the units that were requested. ``weights``
    are those of folds in scores (of events for survival, of rows otherwise), ``left_out`` at each point those of the
    clients that do not count there.
    ``ridge`` has the ridge of each entry of x, empty where no Hessian was requested.
    """

    values: Array
    helds: Array
    slopes: Array
    masses: Array
    hessians: Array
    sizes: Array
    weights: Array
    left_out: Array
    ridge: Array


@question("many_points")
@dataclasses.dataclass(frozen=True)
class Evaluations(Question):
    """Each client evaluates its loss at many points, at each with all rows or without a fold.

    Attributes
    ----------
    places, numbers, scales
        The points: which of their entries are sent, as bits; these, in fixed point, and their steps. All others are 0.
    units
        Exponents e: entries of points are multiplied with 2ᵉ before they are rounded, entries of gradients divided by
        it. With the roots of the curvature as units, errors of all entries matter as much.
    bits, slope_bits
        Of each number of a point, and of a gradient in the places that are sent: up to 32, or 64 for exact ones.
    held
        The fold that is excluded at each point, −1 for none.
    curved
        The points at which the Hessian of all rows is wanted.
    folds
        How folds are drawn, None where all rows are used.
    asked
        Which entries of gradients are sent besides those in the places of points, as bits; all where it is empty.
    rest_bits
        The bits of these, if ``slope_bits`` is not less.
    """

    places: Array
    numbers: Array
    scales: Array
    units: Array
    bits: int
    slope_bits: int
    held: IntArray
    curved: IntArray
    folds: Folds | None = None
    asked: Array = dataclasses.field(default_factory=lambda: np.zeros((0, 0), dtype=np.uint8))
    rest_bits: int = COARSE

    in_parts = False
    reveals = reveals(
        points="places numbers scales units bits",
        settings="slope_bits held curved folds asked rest_bits",
        uses="evaluate_many informations masses counted targets_of folds",
    )

    @classmethod
    def of(
        cls, points: Array, places: Array, bits: tuple[int, int], held: IntArray, curved: IntArray, *,
        units: Array, folds: Folds | None, asked: Array | None = None, scales: Array | None = None, **more: Any,
    ) -> Self:  # fmt: skip
        """Return the question about points, whose entries in ``places`` are sent; the others must be 0.

        Points that were rounded before to multiples of ``scales`` are sent unchanged.
        """
        scaled = points * unit_sizes(units)
        if scales is None:
            scales = scale_rows(scaled, min(bits[0], 32))
        steps = np.broadcast_to(scales[:, None], points.shape)[places]
        numbers = write_fixed(scaled[places], steps, bits[0])
        if asked is not None:
            more["asked"] = np.packbits(asked & ~places, axis=1)
        return cls(np.packbits(places, axis=1), numbers, scales, units, *bits, held, curved, folds, **more)

    def __post_init__(self) -> None:
        count = len(self.places)
        kinds = {"places": "|u1", "numbers": "|u1", "units": "|u1", "scales": "<f4", "held": "<i8", "curved": "<i8",
                 "asked": "|u1"}  # fmt: skip
        for name, kind in kinds.items():
            if getattr(self, name).dtype.str != kind:
                raise MessageError(f"{name} must be of dtype {kind}")
        if self.places.ndim != 2 or self.scales.shape != (count,) or self.held.shape != (count,):
            raise MessageError("places, scales and held must have an entry for each point")
        if not 1 <= count <= MOST_POINTS or 8 * self.places.size > MOST_NUMBERS:
            raise MessageError(f"there must be 1 to {MOST_POINTS:,} points")
        if self.asked.shape not in ((0, 0), self.places.shape):
            raise MessageError("asked must be empty or have an entry for each of the places")
        for name in ("bits", "slope_bits", "rest_bits"):
            if not (2 <= getattr(self, name) <= 32 or getattr(self, name) == EXACT):
                raise MessageError(f"{name} must be from 2 to 32, or {EXACT}, got {getattr(self, name)}")
        there = int(np.unpackbits(self.places).sum())
        wanted = (count_bytes(self.bits, there),)
        if self.numbers.shape != wanted or not (np.isfinite(self.scales) & (self.scales >= 0)).all():
            raise MessageError("numbers and scales must belong to the points")
        folds = 0 if self.folds is None else self.folds.all
        if self.held.min() < -1 or self.held.max() >= folds:
            raise MessageError(f"held must be folds from 0 to {folds - 1}, or −1")
        if self.curved.ndim != 1 or (self.curved.size and not 0 <= self.curved.min() <= self.curved.max() < count):
            raise MessageError("curved must be numbers of points")

    def mask(self, d: int) -> Array:
        """Return which entries of points of d entries are sent."""
        return _unpack(self.places, d)

    def points(self, d: int) -> Array:
        """Return the points, of d entries each."""
        there = self.mask(d)
        points = np.zeros(there.shape)
        steps = np.broadcast_to(self.scales[:, None], there.shape)[there]
        points[there] = read_fixed(self.numbers, steps, self.bits, len(steps))
        points /= self.unit_sizes(d)
        if not np.isfinite(points).all():
            raise MessageError("points must be finite")
        return points

    def unit_sizes(self, d: int) -> Array:
        """Return the units of d entries."""
        if self.units.shape != (d,):
            raise MessageError(f"units must have {d} entries")
        return unit_sizes(self.units)

    def _groups(self, there: Array) -> list[tuple[int, Array]]:
        """Return with how many bits which entries of gradients are sent."""
        rest = _unpack(self.asked, there.shape[1]) & ~there if self.asked.size else ~there
        return [(self.slope_bits, there), (min(self.slope_bits, self.rest_bits), rest)]

    def sent_entries(self, d: int) -> Array:
        """Return which entries of gradients of d entries are sent, a row for each point."""
        (_, there), (_, rest) = self._groups(self.mask(d))
        return np.asarray(there | rest)

    @property
    def n_masses(self) -> int:
        """The number of sums of weights: one for each fold, or one for all rows."""
        return 1 if self.folds is None else self.folds.all

    @property
    def tells_pairs(self) -> bool:
        """Whether Hessians are wanted."""
        return bool(len(self.curved))

    def points_at(self, shape: Shape) -> Points:
        """Return all points, with the folds that are excluded."""
        return Points(self.points(math.prod(shape)).reshape(-1, *shape), self.held, self.folds)

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        d = math.prod(shape)
        return len(self.held) * d + len(self.curved) * d * d

    def answer(self, local: LocalLosses) -> Evaluated:
        """Return what clients send."""
        losses, clients = local.losses, local.clients
        if not isinstance(losses, LinearModel):
            raise MessageError("losses must have a linear model")
        d = math.prod(losses.shape)
        points, drawn = self.points(d), self.draw_folds(losses)
        with np.errstate(all="ignore"):
            found = self._evaluate(losses, points, drawn, clients)
            matrices = [self.curvature(local, points[p]) for p in self.curved]
        bad = ~(np.isfinite(found.values) & np.isfinite(found.helds) & np.isfinite(found.slopes).all(axis=2))
        values, helds = (np.where(bad, OUTSIDE, one) for one in (found.values, found.helds))
        slopes, scales = self.write_slopes(local.weigh(np.where(bad[..., None], 0.0, found.slopes)))
        masses = [local.weigh(self._masses(one, losses, drawn, clients)) for one in (losses.masses, losses.counted)]
        numbers = np.concatenate([local.weigh(values), local.weigh(helds), *masses], axis=1)
        count = len(clients)
        triangles = np.zeros((count, 0, d * (d + 1) // 2))
        roots = np.zeros((count, 0, d))
        if matrices:
            whole = local.weigh(np.stack(matrices, axis=1))
            whole = np.where(np.isfinite(whole).all(axis=(2, 3), keepdims=True), whole, 0.0)
            roots = np.sqrt(np.maximum(np.diagonal(whole, axis1=2, axis2=3), 0.0)).astype(np.float32).astype(np.float64)
            safe = np.where(roots > 0, roots, 1.0)
            scaled = whole / (safe[..., :, None] * safe[..., None, :])
            triangles = lower(scaled)
        entries = write_fixed(_flat(triangles), np.array(UNIT), ENTRY)
        ridge = local.weigh(
            np.tile(np.asarray(losses.ridge_of_x, dtype=np.float64).ravel()[: d if matrices else 0], (count, 1))
        )
        return Evaluated(numbers, slopes, scales, entries, _flat(roots.astype(np.float32)), ridge)

    def write_slopes(self, slopes: Array) -> tuple[Array, Array]:
        """Return gradients of clients, with axes for these and for points, in fixed point, and the largest of each."""
        d = slopes.shape[2]
        scaled = slopes / self.unit_sizes(d)
        scales = np.abs(scaled).max(axis=-1, initial=0.0).astype(np.float32) * np.float32(1 + 2**-20)
        written = [
            write_fixed(scaled[:, where], _steps(scales, bits, where), bits)
            for bits, where in self._groups(self.mask(d))
        ]  # fmt: skip
        return np.concatenate(written, axis=1), scales

    def read_slopes(self, written: Array, scales: Array, d: int) -> Array:
        """Return the gradients that were written, NaN where they were not requested."""
        slopes = np.full((*scales.shape, d), np.nan)
        groups, lengths = self._groups(self.mask(d)), self._lengths(d)
        for (bits, where), part in zip(groups, np.split(written, lengths[:1], axis=1), strict=True):
            slopes[:, where] = read_fixed(part, _steps(scales, bits, where), bits, int(where.sum()))
        slopes *= self.unit_sizes(d)
        return slopes

    def bound_errors(self, scales: Array, d: int) -> Array:
        """Return by how much rounding may have changed each entry of the gradients of each client, at most."""
        errors = np.zeros((*scales.shape, d))
        for bits, where in self._groups(self.mask(d)):
            errors[:, where] = 0.0 if bits == EXACT else 0.5 * _steps(scales, bits, where)
        errors *= self.unit_sizes(d)
        return errors

    def _lengths(self, d: int) -> list[int]:
        """Return how many bytes gradients take in the places of points, and elsewhere."""
        return [count_bytes(bits, int(where.sum())) for bits, where in self._groups(self.mask(d))]

    def draw_folds(self, losses: LinearModel) -> list[IntArray]:
        """Return for each division of rows the fold of each row of all clients, as rows are kept."""
        sizes = losses.sizes
        if self.folds is None:
            return [np.full(int(sizes.sum()), -2, dtype=np.int64)]
        if self.folds.given:
            labels = losses.folds
            if labels is None or labels.shape != (int(sizes.sum()),) or labels.max() >= self.folds.count:
                raise MessageError(f"rows must have folds from 0 to {self.folds.count - 1} of their own")
            return [labels]
        targets = [losses.targets_of(client) for client in range(len(sizes))]
        return [
            np.concatenate([self.folds.draw(one, repeat) for one in targets]) for repeat in range(self.folds.repeats)
        ]

    def _evaluate(self, losses: LinearModel, points: Array, drawn: list[IntArray], clients: IntArray) -> ManySums:
        """Return sums at all points, each with the rows of its division; coefficients of classes are in one row."""
        given = points.reshape(-1, *losses.shape)
        if len(drawn) == 1 or self.folds is None:
            found = losses.evaluate_many(given, self.held, drawn[0], clients)
            return found._replace(slopes=found.slopes.reshape(len(clients), *points.shape))
        division = np.maximum(self.held, 0) // self.folds.count
        shape = (len(clients), len(points))
        out = ManySums(np.empty(shape), np.empty(shape), np.empty((*shape, points.shape[1])))
        for number in np.unique(division):
            some = np.flatnonzero(division == number)
            found = losses.evaluate_many(given[some], self.held[some], drawn[number], clients)
            for whole, part in zip(out, found, strict=True):
                whole[:, some] = part.reshape(len(clients), len(some), *whole.shape[2:])
        return out

    def _masses(self, weights: Array, losses: LinearModel, drawn: list[IntArray], clients: IntArray) -> Array:
        """Return the weight of the rows of each fold, or of all, divided by the number of rows."""
        ends = np.concatenate([[0], np.cumsum(losses.sizes)])
        own = [slice(int(ends[client]), int(ends[client + 1])) for client in clients]
        found = sum(
            np.array([np.bincount(np.maximum(labels[one], 0), weights[one], minlength=self.n_masses) for one in own])
            for labels in drawn
        )
        return np.asarray(found / losses.sizes[clients, None])

    def curvature(self, local: LocalLosses, x: Array) -> Array:
        """Return the Hessian of each client at a point, or what stands in for it; without the ridge."""
        losses: Losses = local.losses
        found = losses.informations(x.astype(losses.dtype).reshape(losses.shape), local.clients)
        if found is None:
            raise MessageError("losses must have known Hessians")
        return np.asarray((found + found.swapaxes(1, 2)) / 2.0 - np.diag(losses.ridge_of_x.ravel()))  # type: ignore[attr-defined]

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Any:
        """Return the means over clients of what they sent (:class:`Sums`); refuse what is not of the right form.

        A client that does not count at a point is among those held there.
        """
        d, clients, count, curved = len(self.units), len(sent.numbers), len(self.held), len(self.curved)
        size = d * (d + 1) // 2
        wanted = {
            "numbers": 2 * (count + self.n_masses), "slopes": sum(self._lengths(d)), "scales": count,
            "entries": count_bytes(ENTRY, curved * size), "roots": curved * d,
            "ridge": d if curved else 0,
        }  # fmt: skip
        check_sent(sent, wanted)
        if not all(np.isfinite(one).all() for one in (sent.numbers, sent.scales, sent.roots, sent.ridge)):
            raise MessageError("numbers must be finite")
        values, helds, masses, weights = np.split(
            sent.numbers, np.cumsum([count, count, self.n_masses]).tolist(), axis=1
        )
        slopes = self.read_slopes(sent.slopes, sent.scales, d)
        left_out = np.zeros(count)
        if times is not None:
            helds, values = np.where(times == 0, values + helds, 0.0), times * values
            slopes = times[..., None] * slopes
            left_out = np.where(times == 0, weights.sum(axis=1)[:, None], 0.0).mean(axis=0)
        roots = sent.roots.astype(np.float64).reshape(clients, curved, d)
        entries = read_fixed(sent.entries, np.array(UNIT), ENTRY, curved * size).reshape(clients, curved, size)
        diagonals = (roots**2).mean(axis=0)
        hessians = np.zeros((curved, d, d))
        for place in range(curved):
            for mine, own in zip(entries[:, place], roots[:, place], strict=True):
                hessians[place] += full(mine) * np.outer(own, own) / clients
            hessians[place][np.diag_indices(d)] = diagonals[place]
        return Sums(
            values.mean(axis=0), helds.mean(axis=0), slopes.mean(axis=0), masses.mean(axis=0), hessians,
            sent.scales.max(axis=0), weights.mean(axis=0), left_out, sent.ridge.mean(axis=0),
        )  # fmt: skip


def check_sent(sent: Any, wanted: dict[str, int]) -> None:
    """Refuse arrays that do not have a given number of numbers of each client, or are of another type."""
    for name, length in wanted.items():
        array = getattr(sent, name, None)
        if array is None or array.shape != (len(sent[0]), length):
            raise MessageError(f"{name} must be {length} numbers of each client")
        if array.dtype.str != SENT[name]:
            raise MessageError(f"{name} must be of dtype {SENT[name]}")


def _unpack(packed: Array, d: int) -> Array:
    """Return which of d entries of each point are marked by bits."""
    if packed.shape[1] != -(-d // 8):
        raise MessageError(f"points must have {d} entries")
    there = np.unpackbits(packed, axis=1).astype(bool)
    if there[:, d:].any():
        raise MessageError(f"points must have {d} entries")
    return there[:, :d]


def _steps(scales: Array, bits: int, where: Array) -> Array:
    """Return the step of each of some entries of gradients, given the largest entry of each gradient."""
    steps = scales / largest_step(min(bits, 32))
    return np.broadcast_to(steps[..., None], (*scales.shape, where.shape[1]))[:, where]


def _flat(arrays: Array) -> Array:
    """Return one row for each client."""
    flat: Array = arrays.reshape(len(arrays), int(np.prod(arrays.shape[1:])))
    return flat


#: The bits of entries of directions, and the most directions that all points share.
MOVE_BITS, MOST_DIRECTIONS = 12, 64


class SentDuals(NamedTuple):
    """The answer of each client.

    Attributes
    ----------
    numbers
        Of each point, one after the other; which ones depends on what is wanted.
    slopes, scales
        The gradients in fixed point, as in :class:`fpdfp.cohorts.many_points.Evaluated`; empty where none are wanted.
    columns
        Σ c a² of each feature, over all rows, rounded up; along with gradients.
    """

    numbers: Array
    slopes: Array
    scales: Array
    columns: Array


class Means(NamedTuple):
    """The means over clients: numbers of each point, gradients, by how much these may be wrong, and columns."""

    numbers: Array
    slopes: Array
    errors: Array
    columns: Array


@question("dual_sums")
@dataclasses.dataclass(frozen=True)
class DualSums(Evaluations):
    """All clients add up what bounds of gaps need at dual points near many points.

    The dual point of a row is θ = s (φ'(z) − φ''(z) Ad), see :class:`fpdfp.losses.base.DualPoints`, with a direction
    d and a scale s of each point, and with the rows of a fold excluded.

    Attributes
    ----------
    wants
        ``"curvature"``: products of the shared directions with the gradient Aᵀcθ, s = 1, and with the Hessian.
        ``"gradient"``: the gradient rounded, its products with the shared directions exactly, and what rounding can do.
        ``"gap"``: Σ c (φ + φ* − zθ).
    moves, move_scales
        The directions d in the places of points, in fixed point, and their steps; 0 elsewhere.
    shared, steps
        Directions that all points share, one a row; how far to go along each of them from each point, in addition.
    shrinks
        The scale s of each point, where gaps are wanted.
    """

    wants: Literal["curvature", "gradient", "gap"] = "gap"
    moves: Array = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    move_scales: Array = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    shared: Array = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    steps: Array = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    shrinks: Array = dataclasses.field(default_factory=lambda: np.zeros(0))

    reveals = reveals(
        points="places numbers scales units bits",
        settings="slope_bits held curved folds asked rest_bits wants moves move_scales shared steps shrinks",
        uses="duals_at_many targets_of folds",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        count, there = len(self.held), int(np.unpackbits(self.places).sum())
        if self.wants not in ("curvature", "gradient", "gap") or self.curved.size:
            raise MessageError("wants must be curvature, gradient or gap, and no Hessian")
        kinds = {"moves": "|u1", "move_scales": "<f4", "shared": "<f8", "steps": "<f8", "shrinks": "<f8"}
        for name, kind in kinds.items():
            if getattr(self, name).dtype.str != kind or not np.isfinite(getattr(self, name)).all():
                raise MessageError(f"{name} must be finite and of dtype {kind}")
        if self.moves.shape != (count_bytes(MOVE_BITS, there),) or self.move_scales.shape != (count,):
            raise MessageError("moves and move_scales must belong to the points")
        if self.shared.ndim != 2 or len(self.shared) > MOST_DIRECTIONS or (self.move_scales < 0).any():
            raise MessageError(f"shared must be at most {MOST_DIRECTIONS} directions, one a row")
        if self.steps.shape != (count, len(self.shared)):
            raise MessageError("steps must be a number for each point and each of the shared directions")
        if (
            self.shrinks.shape != (count if self.wants == "gap" else 0,)
            or ((self.shrinks < 0) | (self.shrinks > 1)).any()
        ):
            raise MessageError("shrinks must be numbers from 0 to 1 for each point, where gaps are wanted")

    @classmethod
    def along(cls, about: Evaluations, directions: Array, **more: object) -> Self:
        """Return the question about the points of another, and directions that are 0 but in their places."""
        there = about.mask(directions.shape[1])
        scaled = directions * about.unit_sizes(directions.shape[1])
        scales = scale_rows(scaled, MOVE_BITS)
        moves = write_fixed(scaled[there], np.broadcast_to(scales[:, None], there.shape)[there], MOVE_BITS)
        return cls(**vars(about), moves=moves, move_scales=scales, **more)  # type: ignore[arg-type]

    def directions(self, d: int) -> Array:
        """Return the direction of each point, of d entries."""
        there = self.mask(d)
        found = np.zeros(there.shape)
        steps = np.broadcast_to(self.move_scales[:, None], there.shape)[there]
        found[there] = read_fixed(self.moves, steps, MOVE_BITS, len(steps))
        found /= self.unit_sizes(d)
        if len(self.shared):
            if self.shared.shape[1] != d:
                raise MessageError(f"shared directions must have {d} entries")
            found += self.steps @ self.shared
        return found

    @property
    def n_numbers(self) -> int:
        """The number of numbers that are sent of each point."""
        k = len(self.shared)
        return {"curvature": k + k * k, "gradient": 2 + k, "gap": 1}[self.wants]

    @property
    def tells_pairs(self) -> bool:
        """Gradients at dual points are products of Hessians with directions."""
        return True

    def answer(self, local: LocalLosses) -> SentDuals:  # type: ignore[override]
        """Return what clients send."""
        losses, clients = local.losses, local.clients
        if not isinstance(losses, LinearModel) or len(losses.shape) != 1 or not losses.has_duals:
            raise MessageError("losses must have a linear model with known conjugates")
        (d,), count, sloped = losses.shape, len(clients), self.wants == "gradient"
        points, directions, drawn = self.points(d), self.directions(d), self.draw_folds(losses)
        ways = np.maximum(self.held, 0) // (1 if self.folds is None else self.folds.count)
        numbers = np.empty((count, len(points), self.n_numbers))
        slopes = np.zeros((count, len(points), d if sloped else 0))
        columns = np.zeros((count, d if sloped else 0))
        for way in np.unique(ways):
            some = np.flatnonzero(ways == way)
            duals = losses.duals_at_many(points[some], self.held[some], drawn[way], clients)
            for i, client in enumerate(map(int, clients)):
                with np.errstate(all="ignore"):
                    for place, p in enumerate(some):
                        at = duals.of(client, place, directions[p])
                        numbers[i, p] = self._sum(at, int(p))
                        if sloped:
                            slopes[i, p] = at.gradient()
                if sloped:
                    columns[i] = duals.columns_of(client)
        flat = local.weigh(np.where(np.isfinite(numbers), numbers, OUTSIDE)).reshape(count, -1)
        if not sloped:
            empty = np.zeros((count, 0), dtype=np.float32)
            return SentDuals(flat, empty.astype(np.uint8), empty, empty)
        above = np.nextafter(local.weigh(columns).astype(np.float32), np.float32(np.inf))
        return SentDuals(flat, *self.write_slopes(local.weigh(np.nan_to_num(slopes))), above)

    def _sum(self, at: PointDuals, p: int) -> Array:
        """Return the numbers of a point."""
        if self.wants == "gap":
            return np.array([at.gap(float(self.shrinks[p]))])
        products = [self.shared @ at.gradient()] if len(self.shared) else []
        if self.wants == "curvature":
            return np.concatenate([*products, *(self.shared @ at.curvature(one) for one in self.shared)])
        return np.concatenate([[at.size(), at.rounding()], *products])

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Means:
        """Return means over clients."""
        d, count, sloped = len(self.units), len(self.held), self.wants == "gradient"
        wanted = {"slopes": sum(self._lengths(d)), "scales": count, "columns": d}
        check_sent(sent, {"numbers": count * self.n_numbers, **(wanted if sloped else dict.fromkeys(wanted, 0))})
        if not all(np.isfinite(one).all() for one in (sent.numbers, sent.scales, sent.columns)):
            raise MessageError("numbers must be finite")
        numbers = sent.numbers.reshape(len(sent.numbers), count, self.n_numbers)
        factors = np.ones((len(numbers), count, 1)) if times is None else times[..., None]
        means, nothing = (factors * numbers).mean(axis=0), np.zeros((count, 0))
        if not sloped:
            return Means(means, nothing, nothing, np.zeros(0))
        slopes, errors = self.read_slopes(sent.slopes, sent.scales, d), self.bound_errors(sent.scales, d)
        most = 1.0 if times is None else float(times.max())
        columns = most * sent.columns.mean(axis=0, dtype=np.float64)
        return Means(means, (factors * slopes).mean(axis=0), (factors * errors).mean(axis=0), columns)


#: Cells of the linear predictor for areas under ROC curves, in standard deviations from its mean.
EDGES = np.linspace(-5.0, 5.0, 1001)
#: The score that shows where the linear predictor is: the weight of rows, and the sums of it and of its square.
MOMENTS = "moments"
#: From here on sums of a mean are those of its standard error, which a cross-validation does not use.
FOR_ERRORS = 4


class Scored(NamedTuple):
    """The answer of each client: for each point the sums of the score; counts of cells in single precision."""

    sums: Array


@question("held_scores")
@dataclasses.dataclass(frozen=True)
class HeldScores(Question):
    """All clients score their rows that are excluded at each of many points.

    Attributes
    ----------
    about
        The points, and which rows are excluded; all rows where none are.
    score
        The name of the score, or ``"moments"`` of the linear predictor.
    centres, scales
        Of each point: what is subtracted from the linear predictor before it is put in cells, and what it is divided
        by (for classes, whose cells are of log-odds, not used); none for other scores.
    """

    about: Evaluations
    score: str
    centres: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    scales: Array = dataclasses.field(default_factory=lambda: np.zeros(0))

    in_parts = False
    reveals = reveals(points="about", settings="score centres scales", uses="rows")

    def __post_init__(self) -> None:
        cells = self.score == AUC.name
        for one in (self.centres, self.scales):
            if one.shape != ((len(self.about.held),) if cells else (0,)) or one.dtype != np.float64:
                raise MessageError("centres and scales must be numbers for each point in float64, for areas alone")
        if not np.isfinite(self.centres).all() or not (np.isfinite(self.scales) & (self.scales > 0)).all():
            raise MessageError("centres must be finite, and scales positive")

    def points_at(self, shape: Shape) -> Points:
        """Return the points, with the folds that are excluded."""
        return self.about.points_at(shape)

    def answer(self, local: LocalLosses) -> Scored:
        """Return what clients send."""
        losses = rows_of(local.losses)
        if not isinstance(losses, LinearModel):
            raise MessageError("losses must have a linear model")
        all_sums = losses.admit_score(self.score, self.about)
        points, drawn = self.about.points(math.prod(losses.shape)), self.about.draw_folds(losses)
        score = None if self.score == MOMENTS else make_score(self.score, family_of(losses))
        ends = np.concatenate([[0], np.cumsum(losses.sizes)])
        rows = []
        for client in local.clients:
            own, found = slice(int(ends[client]), int(ends[client + 1])), []
            for place, (x, fold) in enumerate(zip(points, self.about.held, strict=True)):
                count = 1 if self.about.folds is None else self.about.folds.count
                labels = drawn[max(int(fold), 0) // count][own]
                left_out = np.ones(len(labels), dtype=bool) if fold < 0 else labels == fold
                found.append(self._score(score, losses, x.reshape(losses.shape), own, left_out, place))
            rows.append(np.array(found))
        sums = np.array(rows, dtype=np.float32 if isinstance(score, AUC) else np.float64)
        if not all_sums:
            sums[..., FOR_ERRORS:] = 0.0
        return Scored(sums)

    def _score(
        self, score: Score | None, losses: LinearModel, x: Array, own: slice, left_out: Array, place: int
    ) -> Array:
        """Return the sums over some rows of a client."""
        if isinstance(losses, Cox):
            assert score is not None
            return _score_times(score, losses, x, np.flatnonzero(left_out) + own.start)
        if isinstance(losses, Softmax | ClassModel):
            if score is None:
                raise MessageError("moments belong to one linear predictor")
            forms, classes = losses.class_forms(x, own)[left_out], losses._rows.y[own][left_out]
            return score.sums(forms, classes, losses.masses[own][left_out], "multinomial")
        assert isinstance(losses, SingleForm | GLM)
        glm = losses._as_glm if isinstance(losses, SingleForm) else losses
        z, y, weights = glm.forms(x, own), glm._rows.y[own].astype(np.float64), glm.weights_of_rows[own]
        z, y, weights = z[left_out], y[left_out], weights[left_out]
        if score is None:
            return np.array([weights.sum(), weights @ z, weights @ z**2])
        if len(self.centres):
            z = (z - self.centres[place]) / self.scales[place]
        return score.sums(z, y, weights, glm.distribution)

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Scored:
        """Return the sums over clients, a row for each point; with ``times`` of those that do not count there."""
        sums = np.asarray(sent.sums, dtype=np.float64)
        if sums.ndim != 3 or sums.shape[1] != len(self.about.held) or not np.isfinite(sums).all():
            raise MessageError("sums must be finite numbers for each point")
        if times is not None:
            sums = np.where((times == 0)[..., None], sums, 0.0)
        return Scored(np.asarray(sums.sum(axis=0)))


def make_score(name: str, family: Any) -> Score:
    """Return a score with cells that are few enough to be sent for many points; scores of classes are of log-odds."""
    found = by_name(name, family)
    return AUC(EDGES) if isinstance(found, AUC) and outcome_of(family) != "classes" else found


def family_of(losses: LinearModel) -> Any:
    """Return the family of outcomes, as scores name it."""
    if isinstance(losses, Cox):
        return "cox"
    if isinstance(losses, SingleForm):
        return losses.outcome_family
    if isinstance(losses, GLM):
        return losses.distribution
    if isinstance(losses, Softmax | ClassModel):
        return "multinomial"
    raise MessageError(f"losses of the family {losses.family} have no scores but the deviance")


def _score_times(score: Score, losses: Cox, x: Array, some: Array) -> Array:
    """Return the sums over some rows with times.

    Times are those numbers that events have: a censored row leaves between two of them.
    """
    table = losses._risk.table
    event = table.event[some] >= 0
    time = np.where(event, table.event[some], table.last[some] - 0.5)
    risk = np.asarray(losses._rows.X[some] @ x).ravel() + table.offset[some]
    strata = np.searchsorted(table.rows, some, side="right")
    times = Times.of(time + 1.0, event, table.first[some] + 0.25)
    return score.sums(risk, (times, strata), table.weights[some], "cox")


def locate(moments: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the linear predictor, 0 where it is constant, from its sums."""
    weight = np.maximum(moments[:, 0], 1e-300)
    mean = moments[:, 1] / weight
    square = moments[:, 2] / weight
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return mean, np.where(deviation > 1e-6 * np.sqrt(square), deviation, 0.0)
