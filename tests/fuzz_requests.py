"""Send sites requests that a coordinator has forged, and see that they are refused or answered correctly.

    python -m tests.fuzz --requests 1000000 --seed 1 --jobs 2

The requests are those of real runs, of every method and with every class that may be sent. In each, something is
replaced: a number, an array, a name, a whole object, by what it is elsewhere, by something of another type, or by
hostile values. A site refuses it with MessageError, or answers; an answer has the right fields, is the same when the
request comes again, and holds no number of the site's data. Request i of a seed is always the same.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import random
import resource
import signal
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import fpdfp
from fpdfp import compress, linops, methods, penalties, precondition, steps
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Informations, Jeffreys, LocalModels, Overdispersions, Spread, SumsAt
from fpdfp.cohorts.many_points import DualSums, Evaluations, HeldScores
from fpdfp.cohorts.question import questions
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.cohorts.site import Site
from fpdfp.errors import MessageError
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import FeatureBounds, Slopes
from tests.loopback import Loopback

#: The longest that a request may take, in seconds: none of them asks for much work.
PATIENCE = 20.0
#: The bytes of addresses that a process may have: most of them are those of libraries.
ADDRESSES = 6 << 30
#: Beside what does not fit, a method may be given numbers that it cannot compute with; of that a site tells the kind.
REFUSALS = (MessageError, ValueError, ArithmeticError, AssertionError)
NAMES = [
    "__dict__", "__class__", "__init__", "_transpose", "_copies", "_edges", "in_shape", "out_shape", "squared_norm",
    "factor", "apply", "adjoint", "matrix", "shape", "x", "", "$", "class", "fields",
]  # fmt: skip
INTEGERS = [0, 1, 2, 3, -1, -2, 7, 12, 2**24, 2**25, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63, -(2**63), 10**30]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, -1e300, float("nan"), float("inf"), -float("inf")]


class Recorded(NamedTuple):
    """A request of a run, and what the site was before it came."""

    name: str
    site: Site
    tree: Any


def problems() -> dict[str, fpdfp.Problem]:
    """Problems whose parts are of every class that may be sent."""
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(2), 15)
    X = rng.standard_normal((30, 4))
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    logistic = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.1)
    single = fpdfp.losses.LeastSquares(X.astype(np.float32), y.astype(np.float32), clients=owner, l2=0.1)
    softmax = fpdfp.losses.Softmax(X, rng.integers(0, 3, 30), clients=owner, l2=0.1)
    wide = [scipy.sparse.linalg.aslinearoperator(rng.standard_normal((9, 24))) for _ in range(2)]
    volume = fpdfp.losses.OperatorLeastSquares(
        [linops.Wrapped(one, in_shape=(2, 3, 4), out_shape=(9,)) for one in wide],
        [rng.standard_normal(9) for _ in range(2)], l2=0.1,
    )  # fmt: skip
    several = np.hstack([X, rng.standard_normal((30, 596))])
    counts = fpdfp.losses.GLM(X, rng.poisson(2.0, 30), clients=owner, family="negative binomial")
    median = fpdfp.losses.GLM(X, X[:, 0], clients=owner, family=fpdfp.families.Quantile(level=0.5, width=1.0))
    p, m = penalties, linops
    tv = m.Gradient((2, 3, 4))
    both = p.Stacked([p.GroupL12(0.05, axis=0), p.NonNegative()], shapes=[(3, 2, 3, 4), (2, 3, 4)])
    sparse = scipy.sparse.csr_array(np.triu(np.ones((4, 4))))
    return {
        "graph": fpdfp.Problem(logistic, p.L1(0.02), sparse),
        "dense": fpdfp.Problem(logistic, p.L1(np.linspace(0.0, 0.1, 3)), np.triu(np.ones((3, 4))), weights="samples"),
        "fused": fpdfp.Problem(single, p.GroupL12(0.1, groups=[0, 0, 1]), m.Difference(4)),
        "scaled": fpdfp.Problem(logistic, p.Box(-1.0, 1.0), m.Compose(m.Diagonal([1.0, 2.0, 3.0, 4.0]), m.Identity(4))),
        "box": fpdfp.Problem(single, p.Box(np.full(4, -1.0), np.inf)),
        "smooth": fpdfp.Problem(logistic, p.Zero()),
        "counts": fpdfp.Problem(counts, p.Zero()),
        "quantile": fpdfp.Problem(median, p.Zero()),
        "net": fpdfp.Problem(logistic, p.ElasticNet(0.02, 0.1, -1.0, np.inf)),
        "sparse groups": fpdfp.Problem(logistic, p.SparseGroup(0.02, 0.03, [0, 0, 1, 1])),
        "wide": fpdfp.Problem(fpdfp.losses.Logistic(np.tile(X, 65), y, clients=owner, l2=0.1), p.L1(0.02)),
        "pooled": fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=0.1), p.L1(0.02), sparse),
        "several": fpdfp.Problem(fpdfp.losses.Logistic(several, y, clients=owner, l2=0.1), p.L1(0.1)),
        "rows": fpdfp.Problem(softmax, p.L1(0.03), m.EachRow(np.eye(4)[:3], rows=3)),
        "volume": fpdfp.Problem(volume, p.GroupL12(0.05, axis=0), tv),
        "volume, non-negative": fpdfp.Problem(volume, both, m.VStack([tv, m.Identity((2, 3, 4))])),
    }


def runs() -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """Yield runs that send every class: the name of the problem, the method, and the options."""
    qsgd, inner = compress.QSGD(7, norm="max"), methods.InnerSolve()
    yield "graph", "automatic", None, {}
    yield "several", "few features first", None, {"tol": 1e-3}
    yield "wide", "automatic", None, {}
    yield "graph", "Newton", fpdfp.NewtonPDFP(), {}
    yield "graph", "certified", fpdfp.ShiftedPDFP(), {"tol": 1e-3}
    for name in ("counts", "quantile", "net", "sparse groups"):
        yield name, "Newton with a line search", fpdfp.ProximalNewton(), {}
    coordinates: dict[str, Any] = {
        "moments": "moments", "diagonal": "diagonal", "levels": precondition.QuantizedMoments(31),
        "sizes": precondition.QuantizedMoments(0, clients=1), "scaling": precondition.Scaling(np.arange(1.0, 5.0)),
        "fourier": precondition.Fourier(np.array([0.1, 0.2, 1.0, 0.2])),
        "low rank": precondition.LowRank(np.ones((4, 1)), [3.0]),
    }  # fmt: skip
    for name, kind in coordinates.items():
        batch = 5 if name in ("diagonal", "fourier") else None
        shifted = fpdfp.ShiftedPDFP(preconditioner=kind, batch_size=batch)
        yield "graph", name, shifted, {"compressor": qsgd, "downlink": fpdfp.QSGD(31, norm="max")}
    yield "rows", "moments of rows", fpdfp.ShiftedPDFP(preconditioner="moments"), {}
    yield "rows", "scaled rows", fpdfp.ShiftedPDFP(preconditioner="diagonal"), {}
    for kind in ("volume", "volume, non-negative"):
        yield kind, "PDFP of volumes", fpdfp.FPDFP(0.01, local_steps=2), {"compressor": compress.Natural()}
        yield kind, "shifted volumes", fpdfp.ShiftedPDFP(), {"compressor": compress.QSGD(3, block=(0,))}
    for one in (compress.Half("bfloat16"), compress.NUQSGD(5), compress.RandK(2), compress.Sign(), compress.Full()):
        yield "dense", repr(one), fpdfp.FPDFP(steps.Decreasing(0.1, 0.01)), {"compressor": one}
    yield "scaled", "top-k", fpdfp.ErrorFeedbackPDFP(), {"compressor": compress.TopK(2)}
    yield "fused", "theorem 2", fpdfp.FPDFP(steps.Theorem2(0.5), batch_size=3), {"compressor": qsgd}
    yield "dense", "shifted batches", fpdfp.ShiftedPDFP(batch_size=4), {"clients_per_round": 1, "compressor": qsgd}
    composite: list[Any] = [
        methods.ChambollePock(), methods.CondatVu(), methods.PDFP(), methods.SPDFP(batch_size=5),
        methods.RandProx(), methods.FedMiD(inner=inner), methods.FedDualAvg(inner=inner),
        methods.FedDR(inner=inner), methods.FastFedDualAvg(inner=inner), methods.StatelessPDFP(),
    ]  # fmt: skip
    for method in composite:
        yield "pooled" if method.traits.needs_one_client else "graph", type(method).__name__, method, {}
    yield "box", "identity", fpdfp.FPDFPIdentity(local_steps=2), {"compressor": qsgd}
    for method in (
        methods.FedAvg(local_steps=2), methods.FedPAQ(local_steps=2), methods.FedProx(0.1, local_steps=2),
        methods.FedSGD(), methods.Scaffold(local_steps=2), methods.FedADMM(local_steps=2),
    ):  # fmt: skip
        yield "smooth", type(method).__name__, method, {}


@functools.cache
def corpus() -> list[Recorded]:
    """Return the requests that a site gets in two rounds of every run."""
    found, all_problems = [], problems()
    for where, name, method, options in runs():
        problem = all_problems[where]
        engine = Loopback(problem, sites=1)
        there = fpdfp.Problem(engine.losses(), problem.penalty, problem.linop, weights=problem.weights)
        engine.requests.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fpdfp.solve(there, method, rounds=2, engine=engine, **options)
        if where == "counts":
            clients_of(there).ask_each(Informations(np.zeros(4)))
            clients_of(there).ask(Overdispersions(np.zeros(4), 1.5))
            clients_of(there).ask(SumsAt(("value", "gradient", "hessian"), np.zeros(4)))
            ask_many(there)
        if where == "graph" and name == "Newton":
            clients_of(there).ask(Jeffreys(np.zeros(4), np.eye(4)))
        if where == "quantile":
            clients_of(there).ask(Spread(np.zeros(4)))
        if where == "wide":
            clients_of(there).ask(FeatureBounds("curvatures"))
            d = there.model.shape[0]
            few = Announced.mask(np.array([0, 2]), d)
            clients_of(there).ask(LocalModels(Announced.plain(0.1 * few.array), few))
            clients_of(there).ask(Slopes(Announced.plain(np.full(d, 0.1)), 127, values=True))
        site = Site(problem.losses)
        for request in engine.requests:
            tree = unpack(pack(request))
            found.append(Recorded(f"{where}, {name}", snapshot(site), tree))
            site.handle(parcels.load(copy.deepcopy(tree)))
            if "update" in tree and name == "automatic":
                stamps = {part: tree["update"][part] for part in ("versions", "digests")}
                found.append(Recorded(f"{where}, memory", snapshot(site), {"key": tree["key"], "memory": stamps}))
    found += factors(all_problems["graph"])
    return found


def ask_many(problem: fpdfp.Problem) -> None:
    """Ask about several points without a fold of the rows, and for scores of the fold."""
    points, units = np.array([[0.1, 0.0, 0.0, 0.2], [0.0, 0.3, 0.0, 0.0]]), np.full(4, 128, dtype=np.uint8)
    given = points, points != 0, (12, 12), np.array([-1, 1]), np.array([0])
    about = Evaluations.of(*given, units=units, folds=fpdfp.Folds(2))
    clients = clients_of(problem)
    clients.ask(about)
    clients.ask(HeldScores(about, "mse"))
    along: dict[str, Any] = {"shared": np.eye(4)[:1], "steps": np.array([[0.1], [0.0]])}
    plain = dataclasses.replace(about, curved=np.zeros(0, dtype=np.int64))
    clients.ask(DualSums.along(plain, 0.1 * points, wants="gap", shrinks=np.ones(2), **along))


def factors(problem: fpdfp.Problem) -> list[Recorded]:
    """Return questions about coordinates that come as maps."""
    from fpdfp.cohorts import requests as parcels

    gains = precondition.Fourier(np.array([0.1, 0.2, 1.0, 0.2])).factor
    maps = [linops.Diagonal(np.ones(4)), linops.Matrix(np.eye(4)), gains]
    maps.append(linops.Compose(linops.Matrix(np.eye(4)), linops.Diagonal(np.ones(4))))
    asked: list[dict[str, Any]] = [
        {"factor": parcels.dump(one), "batch_size": size} for one in maps for size in (None, 3)
    ]
    return [Recorded(f"constants, {one['factor']['class']}", Site(problem.losses), {"constants": one}) for one in asked]


def snapshot(site: Site) -> Site:
    """Return a copy of a site with the same losses."""
    made = copy.copy(site)
    made.ledgers = [copy.copy(ledger) for ledger in site.ledgers]
    return made


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all that can be replaced."""
    if path:
        yield path
    for name, one in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(one, (*path, name))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def hostile(rng: random.Random, old: Any, others: Sequence[Any]) -> Any:
    """Return something to put in the place of something else; it may be a part of one of the others."""
    match rng.randrange(9):
        case 0:
            return rng.choice([None, True, False, "", "x", "auto", "cpu", "__dict__", b"", b"\x00" * 40, [], {}, [[]]])
        case 1:
            return rng.choice(INTEGERS)
        case 2:
            return rng.choice(FLOATS)
        case 3:
            return [rng.choice(INTEGERS) for _ in range(rng.randrange(1, 5))]
        case 4:
            return an_array(rng)
        case 5 | 6:
            return change(rng, old)
        case _:
            other = rng.choice(others).tree
            return copy.deepcopy(at(other, rng.choice(list(places(other)))))


