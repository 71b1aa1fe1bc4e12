"""The entry of the inner solver, which chooses an algorithm by the structure of q and g∘B."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fpdfp._typing import Array, Shape
from fpdfp.linops import Compose, Diagonal, Matrix
from fpdfp.linops.base import as_matrix
from fpdfp.penalties.base import Penalty, Zero
from fpdfp.penalties.separable import ElasticNet
from fpdfp.quadratic.accelerated import find_prox, take_steps
from fpdfp.quadratic.banded import Banded
from fpdfp.quadratic.blocks import blocks_of, descend_blocks
from fpdfp.quadratic.dual import DualSteps
from fpdfp.quadratic.newton import Multipliers, has_newton_systems, newton_prox, newton_quadratic
from fpdfp.quadratic.statement import Distance, InnerSolve, Products, Quadratic, Solution, Work

if TYPE_CHECKING:
    from fpdfp.problem import Model

#: Dual steps before Newton steps, and multiplications that a Newton step may cost.
FIRST, CHEAP = 20, 1 << 25
#: Eigenvalues below this, in coordinates with a diagonal of ones, are taken for 0: q is flat there.
FLAT = 1e-13
#: The most accelerated steps for a quadratic, and the part of the accuracy up to which they minimise it.
MOST, WITHIN = 400, 0.1
#: From this ratio of the lengths of the rows of B on they are brought to units in which they are alike.
APART = 100.0
#: So that nothing is divided by 0.
TINY = 1e-300


def needs_inner(model: Model) -> bool:
    """Whether the prox of g∘B lacks a closed form for this model."""
    linop, penalty = model.linop, model.penalty
    if linop.is_identity or isinstance(penalty, Zero):
        return False
    if not isinstance(linop, Diagonal) or not (linop.factors != 0).all():
        return True
    return not (penalty.separable or has_units(penalty, linop.factors))


def has_units(penalty: Penalty, factors: Array) -> bool:
    """Whether g(su) for factors s is a penalty of u of the same kind."""
    return bool((factors > 0).all()) and penalty.rescale(factors) is not None


def closed_prox(model: Model, y: Array, t: float) -> tuple[Array, Array]:
    """Return u = prox_{t g∘B}(y) for B the identity, or diagonal and g separable, and v with u = y − tBᵀv."""
    penalty, linop = model.penalty, model.linop
    if not isinstance(linop, Diagonal):
        return penalty.prox(y, t), penalty.conjugate_prox(y / t, 1.0 / t)
    # With w = Bu each entry has a step of its own.
    scale = linop.beside(y)
    if not penalty.separable:
        alike = penalty.rescale(linop.factors)
        assert alike is not None
        return alike.prox(y, t), (alike.conjugate_prox(y / t, 1.0 / t) / scale).astype(y.dtype, copy=False)
    u, v = penalty.prox(scale * y, t * scale**2) / scale, penalty.conjugate_prox(y / (t * scale), 1.0 / (t * scale**2))
    return u.astype(y.dtype, copy=False), v.astype(y.dtype, copy=False)


def dense(model: Model, cost: int = CHEAP) -> Array | None:
    """Return B as a matrix if Newton steps with it cost no more; else None, also on the GPU and for closed forms."""
    linop = model.linop
    if model.device != "cpu" or not needs_inner(model) or linop.size_out * linop.size_in**2 > cost:
        return None
    return as_matrix(linop, np.dtype(np.float64)) if has_derivative(model.penalty, model.dual_shape) else None


def banded(model: Model) -> Banded | None:
    """Return how Newton directions are found that have a narrow band; None where they have none."""
    known = needs_inner(model) and has_derivative(model.penalty, model.dual_shape)
    return Banded.of(model) if known else None


def even_rows(model: Model) -> tuple[Model, Array | float]:
    """Return g and B with the rows of B in units in which they are alike, and these units; else the model, and 1.

    Units are powers of two, so that g(Bx) is the same to the last bit, and v in them belongs to B times the units.
    Where rows differ by far, no σ suits them all: neither dual steps nor Newton steps find the prox.
    """
    matrix = dense(model)
    if matrix is None:
        return model, 1.0
    sizes = np.sqrt(np.square(matrix).sum(axis=0))
    there = sizes > 0
    if not there.any() or sizes.max() <= APART * sizes[there].min():
        return model, 1.0
    units = 2.0 ** np.round(np.log2(np.where(there, sizes, 1.0)))
    alike = model.penalty.rescale(units)
    if alike is None:
        return model, 1.0
    rows = (matrix / units).reshape(len(matrix), -1)
    return model._replace(penalty=alike, linop=Matrix(rows.T)), units


def has_derivative(penalty: Penalty, shape: Shape) -> bool:
    """Whether the penalty knows the derivative of its prox; one of the user's own need not."""
    try:
        penalty.conjugate_prox_derivative(np.zeros(shape), 1.0)
    except NotImplementedError:
        return False
    return True


