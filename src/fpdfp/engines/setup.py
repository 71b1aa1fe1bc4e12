"""What is checked and chosen before the first round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._rounding import round_down, round_up
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Compressor, Full
from fpdfp.compress.wire import frame_bits
from fpdfp.engines.downlink import FULL, Downlink, full_bits
from fpdfp.engines.remote import RemoteLosses
from fpdfp.errors import StepTooLargeWarning
from fpdfp.methods.base import Method
from fpdfp.precondition.cost import PREFERENCES, Circumstances, Prefer
from fpdfp.problem import Problem
from fpdfp.rng import Draws, Purpose


def participants(problem: Problem, method: Method, clients_per_round: int | None) -> int:
    """Return how many clients take part in a round."""
    count = problem.n_clients
    if clients_per_round is None:
        return count
    n = _checks.integer("clients_per_round", clients_per_round, at_least=1)
    if n > count:
        raise ValueError(f"clients_per_round must be at most the number of clients, {count}, got {n}")
    if n < count and not method.traits.partial_participation:
        raise ValueError(f"clients_per_round must be None for {type(method).__name__}, which needs every client")
    return n


def check_drop_out(method: Method, drop_out: float) -> float:
    """Return the probability with which clients do not answer."""
    chance = _checks.real("drop_out", drop_out, at_least=0.0)
    if chance >= 1:
        raise ValueError(f"drop_out must be below 1, got {chance:g}")
    if chance > 0 and not method.traits.partial_participation:
        raise ValueError(f"drop_out must be 0 for {type(method).__name__}, which needs every client")
    return chance


def server_side(problem: Problem, method: Method, downlink: Any) -> Downlink | None:
    """Return how the server's messages are compressed, None if they are not."""
    if downlink is None:
        return None
    if not isinstance(downlink, Compressor):
        raise TypeError(f"downlink must be a compressor, 'auto' or None, got {_checks.kind(downlink)}")
    if not method.traits.downlink:
        raise ValueError(f"downlink must be None for {type(method).__name__}, whose clients need exact messages")
    if not downlink.unbiased and downlink.omega(problem.model.shape) >= 1:
        raise ValueError(
            f"downlink must be unbiased, or have a relative error below 1, got {downlink!r} with the bound "
            f"{downlink.omega(problem.model.shape):.3g}"
        )
    return Downlink(downlink)


def check(problem: Problem, method: Method) -> None:
    """Refuse a problem that lacks what the method needs."""
    name = type(method).__name__
    if method.traits.needs_one_client and problem.n_clients > 1:
        raise ValueError(f"problem must have one client for {name}, which needs all data in one place, got {problem!r}")
    if method.batch_size is not None and not problem.losses.supports_batches:
        raise ValueError(f"batch_size must be None: {type(problem.losses).__name__} cannot draw mini-batches")
    if method.batch_size is not None and not method.traits.mini_batches:
        raise ValueError(f"batch_size must be None for {name}, which needs full gradients, got {method.batch_size}")
    if (method.local_steps or 1) > 1 and not method.traits.local_steps:
        raise ValueError(f"local_steps must be 1 for {name}, got {method.local_steps}")
    if method.traits.needs_hessians and problem.losses.hessians(start_point(problem, None), np.arange(0)) is None:
        raise ValueError(
            f"losses must have known Hessians for {name}, as Logistic and LeastSquares of up to 2,000 features have, "
            f"got {problem.losses!r} with x of shape {problem.model.shape}"
        )
    method.check(problem.model)
    needed = method.traits.strong_convexity == "needed" and method.strong_convexity is None
    if needed and problem.strong_convexity == 0:
        raise ValueError(
            f"strong_convexity must be given for {name}, since none is known of f: add a ridge (l2=) to the losses, or "
            "take a method that does not need it"
        )


def start_point(problem: Problem, x0: Any) -> Array:
    """Return where the run starts."""
    shape, dtype = problem.model.shape, problem.model.dtype
    if x0 is None:
        start: Array = problem.model.xp.zeros(shape, dtype=dtype)
        return start
    return _checks.float_array("x0", x0, shape=shape, dtype=dtype, xp=problem.model.xp).copy()


class Prepared(NamedTuple):
    """A method ready to run, the compressors of its replies, and the bits that were sent once, up and down."""

    method: Method
    compressors: dict[str, Compressor]
    bits_once: tuple[int, int]


def refuse(problem: Problem, method: Method, compressor: Any) -> None:
    """Refuse what does not fit together before anything takes long."""
    chosen = method.specialise(problem.model)
    check(problem, chosen)
    compressors_of(chosen, method, problem, compressor)