def an_array(rng: random.Random) -> Any:
    shape = rng.choice(
        [(), (0,), (1,), (3,), (4,), (5,), (10,), (2, 4), (4, 4), (3, 0), (2, 3, 4), (3, 2, 3, 4), (999,)]
    )
    dtype = rng.choice(["?", "u1", "i4", "i8", "f4", "f8"])
    array = np.zeros(shape, dtype=dtype)
    array[...] = rng.choice([0, 1, 2, 100])
    if dtype in ("f4", "f8") and rng.random() < 0.5:
        array[...] = rng.choice([*FLOATS[:5], np.nan, np.inf, -np.inf, 1e38])
    elif dtype in ("i4", "i8") and rng.random() < 0.5:
        array[...] = rng.choice([-1, 2**31 - 1, -(2**31), 3])
    return array


def change(rng: random.Random, old: Any) -> Any:
    """Return something a little different."""
    if isinstance(old, np.ndarray) and old.size:
        new = old.copy()
        match rng.randrange(5):
            case 0:
                new.reshape(-1)[rng.randrange(new.size)] = rng.choice([0, 1, 100])
            case 1 if new.dtype.kind in "fi":
                large = [-1, 2**31 - 1, -(2**31)] if new.dtype.kind == "i" else [np.nan, np.inf, -1.0, 1e38, 0.0]
                new.reshape(-1)[rng.randrange(new.size)] = rng.choice(large)
            case 2:
                new = new.reshape(-1)[: rng.randrange(new.size)]
            case 3:
                new = np.concatenate([new, new])
            case _:
                new = new.astype(rng.choice(["f4", "f8", "i4", "i8", "?"])).reshape(
                    rng.choice([new.shape, (1, *new.shape)])
                )
        return new
    if isinstance(old, bytes) and old:
        data = bytearray(old)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data[: rng.choice([len(data), len(data) - 1, 3])])
    if type(old) is int:
        return old + rng.choice([-2, -1, 1, 2])
    if type(old) is float:
        return old * rng.choice([-1.0, 1e10, 1e-10, 1e200])
    if isinstance(old, list):
        return rng.choice([old + old, old[:-1], old[::-1], [old]])
    if isinstance(old, dict):
        return old | {rng.choice(NAMES): rng.choice([1, [3, 2, 3, 4], {}, np.ones((4, 4))])}
    return [old]