def minimise(
    model: Model,
    q: Distance | Quadratic,
    v: Array,
    inner: InnerSolve | None = None,
    *,
    reach: tuple[float, float] = (0.0, 1.0),
    origin: Array | None = None,
    matrix: Array | Banded | None = None,
) -> Solution:
    """Return where q + g∘B is about least, from the dual v.

    For a :class:`Distance` the closed form is used where ``inner`` is None. Otherwise u is within
    tol (a‖u‖ + b‖y − u‖) of the prox, (a, b) = ``reach``. With ``origin`` it is within tol (a‖u‖ + b‖origin − u‖),
    after at least one step. The algorithm is the one in :class:`DualSteps`, over a leading client axis. For a single y,
    with B as a ``matrix`` (see :func:`dense`), Newton steps follow where a few dual steps do not suffice: where B is
    ill-conditioned, dual steps would take thousands. They also follow where their systems have a narrow band
    (:class:`Banded`), after all dual steps that are allowed.

    For a :class:`Quadratic` norms of blocks are solved exactly. For other g∘B, coordinates in which H is the identity
    make a :class:`Distance` of it. Along directions in which H is flat, u stays where the centre is.
    """
    if isinstance(q, Quadratic):
        return _minimise_quadratic(model, q, v, inner or InnerSolve())
    if q.t == 0 or isinstance(model.penalty, Zero):
        return Solution(q.y, v, Work())
    if inner is None:
        return Solution(closed_prox(model, q.y, q.t)[0], v, Work())
    steps = DualSteps(model, q, v, inner.tol, reach, origin)
    found = steps.run(min(inner.max_steps, FIRST) if isinstance(matrix, np.ndarray) else inner.max_steps)
    return found if matrix is None or not found.work.unsolved else newton_prox(steps, found.work.steps, matrix)


def _minimise_quadratic(model: Model, q: Quadratic, v: Array, inner: InnerSolve) -> Solution:
    penalty, x = model.penalty, q.centre
    if model.linop.is_identity and isinstance(penalty, ElasticNet) and penalty.l2.any():
        # The ridge of g belongs to q: it may bend what is flat in H.
        ridge, rest = np.broadcast_to(penalty.l2, x.shape), penalty.without_ridge()
        before = np.zeros_like(v) if isinstance(rest, Zero) else v - ridge * x
        bent = Quadratic(q.matrix + np.diag(ridge), x, q.slope + ridge * x)
        found = _minimise_quadratic(model._replace(penalty=rest), bent, before, inner)
        return found._replace(v=found.v + ridge * found.u)
    blocks = blocks_of(penalty, len(x)) if model.linop.is_identity else None
    if blocks is not None and not isinstance(penalty, Zero):
        return descend_blocks(q, blocks)
    return _whiten(model, q, v, inner)