class Wish(NamedTuple):
    """What a run is for: its relative error, and whether to save rounds, bits or both."""

    accuracy: float = 1e-6
    prefer: Prefer = "balanced"


def wish(accuracy: Any, tol: float | None, prefer: Any) -> Wish:
    """Return what a run is for; where no accuracy is given, that of ``tol``."""
    _checks.choice("prefer", prefer, PREFERENCES)
    if accuracy is None:
        return Wish(Wish().accuracy if tol is None else min(tol, 0.1), prefer)
    value = _checks.real("accuracy", accuracy, positive=True)
    if value >= 1:
        raise ValueError(f"accuracy must be below 1, got {value:g}")
    return Wish(value, prefer)


def prepare(
    problem: Problem,
    method: Method,
    compressor: Any,
    n: int,
    rounds: int,
    downlink: Downlink | None = None,
    seed: int = 0,
    wanted: Wish = Wish(),  # noqa: B008 - a constant
) -> Prepared:
    """Choose compressors for the fields of the reply, and the automatic hyper-parameters."""
    chosen = method.specialise(problem.model)
    check(problem, chosen)
    compressors = compressors_of(chosen, method, problem, compressor)
    chosen = chosen.plan(problem.losses, lambda: circumstances(problem, chosen, compressors, downlink, n, wanted))
    chosen, bits_once = exchange_once(problem, chosen, seed)
    constants = constants_of(problem, chosen, compressors, n)
    settled = chosen.settle(constants)
    if settled.factor is not chosen.factor:
        constants = constants_of(problem, settled, compressors, n)
    chosen = settled
    if downlink is not None:
        constants = constants._replace(downlink_omega=downlink.compressor.typical_omega(problem.model.shape))
    if chosen.traits.needs_smooth and not np.isfinite(constants.lipschitz_max):
        raise ValueError(f"losses must have Lipschitz continuous gradients for {type(chosen).__name__}")
    prepared = chosen.prepare(problem.model, constants)
    schedule = prepared.schedule()
    smallest = min(schedule(0), schedule(rounds - 1))
    largest = prepared.largest_step(problem.model, constants)
    if smallest > largest * (1 + 1e-9):
        warnings.warn(
            f"step: every step of the run is at least {smallest:.4g}, too large to converge for certain; "
            f"the largest safe one is {largest:.4g}",
            StepTooLargeWarning,
            stacklevel=3,
        )
    return Prepared(prepared, compressors, bits_once)


def circumstances(
    problem: Problem,
    method: Method,
    compressors: Mapping[str, Compressor],
    downlink: Downlink | None,
    n: int,
    wanted: Wish,
) -> Circumstances:
    """Return what is known of a run before anyone is asked; the bits of a round from normally distributed messages."""
    generator, count = np.random.default_rng(0), problem.n_clients

    def typical(compressor: Compressor, shape: Shape) -> float:
        sample = generator.standard_normal((1, *shape)).astype(problem.model.dtype)
        return float(compressor.compress(sample, Draws(0, 0, np.zeros(1, dtype=np.int64)), 0).bits[0])

    up = n * sum(typical(compressors[name], shape) for name, shape in method.reply_shapes(problem.model).items())
    down: float = n * full_bits(np.zeros(problem.model.shape, dtype=problem.model.dtype))
    if downlink is not None:
        # A client that takes part gets all differences since the last time, or everything if that is shorter.
        down = min(down, count * typical(downlink.compressor, problem.model.shape))
    rows = float(problem.losses.sizes.sum()) / count
    return Circumstances(count, n, rows, up, down, wanted.accuracy, wanted.prefer)


def exchange_once(problem: Problem, method: Method, seed: int = 0) -> tuple[Method, tuple[int, int]]:
    """Have clients send what a method asks of them once, and everyone told what came of it; count the bits."""
    method, up = asked_once(problem, method, seed)
    while method.gathers:  # what came of it may be another question
        method, bits = asked_once(problem, method, seed)
        up += bits
    if isinstance(problem.losses, RemoteLosses):
        problem.losses.crew.install(problem, method)
    return method, (up, problem.n_clients * method.announced_bits)


def asked_once(problem: Problem, method: Method, seed: int) -> tuple[Method, int]:
    """Return the method with what came of one question, and the bits of the answers."""
    asked = method.asked_once(problem.n_clients, seed) if method.gathers else np.arange(0)
    sums: Any = ()
    up = 0
    for clients in [asked] if isinstance(problem.losses, RemoteLosses) else problem.losses.chunks():
        places = np.flatnonzero(np.isin(asked, clients))
        if not len(places):
            continue
        sent, bits = sent_once(problem, method, asked[places], seed)
        part = method.summed(sent, places)
        sums = part if not sums else type(part)(*map(np.add, sums, part))
        up += bits
    return method.install(problem.model, sums, len(asked), problem.n_clients), up