def forge(seed: int, index: int) -> tuple[Recorded, Any]:
    """Return a recorded request, and one that was made of it."""
    rng = random.Random(seed << 40 | index)
    recorded = rng.choice(corpus())
    return recorded, damage(rng, recorded.tree, corpus())


def damage(rng: random.Random, original: Any, others: Sequence[Any]) -> Any:
    """Return a tree in which one to three things are replaced."""
    tree = copy.deepcopy(original)
    for path in rng.choices(list(places(original)), k=rng.choice([1, 1, 1, 1, 2, 3])):
        with contextlib.suppress(LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            parent = at(tree, path[:-1])
            if isinstance(parent, dict) and rng.random() < 0.05:
                del parent[path[-1]]
            elif isinstance(parent, dict) and rng.random() < 0.1:
                parent[rng.choice(NAMES)] = parent[path[-1]]
            else:
                parent[path[-1]] = hostile(rng, parent[path[-1]], others)
    return tree


def ask(recorded: Recorded, tree: Any) -> Any:
    """Return the reply of a site to a request, None if it refuses it; raise AssertionError if it does anything else."""
    site = snapshot(recorded.site)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        return site.handle(parcels.load(copy.deepcopy(tree)))
    except REFUSALS:
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def examine(recorded: Recorded, tree: Any) -> bool:
    """Return whether a request was answered; raise AssertionError if that did harm."""
    reply = ask(recorded, tree)
    if reply is None:
        return False
    if not isinstance(reply, dict) or not set(reply) <= {*questions(), "needs"}:
        raise AssertionError(f"the reply has {sorted(reply)}")
    again = ask(recorded, tree)
    if again is None or pack(reply) != pack(again):
        raise AssertionError("the reply is another one when the request comes again")
    for array in arrays(reply):
        if array.dtype.kind == "f" and np.isin(array.astype(np.float64), secrets(recorded.site)).any():
            raise AssertionError("the reply holds a number of the site's data")
    return True


def arrays(tree: Any) -> Iterator[Any]:
    """Yield the arrays of a reply, and those of its messages."""
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, bytes):
        yield compress.decode(tree)
    elif isinstance(tree, dict | list):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from arrays(one)


def secrets(site: Site) -> Any:
    """Return the numbers that a site must not tell."""
    losses: Any = site.losses
    key = id(losses)
    if key not in _SECRETS:
        data = losses._rows.X if hasattr(losses, "_rows") else np.concatenate([one.ravel() for one in losses._data])
        _SECRETS[key] = np.unique(np.asarray(data, dtype=np.float64))
    return _SECRETS[key]


_SECRETS: dict[int, Any] = {}


def prepare() -> None:
    """Compile what is needed, and have requests end that take too long or too much memory."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def late(*_: Any) -> None:
        raise TimeoutError(f"it took more than {PATIENCE} s")

    signal.signal(signal.SIGALRM, late)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for recorded in corpus():
        assert examine(recorded, recorded.tree), recorded.name


def describe(recorded: Recorded, tree: Any) -> str:
    """Say what a request was made of."""
    return f"{recorded.name}, {sorted(tree)}"
