"""What clients send for bounds of the gaps of many problems at once: sums over rows at dual points."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import question, reveals
from fpdfp.compress.fixed import count_bytes, read_fixed, scale_rows, write_fixed
from fpdfp.engines.evaluations import Evaluations, check_sent
from fpdfp.errors import MessageError
from fpdfp.losses.linear import LinearModel, PointDuals
from fpdfp.problem import LocalLosses

#: What is sent in place of a gap that is not finite, and what is surely one of those in a mean.
INFINITE, BEYOND = 1e30, 1e20
#: The bits of entries of directions, and the most directions that all points share.
MOVE_BITS, MOST_DIRECTIONS = 12, 64


class SentDuals(NamedTuple):
    """What each client sends.

    Attributes
    ----------
    numbers
        Of each point, one after the other; which ones depends on what is wanted.
    slopes, scales
        The gradients in fixed point, as in :class:`fpdfp.engines.evaluations.Evaluated`; empty where none are wanted.
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
    """Everyone adds up what bounds of gaps need at dual points near many points.

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
            raise MessageError("moves and move_scales must be those of the points")
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
            raise MessageError("losses must be those of a linear model whose conjugates are known")
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
        flat = local.weigh(np.where(np.isfinite(numbers), numbers, INFINITE)).reshape(count, -1)
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