def sent_once(problem: Problem, method: Method, clients: IntArray, seed: int) -> tuple[Any, int]:
    """Return what some clients send once, as the server decodes it, and its bits."""
    if isinstance(problem.losses, RemoteLosses):
        return problem.losses.crew.gather(problem, method, clients, seed)
    sent = method.gather(problem.model, problem.local(clients))
    messages = method.messages_once(problem.model)
    if not messages:
        return sent, sum(full_bits(array[0]) * len(array) for array in sent)
    draws = Draws(seed, 0, clients)
    done = [
        messages[name][0].compress(array, draws, Purpose.ONCE + field)
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
    ]
    return type(sent)(*(one.values for one in done)), sum(int(one.bits.sum()) for one in done)


def compressors_of(method: Method, asked: Method, problem: Problem, compressor: Any) -> dict[str, Compressor]:
    """Return a compressor for each field of the reply of ``method``, which runs for the one that was asked for."""
    shapes = method.reply_shapes(problem.model)
    fields = list(shapes)
    if compressor is None or isinstance(compressor, Compressor):
        given = dict.fromkeys(fields, compressor)
    elif isinstance(compressor, Mapping):
        # Where Algorithm 5 runs for FPDFP no dual is sent: a compressor for it is no mistake.
        if not set(compressor) <= {*fields, *asked.reply_shapes(problem.model)}:
            raise ValueError(f"compressor: the fields of a reply are {fields}, got {sorted(map(str, compressor))}")
        given = {name: compressor.get(name) for name in fields}
    else:
        raise TypeError(f"compressor must be a compressor, a mapping, 'auto' or None, got {_checks.kind(compressor)}")
    chosen: dict[str, Compressor] = {}
    for name, one in given.items():
        if one is not None and not isinstance(one, Compressor):
            raise TypeError(f"compressor[{name!r}] must be a compressor or None, got {_checks.kind(one)}")
        chosen[name] = FULL if one is None else one
        try:
            frame_bits(chosen[name], shapes[name], problem.model.dtype)
        except ValueError as error:
            raise ValueError(f"compressor[{name!r}] cannot send an array of shape {shapes[name]}: {error}") from None
    if not method.traits.compression and any(not isinstance(one, Full) for one in chosen.values()):
        other = method.traits.compressed_form
        hint = "" if other is None else f"; {other} sends compressed ones"
        raise ValueError(f"compressor must be None for {type(method).__name__}, which needs exact replies{hint}")
    biased = sorted({repr(one) for one in chosen.values() if not one.unbiased})
    if method.traits.needs_unbiased and biased:
        raise ValueError(
            f"compressor must be unbiased for {type(method).__name__}, as QSGD, NUQSGD, Natural and RandK are, got "
            + ", ".join(biased)
        )
    return chosen


def constants_of(problem: Problem, method: Method, compressors: Mapping[str, Compressor], n: int) -> steps.Constants:
    """Collect what a step can be chosen from."""
    shapes = method.reply_shapes(problem.model)
    lipschitz = problem.lipschitz if method.factor is None else problem.lipschitz_in(method.factor)
    known = None if method.factor is None else method.smoothness_in_factor
    mean = float(lipschitz.mean())
    return steps.Constants(
        lipschitz_mean=round_up(mean if known is None else min(mean, known)),
        lipschitz_max=round_up(float(lipschitz.max())),
        strong_convexity=round_down(problem.strong_convexity),
        n_clients=problem.n_clients,
        clients_per_round=n,
        omega=max((one.omega(shapes[name]) for name, one in compressors.items()), default=0.0),
        batch_smoothness=round_up(problem.batch_smoothness(method.batch_size, method.factor)),
        own_lipschitz_max=round_up(problem.total_weight * float(problem.losses.lipschitz().max())),
        client_spread=round_up(float((lipschitz**2).mean()) / mean if 0 < mean < np.inf else mean),
        lipschitz_rms=round_up(float(np.sqrt((lipschitz**2).mean()))),
        unbiased=all(one.unbiased for one in compressors.values()),
        least_convexity=round_down(problem.total_weight * problem.losses.least_convexity),
        typical_omega=max((one.typical_omega(shapes[name]) for name, one in compressors.items()), default=0.0),
    )
