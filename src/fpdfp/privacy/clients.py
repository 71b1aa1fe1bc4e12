r"""Differential privacy for whole clients, in simulations of many: clipped replies, noise in their mean, subsampling.

In every round n of N clients are drawn, and each reply (all its fields as one vector) is shortened to the length
``clip``. The mean of the replies gets Gaussian noise of standard deviation ``noise · clip/n``. With all clients in
every round a round is 1/noise-Gaussian-differentially private for one client more or less, and squares add up
(:mod:`fpdfp.privacy.accounting`). With n < N the guarantee is for one client in the place of another, of whom the sum
moves by 2 clip: Rényi differential privacy of sampling without replacement (Y.-X. Wang, B. Balle and S.
Kasiviswanathan, *Subsampled Rényi differential privacy and analytical moments accountant*, 2019), by
``dp-accounting``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.privacy.accounting import Spent, epsilon_of

#: The word of Philox's key that sets noise apart from all other draws of a run.
NOISE = 0x6E6F697365


@dataclasses.dataclass(frozen=True)
class ClientPrivacy:
    """Clipped replies and noise in their mean; :func:`fpdfp.solve` takes it as ``privacy``.

    Parameters
    ----------
    clip
        The length to which replies are shortened.
    noise
        The standard deviation of the noise in the sum of replies, in multiples of ``clip``.
    delta
        The δ at which ε is reported.

    Examples
    --------
    >>> spent = ClientPrivacy(clip=1.0, noise=5.0, delta=1e-6).spent(rounds=10, clients=200, of=200)
    >>> round(spent.epsilon, 2), spent.unit
    (2.92, 'one client more or less')
    """

    clip: float
    noise: float
    delta: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("clip", "noise", "delta"):
            object.__setattr__(self, name, _checks.real(name, getattr(self, name), positive=True))
        if self.delta >= 1:
            raise ArgumentError("delta", f"must be below 1, got {self.delta:g}")

    def shorten(self, arrays: Any) -> Any:
        """Return replies, a named tuple of arrays with a leading client axis, none longer than the clip.

        Examples
        --------
        >>> from collections import namedtuple
        >>> reply = namedtuple("Reply", "x v")(np.array([[3.0], [0.1]]), np.array([[4.0], [0.0]]))
        >>> ClientPrivacy(1.0, 1.0).shorten(reply).v.ravel()
        array([0.8, 0. ])
        """
        count = len(arrays[0])
        squares = sum(np.square(one.reshape(count, -1).astype(np.float64)).sum(axis=1) for one in arrays)
        factors = np.minimum(1.0, self.clip / np.maximum(np.sqrt(squares), 1e-300))
        return type(arrays)(*(
            (one * factors.reshape(-1, *[1] * (one.ndim - 1))).astype(one.dtype) for one in arrays
        ))  # fmt: skip

    def perturb(self, mean: Any, count: int, seed: int, k: int) -> Any:
        """Return the mean of the replies of round k with noise, a function of the seed and the round."""
        bits = np.random.Philox(key=np.array([seed, NOISE], np.uint64), counter=np.array([0, 0, 0, k], np.uint64))
        generator, scale = np.random.Generator(bits), self.noise * self.clip / count

        def noisy(one: Array) -> Array:
            return (one + scale * generator.standard_normal(one.shape)).astype(one.dtype)

        return type(mean)(*map(noisy, mean))

    def spent(self, rounds: int, clients: int, of: int) -> Spent:
        """Return the price of some rounds with ``clients`` of a number of clients each."""
        kind = tuple([("mean of replies", 1.0 / self.noise)] * rounds)
        mu = math.sqrt(rounds) / self.noise
        if clients == of:
            return Spent(epsilon_of(mu, self.delta) if rounds else 0.0, self.delta, mu, kind, "one client more or less")
        return Spent(self._sampled(rounds, clients, of), self.delta, mu, kind, "one client in the place of another")

    def _sampled(self, rounds: int, clients: int, of: int) -> float:
        try:
            import dp_accounting
            from dp_accounting import rdp
        except ImportError:
            raise ModuleNotFoundError(
                "dp-accounting, which accounts for rounds of some of the clients, is not installed: "
                "pip install 'fpdfp[privacy]'"
            ) from None
        accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
        # one client in the place of another moves the sum by twice the clip
        event = dp_accounting.GaussianDpEvent(self.noise / 2.0)
        if rounds:
            accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(of, clients, event), rounds)
        return float(accountant.get_epsilon(self.delta))
