"""NewtonPDFP: Newton steps from compressed differences of Hessians (FedNL), with the prox of g∘B on the server."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import ArgumentError
from fpdfp.linops import Compose, LinOp
from fpdfp.methods._forms import ServerSolves
from fpdfp.methods.base import Facts, Method, Remembering, Traits, Update
from fpdfp.precondition import Whitening
from fpdfp.precondition.agreement import Agreement, Clients
from fpdfp.precondition.base import full, lower
from fpdfp.precondition.exchange import as_sent, whitening_of
from fpdfp.problem import LocalLosses, Model
from fpdfp.quadratic.blocks import blocks_of
from fpdfp.quadratic.solve import minimise, needs_inner
from fpdfp.quadratic.statement import Distance, InnerSolve, Quadratic, Work
from fpdfp.rng import Draws

#: Eigenvalues of the learned Hessian, relative to the bound it began with, are raised to this while it still changes as
#: much, and to the least always.
FLOOR, LEAST = 0.05, 1e-9
#: Lengths of steps are smoothed with this weight of the past, the less the more clients take part; when they are this
#: many times the least so far, the model is made steeper, by this much at first.
PAST, ALARM, STEEPER = 0.7, 4.0, 0.25


class NewtonStart(NamedTuple):
    """The single message of a client: the lower triangle of the bound of its Hessian, and its gradient at zero."""

    triangle: Array
    slope: Array


class NewtonState(NamedTuple):
    """The iterate, its dual, and the model of f: ½uᵀHu + ⟨q, u⟩, H as its lower triangle.

    ``damping`` holds what is added to H, the smoothed length of steps, and its least.
    """

    u: Array
    v: Array
    hessian: Array
    linear: Array
    damping: Array
    work: Array


class NewtonMessage(NamedTuple):
    """The message of the server: the point at which gradients and Hessians are wanted."""

    u: Array


class NewtonReply(NamedTuple):
    """The message of a client: its Hessian and linear term less the values that the server knows."""

    hessian: Array
    linear: Array


class NewtonMemory(NamedTuple):
    """The memory of a client: what was added to H_i and q_i since the start, and the point it was last asked about.

    These follow from messages. The start itself, which a client can compute from its data at any time, is kept next to
    them, and whether it was computed.
    """

    hessian: Array
    linear: Array
    point: Array
    first_hessian: Array
    first_linear: Array
    known: Array


@dataclasses.dataclass(frozen=True)
class NewtonPDFP(Method):
    """Newton steps: the server learns the clients' Hessians from compressed differences.

    ::

        once:            clients send a bound of their Hessian and ∇f_i(0); all work in coordinates x = S u in which the
                         mean of the bounds is the identity
        server:          sends u_k to n clients S, drawn uniformly
        client i in S:   sends D_i = C(∇²f_i(u_k) − H_i) and e_i = C(∇f_i(u_k) − H_i u_k − q_i)
        both, with it:   q_i ← q_i + e_i − α D_i u_k,   H_i ← H_i + α D_i
        server:          u_k+1 = argmin_u ½ uᵀHu + ⟨q, u⟩ + ½ ‖u − u_k‖²_E + g(BSu),   H = mean of H_i, q = mean of q_i

    So f is replaced by the mean of quadratic models, each at the point where its client was last asked. The H_i tend to
    the Hessians at the solution, and the method to Newton's. Hessians have d(d + 1)/2 numbers, so C should keep few
    bits of them, as top-k and coarse quantizers do: ``compressor={"hessian": fpdfp.compress.TopK(0.02)}``.

    H starts as a bound of the Hessian, so the first step is one of majorisation. E raises eigenvalues of H below a
    twentieth of the bound, or below the norm of what H was changed by in the round where that is less. When steps,
    smoothed over rounds, are four times as long as the least since all clients were first asked, a multiple of the
    identity is added to it, or doubled. From 1 on the model is above f, and every step is one of majorisation. Matrices
    go through BLAS and LAPACK, so the last bits may depend on the number of their threads.

    What is proved. Let g = 0, linear terms be exact and f strongly convex with Lipschitz Hessians. Near the solution,
    convergence is linear at a rate that does not depend on the condition number, and superlinear in the mean (FedNL,
    also for some clients). Nothing is proved far from the solution, with compressed linear terms, or for other g: from
    a start where a logistic loss is nearly flat the method can diverge. Zero is a good start.

    Parameters
    ----------
    dual_steps
        The most dual steps that the server takes in a round.
    hessian_step
        α; by default 1 for biased compressors, and for unbiased ones what :func:`fpdfp.steps.shift_step` gives.
    inner_tol
        How near to the minimum of its model the server goes, relative to the progress of the round.

    References
    ----------
    M. Safaryan, R. Islamov, X. Qian and P. Richtárik, "FedNL: making Newton-type methods applicable to federated
    learning", ICML (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((60, 4)), np.repeat([1.0, -1.0], 30)
    >>> losses = fpdfp.losses.Logistic(X, y, clients=np.arange(60) % 3, l2=0.01)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01), fpdfp.linops.Difference(4))
    >>> top = {"hessian": fpdfp.compress.TopK(3)}
    >>> result = fpdfp.solve(problem, fpdfp.NewtonPDFP(), rounds=20, compressor=top)
    >>> result.certificate.relative_gap < 1e-9
    True
    """

    traits: ClassVar[Traits] = Traits(
        title="Newton steps from compressed differences of Hessians",
        solves="f + g∘B",
        sends=("hessian", "linear"),
        uplink="d(d + 3)/2",
        mini_batches=False,
        needs_unbiased=False,
        needs_hessians=True,
        proved="near the solution, for g = 0: linear whatever the condition number, superlinear in the mean",
        constant_step=True,
        reference="Safaryan et al. 2022",
    )

    dual_steps: int = 1000
    hessian_step: float | None = None
    inner_tol: float = 1e-2
    step: steps.Step = dataclasses.field(default=1.0, repr=False, kw_only=True)

    def agree(self, clients: Clients) -> NewtonAgreement:
        sums, count, *_ = clients.ask(NewtonExchange())
        triangle, slope = sums.triangle / count, sums.slope / count
        whitening = whitening_of(triangle, clients.model.shape)
        hessian = lower(whiten(whitening, full(triangle)))
        return NewtonAgreement(whitening, "", hessian, whitening.factor.adjoint(slope))

    def prepare(self, facts: Facts) -> NewtonAlgorithm:
        constants, found = facts.constants, facts.agreement
        if not isinstance(found, NewtonAgreement) or not isinstance(found.coordinates, Whitening):
            raise TypeError(f"agreement must come from NewtonPDFP.agree, got {type(found).__name__}")
        alpha = self.hessian_step
        if alpha is None:
            alpha = steps.shift_step(constants.typical_omega, constants.omega) if constants.unbiased else 1.0
        return NewtonAlgorithm(
            self, facts.model, steps.Constant(1.0), found.coordinates, found.hessian, found.linear, alpha,
            constants.n_clients,
        )  # fmt: skip

    def largest_step(self, facts: Facts) -> float:
        return 1.0

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        (d,) = model.shape
        return {"hessian": (d * (d + 1) // 2,), "linear": (d,)}


@question("newton_start")
@dataclasses.dataclass(frozen=True)
class NewtonExchange(Question):
    """Each client sends the bound of its Hessian and its gradient at zero, once."""

    reveals = reveals(uses="curvatures gradients")

    @property
    def tells_pairs(self) -> bool:
        """A bound of the Hessian is products of pairs of features."""
        return True

    def answer(self, local: LocalLosses) -> NewtonStart:
        """Return what clients send."""
        return NewtonStart(*starting_model(local))


@dataclasses.dataclass(frozen=True)
class NewtonAgreement(Agreement):
    """Coordinates in which the mean of the bounds is the identity, and the model of f in them: H and q."""

    hessian: Array = dataclasses.field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    linear: Array = dataclasses.field(default_factory=lambda: np.zeros(0), repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class NewtonAlgorithm(ServerSolves, Remembering):
    """The algorithm of :class:`NewtonPDFP`, in coordinates x = S u.

    Attributes
    ----------
    whitening
        The coordinates.
    hessian, linear
        H and q before the first round.
    hessian_step
        α.
    n_clients
        N.
    """

    shared_memory: ClassVar[tuple[str, ...]] = ("hessian", "linear", "point")

    method: NewtonPDFP
    whitening: Whitening
    hessian: Array = dataclasses.field(repr=False, compare=False)
    linear: Array = dataclasses.field(repr=False, compare=False)
    hessian_step: float
    n_clients: int

    @property
    def factor(self) -> LinOp:
        return self.whitening.factor

    def init(self, x0: Array) -> NewtonState:
        u0 = self.whitening.coordinates(x0.astype(np.float64))
        v, damping = np.zeros((1, *self.model.dual_shape)), np.array([0.0, np.inf, np.inf])
        return NewtonState(u0, v, self.hessian, self.linear, damping, np.zeros(1, dtype=np.int64))

    def init_memory(self, n_clients: int) -> NewtonMemory:
        (d,) = self.model.shape
        size = d * (d + 1) // 2
        shapes = {"hessian": size, "linear": d, "point": d, "first_hessian": size, "first_linear": d}
        arrays = {name: np.zeros((n_clients, length)) for name, length in shapes.items()}
        return NewtonMemory(**arrays, known=np.zeros(n_clients, dtype=bool))

    def for_sites(self) -> NewtonAlgorithm:
        return dataclasses.replace(self, hessian=np.zeros(0), linear=np.zeros(0))

    def broadcast(self, state: NewtonState) -> NewtonMessage:
        return NewtonMessage(state.u)

    def client_update(self, local: LocalLosses, message: NewtonMessage, k: int, draws: Draws) -> Update:
        u, memory, dtype = message.u, self.recall(local), self.model.dtype
        x = self.factor.apply(u).astype(dtype, copy=False)
        hessians = local.hessians(x)
        if hessians is None:
            raise ArgumentError("losses", "must have known Hessians for NewtonPDFP")
        known_hessian = memory.first_hessian + memory.hessian
        differences = lower(np.stack([whiten(self.whitening, one) for one in hessians])) - known_hessian
        slopes = self.factor.adjoint(local.gradients(x).astype(np.float64))
        points = np.repeat(u[None], len(local.clients), axis=0)
        linear = slopes - times(known_hessian, points) - (memory.first_linear + memory.linear)
        reply = NewtonReply(differences.astype(dtype, copy=False), linear.astype(dtype, copy=False))
        return Update(reply, memory._replace(point=points))

    def recall(self, local: LocalLosses) -> NewtonMemory:
        """Return the clients' memory; those that lack it compute what they sent once."""
        memory: NewtonMemory = local.memory
        new = ~memory.known
        if not new.any():
            return memory
        triangles, slopes = starting_model(local._replace(clients=local.clients[new]))
        hessian, linear = memory.first_hessian.copy(), memory.first_linear.copy()
        hessian[new] = lower(np.stack([whiten(self.whitening, full(one)) for one in triangles]))
        linear[new] = self.factor.adjoint(slopes)
        return memory._replace(first_hessian=hessian, first_linear=linear, known=np.ones_like(memory.known))

    def take_message(self, shared: dict[str, Array], message: NewtonMessage) -> dict[str, Array]:
        return shared | {"point": np.repeat(message.u[None], len(shared["point"]), axis=0)}

    def remember(self, shared: dict[str, Array], sent: NewtonReply, k: int) -> dict[str, Array]:
        learned = self.hessian_step * sent.hessian
        linear = shared["linear"] + sent.linear - times(learned, shared["point"])
        return shared | {"hessian": shared["hessian"] + learned, "linear": linear}

    def server_update(self, state: NewtonState, mean: NewtonReply, k: int, count: int) -> NewtonState:
        share = count / self.n_clients
        learned = self.hessian_step * share * mean.hessian
        hessian = state.hessian + learned
        linear = state.linear + share * mean.linear - full(learned) @ state.u
        extra, smoothed, least = state.damping
        # What is still being learned may be wrong by as much; what is known is left alone.
        floor = min(FLOOR, float(np.linalg.norm(full(learned), 2))) + LEAST
        added = raise_eigenvalues(full(hessian), floor) + extra * np.eye(len(linear))
        u, v, work = self.minimise(full(hessian) + added, linear - added @ state.u, state)
        length = float(np.linalg.norm(u - state.u))
        past = 0.0 if smoothed == np.inf else PAST * (1.0 - share)
        smoothed = length + (past * (smoothed - length) if past else 0.0)
        least = min(least, smoothed) if k * share >= 2.0 * (1.0 - share) else np.inf
        if smoothed > ALARM * least:
            extra, least = max(2.0 * extra, STEEPER), smoothed
        return NewtonState(u, v, hessian, linear, np.array([extra, smoothed, least]), state.work + work.steps)

    def minimise(self, hessian: Array, linear: Array, state: NewtonState) -> tuple[Array, Array, Work]:
        """Return the minimum of ½uᵀHu + ⟨q, u⟩ + g(BSu), its dual, and what it took.

        Norms of blocks of x are minimised exactly in x: other coordinates leave an error of 1e-8 in x.
        """
        if self.model.linop.is_identity and blocks_of(self.model.penalty, len(linear)) is not None:
            root = self.whitening.coordinates(np.eye(len(linear)))  # u = rootᵀ x
            matrix = root @ hessian @ root.T
            q = Quadratic.of((matrix + matrix.T) / 2.0, root @ linear, self.factor.apply(state.u))
            found = minimise(self.model, q, state.v[0])
            return self.whitening.coordinates(found.u), found.v[None], found.work
        inner_coordinates = Whitening(hessian)
        S, R = self.factor, inner_coordinates.factor
        space = self.model._replace(linop=Compose(self.model.linop, Compose(S, R)))
        # In coordinates u = R w with H = I the model is ½‖w + Rᵀq‖².
        y = -R.adjoint(linear)
        inner = InnerSolve(self.method.inner_tol, self.method.dual_steps) if needs_inner(space) else None
        origin = inner_coordinates.coordinates(state.u)
        (w,), v, work = minimise(space, Distance(y[None], 1.0), state.v, inner, origin=origin[None])
        return R.apply(w), v, work

    def solution(self, state: NewtonState) -> tuple[Array, Array | None]:
        x, v, dtype = self.factor.apply(state.u), state.v[0], self.model.dtype
        return x.astype(dtype, copy=False), v.astype(dtype, copy=False)


def starting_model(local: LocalLosses) -> tuple[Array, Array]:
    """Return the bounds of the clients' Hessians and their gradients at zero, as they are sent."""
    bounds = local.curvatures()
    assert bounds is not None
    slopes = local.gradients(np.zeros(local.losses.shape, dtype=local.losses.dtype))
    # As they are sent: clients and server must begin with the same.
    return as_sent(lower(bounds)), slopes.astype(np.float64)


def times(triangles: Array, points: Array) -> Array:
    """Symmetric matrices, given by their lower triangles, times points; one by one, so that batches do not matter."""
    return np.stack([full(triangle) @ x for triangle, x in zip(triangles, points, strict=True)])


def whiten(whitening: Whitening, matrix: Array) -> Array:
    """SᵀHS, made symmetric to the last bit."""
    S = whitening.inverse
    product: Array = S.T @ matrix @ S
    return (product + product.T) / 2.0


def raise_eigenvalues(matrix: Array, floor: float) -> Array:
    """The correction of a symmetric matrix that makes its eigenvalues at least ``floor``."""
    values, vectors = np.linalg.eigh(matrix)
    added: Array = (vectors * np.maximum(floor - values, 0.0)) @ vectors.T
    return added
