"""Fast-FedDualAvg, federated dual averaging for strongly convex losses, with restarts."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import check_hyper_parameters, local_schedule, mean
from fpdfp.methods._forms import ProximalForm
from fpdfp.methods.base import Update, Work
from fpdfp.methods.inner import InnerSolve, Solved, check_inner, needs_inner, prox
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class State(NamedTuple):
    """The dual model z, the model x that it stands for, and how x was found.

    ``v`` is the dual point of the prox that gave x, and ``work`` what the server's proxes cost.
    """

    z: Array
    x: Array
    v: Array
    work: Array


class Message(NamedTuple):
    """What the server sends: the dual model, and where the prox may start (empty for B = I)."""

    z: Array
    v: Array


class Reply(NamedTuple):
    """What a client sends: the change of its dual model."""

    z: Array


@dataclasses.dataclass(frozen=True)
class FastFedDualAvg(ProximalForm):
    """Fast federated dual averaging for f + g with f strongly convex, in stages.

    ::

        server:          sends z_k to n clients S, drawn uniformly
        client i in S:   z_i,0 = z_k,   then for t = 0, …, τ − 1, with a = γ((k − k_s)τ + t) and c = 1 + μ̃a
                         x_i,t   = prox_{(a/c) g∘B}( z_i,t / c )
                         z_i,t+1 = z_i,t − γ (∇̃f_i(x_i,t) − μ̃ x_i,t)
                         sends Q(z_i,τ − z_k)
        server:          z_k+1 = z_k + (1/n) Σ_S Q(z_i,τ − z_k)
                         x_k+1 = prox_{(a/c) g∘B}( z_k+1 / c )   with a, c for k + 1, t = 0
                         if a stage begins at k + 1:   k_s = k + 1 and z_k+1 = x_k+1

    Read differently, x minimises the sum over all steps j of the stage of the lower models
    ⟨∇̃f(x_j), x⟩ + (μ̃/2)‖x − x_j‖² + g(Bx), plus ‖x − x_{k_s}‖²/2γ. Plain :class:`FedDualAvg` has μ̃ = 0. The
    curvature makes the weight of a new gradient fall like 1/j by itself, which is what gives the fast rate; so γ is
    constant. The authors sum gradients and iterates apart and send both; only their combination z is ever used, and
    sending it halves the messages. They take μ̃ = μ/2, as is done here.

    What is proved: for one stage, f strongly convex, everyone, no compressor and γ small enough for τ, the expected
    error falls like O(1/(n k τ)) plus terms of higher order (Bao et al. 2022). Restarts are proved for their
    constrained multi-stage form, whose l1 ball shrinks from stage to stage; here stages restart and there is no ball.
    Nothing is proved for compressed messages.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    strong_convexity
        μ; by default what is known of f, and a problem where nothing is known is refused.
    restarts
        The rounds at which a new stage begins, ascending.
    inner
        How exactly the prox of g∘B is computed where B is not the identity; None refuses such a B.

    References
    ----------
    Y. Bao, M. Crawshaw, S. Luo and M. Liu, "Fast composite optimization and statistical recovery in federated
    learning", ICML (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> method = fpdfp.FastFedDualAvg(local_steps=2, restarts=(10, 30))
    >>> fpdfp.solve(problem, method, rounds=1000).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = Traits(
        title="local dual averaging with curvature, in stages",
        solves="f + g",
        sends=("z",),
        uplink="d",
        local_steps=True,
        strong_convexity="needed",
        with_inner_solve="f + g∘B",
        proved="O(1/k) for f strongly convex, one stage, everyone, uncompressed",
        reference="Bao, Crawshaw, Luo and Liu 2022",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    strong_convexity: float | None = None
    restarts: tuple[int, ...] = ()
    inner: InnerSolve | None = None

    def __post_init__(self) -> None:
        check_hyper_parameters(self, constant_step=True)
        check_inner(self.inner)
        if not isinstance(self.restarts, tuple | list):
            raise TypeError(f"restarts must be a tuple of rounds, got {type(self.restarts).__name__}")
        restarts = tuple(_checks.integer("restarts: a round", round_, at_least=1) for round_ in self.restarts)
        if any(later <= earlier for earlier, later in itertools.pairwise(restarts)):
            raise ValueError(f"restarts must be ascending, got {restarts}")
        object.__setattr__(self, "restarts", restarts)

    def prepare(self, model: Model, constants: steps.Constants) -> FastFedDualAvg:
        mu = constants.strong_convexity if self.strong_convexity is None else self.strong_convexity
        if mu > constants.lipschitz_mean * (1 + 1e-9):
            raise ValueError(
                f"strong_convexity must be at most the smoothness L of f, which is at most "
                f"{constants.lipschitz_mean:.6g}, got {mu:g}"
            )
        automatic = local_schedule("auto", self.batch_size, self.local_steps, constants)(0)
        step = steps.resolve_constant(self.step, automatic)
        inner = self.inner if needs_inner(model) else None
        return dataclasses.replace(self, step=step, strong_convexity=float(mu), inner=inner)

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"z": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        (v,) = self.dual_points(model, 1)
        return State(x0, x0, v, np.zeros(2, dtype=np.int64))

    @property
    def curvature(self) -> float:
        """μ̃ = μ/2 of a prepared method."""
        assert self.strong_convexity is not None
        return self.strong_convexity / 2.0

    def read_out(self, model: Model, z: Array, v: Array, since: int, t: int) -> Solved:
        """Return x = prox_{(a/c) g∘B}(z/c) after t local steps of the round that is number ``since`` of its stage."""
        gamma = self.schedule()(0)
        a = gamma * (since * self.local_steps + t)
        c = 1.0 + self.curvature * a
        return prox(model, z / c, a / c, v, self.inner, reach=(1.0, gamma / a if a > 0 else 1.0))

    def stage_start(self, k: int) -> int:
        """Return the round at which the stage of round k began."""
        stages = bisect.bisect_right(self.restarts, k)
        return self.restarts[stages - 1] if stages else 0

    def broadcast(self, model: Model, state: State) -> Message:
        return Message(state.z, state.v)

    def client_update(self, model: Model, local: LocalLosses, message: Message, k: int, draws: Draws) -> Update:
        gamma, work, rows = self.schedule()(0), Work(), len(local.clients)
        since = k - self.stage_start(k)
        z, v = np.repeat(message.z[None], rows, axis=0), np.repeat(message.v[None], rows, axis=0)
        for t in range(self.local_steps):
            x, v, cost = self.read_out(model, z, v, since, t)
            work += cost
            gradients = local.gradients(x, self.batch_size, draws._replace(step=t))
            z = z - gamma * (gradients - self.curvature * x)
        return Update(Reply(z - message.z), work=work)

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        z = state.z + mean(reply.z)
        (x,), (v,), work = self.read_out(model, z[None], state.v[None], k + 1 - self.stage_start(k), 0)
        if self.stage_start(k + 1) == k + 1:
            z = x
        return State(z, x, v, state.work + np.array(work))