def _whiten(model: Model, q: Quadratic, v: Array, inner: InnerSolve) -> Solution:
    """Minimise in coordinates u = c + Rw with H = I, in which q is ½‖w + Rᵀs‖²."""
    scale = 1.0 / np.sqrt(np.where(q.diagonal > 0, q.diagonal, 1.0))
    values, vectors = np.linalg.eigh(q.matrix * np.outer(scale, scale))
    curved = values > FLAT * max(float(values[-1]), 1.0)
    R = scale[:, None] * vectors[:, curved] / np.sqrt(values[curved])
    y = -(R.T @ q.slope)
    if isinstance(model.penalty, Zero) or not curved.any():
        return Solution(q.centre + R @ y, v, Work())
    if curved.all():
        centre = np.linalg.pinv(R) @ q.centre
    else:
        # What is flat is fixed: g sees it as a constant, so that steps are taken in all directions, some very steep.
        values = np.where(curved, values, max(float(values[-1]), 1.0))
        R = scale[:, None] * vectors / np.sqrt(values)
        y, centre = -(R.T @ q.slope), np.linalg.solve(R, q.centre)
    space = model._replace(linop=Compose(model.linop, Matrix(R)), shape=(R.shape[1],), dtype=np.dtype(np.float64))
    space, units = even_rows(space)
    found = minimise(
        space, Distance((centre + y)[None], 1.0), (units * v)[None], inner if needs_inner(space) else None,
        origin=centre[None], matrix=dense(space),
    )  # fmt: skip
    u, v = R @ found.u[0], found.v[0] / units
    if model.linop.is_identity:
        # v is a subgradient at u up to rounding: a prox step along it gives zeros and limits exactly.
        t = 1.0 / max(float(q.diagonal.max()), 1e-300)
        u, v = model.penalty.prox(u + t * v, t), model.penalty.conjugate_prox(u / t + v, 1.0 / t)
    return Solution(u, v, found.work)


class Successive:
    """Minimises q + g∘B for one quadratic after another, each from the dual of the last.

    An l1 norm of a sparse map is minimised by accelerated steps. Where these are too many, and for other g∘B, Newton
    steps follow, from then on for every q.

    Parameters
    ----------
    model
        g and B.
    ridge
        A part of the diagonal of every H, with which what is left to gain is bounded.
    exact
        The gradient is at most a given number of times that at the centre.
    share
        Accelerated steps minimise q up to this part of its decrease.
    """

    def __init__(self, model: Model, ridge: Array, exact: float, share: float) -> None:
        self.model, self.ridge, self.exact, self.share = model, ridge, exact, share
        self.prox = find_prox(model.linop, model.penalty)
        self.v = np.zeros(model.dual_shape)
        self.steps = 0
        self._multipliers: Multipliers | None = None

    def minimise(self, q: Quadratic, accuracy: float) -> Array:
        """Return where q + g∘B is least, with what is left to gain about a part of the accuracy."""
        u = q.centre
        if self.prox is not None:
            found = self.accelerate(q, WITHIN * accuracy, min(MOST, len(u)))
            # Where there is no other way, an inexact step is better than none.
            if not found.work.unsolved or not has_newton_systems(self.model.linop):
                return found.u
            self.prox, u = None, found.u
        if self._multipliers is None:
            self._multipliers = Multipliers.of(self.model, self.v)
        before = self._multipliers.steps
        u = newton_quadratic(self._multipliers, q, u, accuracy, self.exact, flat=not self.ridge.min() > 0)
        self.v = self._multipliers.v
        self.steps += self._multipliers.steps - before
        return u

    def accelerate(
        self, q: Quadratic | Products, enough: float, most: int, likely: float = math.inf, objective: float = math.inf
    ) -> Solution:
        """Minimise q + g∘B by accelerated steps alone; where q is f itself, ``objective`` is F at the centre."""
        assert self.prox is not None
        self.steps += 1
        enough = max(enough, TINY)
        # Without a ridge the error of a gradient as small as ``exact`` counts as much as ``enough``.
        small = self.exact * float(np.linalg.norm(q.slope))
        ridge = np.where(self.ridge > 0, self.ridge, max(small**2, TINY) / (2.0 * enough))
        found = take_steps(self.model, q, self.prox, self.v, ridge, enough, self.share, most, likely, objective)
        self.v = found.v
        return found
