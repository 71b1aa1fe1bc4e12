"""Penalties of models: objects with a weight, a structure and options, from which g, B and ridges are built."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fpdfp import _checks, linops, penalties
from fpdfp._typing import Array
from fpdfp.datasets import FeatureGraph
from fpdfp.datasets.graph import FORMS, Form
from fpdfp.errors import ArgumentError, ArgumentTypeError


class Names(NamedTuple):
    """The names of the features, and the term of the formula that each belongs to (itself without a formula)."""

    features: Sequence[str]
    terms: Sequence[str]

    def look_up(self, argument: str, given: Mapping[Any, Any], default: Any, *others: str) -> list[Any]:
        """Return what is given for each feature, by its name or by its term, then for the other names allowed."""
        known = {*self.features, *self.terms, *others}
        strange = [str(name) for name in given if str(name) not in known]
        if strange:
            listed = ", ".join(map(repr, [*self.features, *others][:8]))
            raise ArgumentError(f"{argument}:", f"{strange[0]!r} is not a feature or term; features are {listed}")
        by_name = {str(name): value for name, value in given.items()}
        pairs = zip(self.features, self.terms, strict=True)
        found = [by_name.get(name, by_name.get(term, default)) for name, term in pairs]
        return found + [by_name.get(name, default) for name in others]

    def numbers(self, argument: str, given: Any, default: float, *, infinite: bool = False) -> Array:
        """Return a number for each feature, of one for all, an array, or a dictionary."""
        values = self.look_up(argument, given, default) if isinstance(given, Mapping) else given
        array = _floats(argument, values, infinite=infinite)
        if array.shape not in ((), (len(self.features),)):
            raise ArgumentError(
                argument, f"must have a number for each of the {len(self.features)} features, got shape {array.shape}"
            )
        return np.broadcast_to(array, (len(self.features),)).copy()


class Limits(NamedTuple):
    """The least and the largest value that each coefficient may have."""

    lower: Array
    upper: Array


def find_factors(given: Any, names: Names) -> Array:
    """Return the factor of each feature's penalty, 1 where nothing is said."""
    if given is None:
        return np.ones(len(names.features))
    factors = names.numbers("factors", given, 1.0)
    if (factors < 0).any():
        raise ArgumentError("factors", f"must be at least 0, got {factors.min():g}")
    return factors


def find_limits(given: Any, names: Names) -> Limits | None:
    """Return the limits of each coefficient, None if missing at all."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        free = (-np.inf, np.inf)
        pairs = [_pair(pair) for pair in names.look_up("bounds", given, free)]
        lower, upper = (np.array([pair[i] for pair in pairs], dtype=np.float64) for i in range(2))
    else:
        first, second = _pair(given)
        lower = names.numbers("bounds", -np.inf if first is None else first, 0.0, infinite=True)
        upper = names.numbers("bounds", np.inf if second is None else second, 0.0, infinite=True)
    wrong = np.flatnonzero((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if wrong.size:
        j = int(wrong[0])
        raise ArgumentError(
            "bounds",
            f"must leave a value to every coefficient, got {lower[j]:g} to {upper[j]:g} for {names.features[j]}",
        )
    return None if np.isinf(lower).all() and np.isinf(upper).all() else Limits(lower, upper)


def find_start(given: Any, names: Names, *, intercept: bool, classes: int | None) -> Array | None:
    """Return the values that coefficients start from, the intercept last if there is one; None for the usual start."""
    if given is None:
        return None
    d = len(names.features)
    more = int(intercept)
    if isinstance(given, Mapping):
        if classes is not None:
            raise ArgumentError("start", f"must be an array with a row for each of the {classes} classes")
        others = ("Intercept",) if intercept else ()
        return _floats("start", names.look_up("start", given, 0.0, *others))
    array = _floats("start", given)
    rows = () if classes is None else (classes,)
    if array.shape == (*rows, d) and more:
        array = np.concatenate([array, np.zeros((*rows, 1))], axis=-1)
    if array.shape != (*rows, d + more):
        beside = ", and perhaps the intercept after them" if intercept else ""
        raise ArgumentError(
            "start", f"must have shape {(*rows, d)}, one for each coefficient{beside}, got {array.shape}"
        )
    return array


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str) or len(given) != 2:
        raise ArgumentError(
            "bounds", "must be a pair (lower, upper) of numbers or arrays, or a dictionary of such pairs"
        )
    return tuple(_limit(one, i) if np.ndim(one) == 0 else one for i, one in enumerate(given))  # type: ignore[return-value]


def _limit(given: Any, side: int) -> float:
    return (-np.inf, np.inf)[side] if given is None else float(_floats("bounds", given, infinite=True))


def _floats(argument: str, values: Any, *, infinite: bool = False) -> Array:
    if not infinite:
        return _checks.float_array(argument, values, dtype=np.float64)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(argument, "must be numbers") from None
    if np.isnan(array).any():
        raise ArgumentError(argument, "must not be NaN")
    return array


Name = Literal[
    "graph", "fused", "group", "sparse group", "l1", "elasticnet", "mcp", "scad", "ridge", "firth", "none",
]  # fmt: skip
#: The weight of a penalty that is given without one.
WEIGHT = 1e-3
#: The most l1 problems of a concave penalty, and the change of weights, relative to that of the penalty, at which
#: they have settled.
STEPS, SETTLED = 50, 1e-6


class Structure(NamedTuple):
    """The penalty of a model: g, B (None: the identity), and the ridge of each column."""

    penalty: penalties.Penalty
    linop: linops.LinOp | None
    ridge: Array

    def restrain(
        self, columns: Columns, limits: Limits | None, ridge: float = 0.0, *, absorb: bool = False
    ) -> Structure:
        """Return the same with limits of the features' coefficients, and a ridge of the intercepts of sites.

        With ``absorb`` the ridge of columns becomes a part of the penalty, so that losses need not have it.
        """
        if absorb and self.ridge.any():
            own = np.concatenate([self.ridge, np.zeros(columns.all - len(self.ridge))])
            return self._replace(ridge=np.zeros_like(self.ridge))._add(columns, limits, own)
        if limits is None and not ridge:
            return self
        l2 = np.zeros(columns.all)
        l2[columns.of_rows - columns.effects : columns.of_rows] = ridge
        return self._add(columns, limits, l2)

    def _add(self, columns: Columns, limits: Limits | None, l2: Array) -> Structure:
        """Return the same with limits, and a ridge of each column as a part of the penalty."""
        lower, upper = np.full(columns.all, -np.inf), np.full(columns.all, np.inf)
        if limits is not None:
            lower[: columns.features], upper[: columns.features] = limits
        entries = [columns.repeat(one) for one in (l2, lower, upper)]
        if self.linop is None and isinstance(self.penalty, penalties.Zero | penalties.L1):
            l1 = self.penalty.weight if isinstance(self.penalty, penalties.L1) else 0.0
            return self._replace(penalty=penalties.ElasticNet(l1, *entries))
        shape = entries[0].shape
        first = linops.Identity(shape) if self.linop is None else self.linop
        both = penalties.Stacked([self.penalty, penalties.ElasticNet(0.0, *entries)], [first.out_shape, shape])
        return self._replace(penalty=both, linop=linops.VStack([first, linops.Identity(shape)]))


class Columns(NamedTuple):
    """The columns of the model: features, perhaps an intercept after them, intercepts of sites, and thresholds.

    ``classes`` is the number of classes that have coefficients each: x has a row for each, or is all of these one after
    the other if it is ``flat``. Thresholds have no column of rows. Nothing of them and of intercepts is penalised,
    except intercepts of sites if they are ``random``.
    """

    features: int
    intercept: bool
    classes: int | None = None
    effects: int = 0
    thresholds: int = 0
    flat: bool = False
    random: bool = False

    @property
    def of_rows(self) -> int:
        """The number of columns that rows have."""
        return self.features + int(self.intercept) + self.effects

    @property
    def all(self) -> int:
        """The number of coefficients, of one class if classes have their own."""
        return self.of_rows + self.thresholds

    def square(self, ridge: Array, x: Array) -> float:
        """Return Σ r_j x_j² over the columns of rows, and over classes."""
        return float((ridge * x.reshape(-1, self.all)[:, : self.of_rows] ** 2).sum())

    def spread(self, of_features: Any) -> Array:
        """Weights of the features, with 0 for the intercept, for every class."""
        weights = np.zeros(self.all)
        weights[: self.features] = of_features
        return self.repeat(weights)

    def repeat(self, values: Array) -> Array:
        """The same for every class."""
        if self.classes is None:
            return values
        return np.tile(values, self.classes if self.flat else (self.classes, 1))

    def map(self, matrix: Any) -> linops.LinOp:
        """A sparse matrix over the features as a map of the model, class by class."""
        wide = matrix.tocsr(copy=True)
        wide.resize(matrix.shape[0], self.all)
        if self.flat and self.classes is not None:
            import scipy.sparse

            return linops.Matrix(scipy.sparse.kron(scipy.sparse.eye_array(self.classes), wide, format="csr"))
        return linops.Matrix(wide) if self.classes is None else linops.EachRow(wide, self.classes)


class Details(NamedTuple):
    """The part of a design that a penalty needs.

    Attributes
    ----------
    factors
        What multiplies the penalty of each feature.
    groups
        The label of each feature's group; None where nothing says it.
    graph
        The graph of the features, for a penalty that has one.
    """

    factors: Array
    groups: Any = None
    graph: FeatureGraph | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class ModelPenalty(abc.ABC):
    r"""Base class of the penalties of models.

    Parameters
    ----------
    weight
        Its weight; None for 0.001, or where it is chosen (cross-validation, paths). With weight 0 nothing is penalised.
    factors
        What multiplies the penalty of each feature, ``l2`` included: an array, or a dictionary by feature or by term of
        the formula (1 for all others). 0 is not penalised. The features of a group must have the same factor; of
        :class:`Fused` and :class:`Graph` it is for the part ``l1``.
    """

    weight: float | None = None
    _: dataclasses.KW_ONLY
    factors: Any = None

    #: How it is called in ``penalty="l1"`` and in summaries.
    name: ClassVar[str]
    #: The options that may be lists, from which a cross-validation chooses.
    mixed: ClassVar[tuple[str, ...]] = ()
    #: The weight of an additional ridge.
    l2: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if self.weight is not None:
            _checks.real("weight", self.weight, at_least=0.0)
        _checks.real("l2", self.l2, at_least=0.0)
        for name in self.mixed:
            given = getattr(self, name)
            for value in given if isinstance(given, list | tuple | np.ndarray) else [given]:
                _checks.real(name, value, at_least=0.0)
                if name == "l1_ratio" and value > 1.0:
                    raise ArgumentError("l1_ratio", f"must be a number from 0 to 1, got {value:g}")

    @property
    def strength(self) -> float:
        """The weight, that by default included."""
        return WEIGHT if self.weight is None else float(self.weight)

    @property
    def penalises(self) -> bool:
        """Whether anything is penalised at all."""
        return bool(self.strength) or bool(self.l2)

    @property
    def is_concave(self) -> bool:
        """Whether it is minimised by a sequence of l1 problems."""
        return False

    def mixings(self) -> list[dict[str, float]]:
        """Return all combinations of the options that are lists."""
        lists = [np.atleast_1d(getattr(self, name)).tolist() for name in self.mixed]
        return [dict(zip(self.mixed, values, strict=True)) for values in itertools.product(*lists)]

    def with_options(self, weight: float, **mixing: float) -> Self:
        """Return the same penalty with a weight, and with one choice of options."""
        return dataclasses.replace(self, weight=float(weight), **mixing)  # type: ignore[arg-type]

    def describe(self) -> str:
        """Return name, weight and options as a summary shows them."""
        if not self.strength:
            return f"l2={self.l2:g}" if self.l2 else "none"
        words = f"{self.name}, weight={self.strength:g}"
        words += "".join(f", {name}={getattr(self, name):g}" for name in self.mixed if name == "l1_ratio")
        return f"{words}, l2={self.l2:g}" if self.l2 else words

    def build(self, columns: Columns, details: Details) -> Structure:
        """Return g, B and the ridge of each column for the columns of a model."""
        ridge = np.zeros(columns.of_rows)
        ridge[: columns.features] = self._ridge * details.factors
        g, B = self._build(columns, details)
        return Structure(g, B, ridge)

    @property
    def _ridge(self) -> float:
        return self.l2

    @abc.abstractmethod
    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        """Return g and B."""

    def _l1(self, columns: Columns, details: Details, share: float = 1.0) -> penalties.L1:
        return penalties.L1(columns.spread(self.strength * share * details.factors))


class NoPenalty(ModelPenalty):
    """Nothing is penalised; ``penalty="none"``."""

    name = "none"

    @property
    def strength(self) -> float:
        """Zero."""
        return 0.0

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        return penalties.Zero(), None


class Firth(NoPenalty):
    """Half the logarithm of the determinant of the information, of Firth (1993); ``penalty="firth"``.

    For logistic, Poisson and Cox models: estimates are finite where outcomes are separated, and less biased where rows
    are few. It has no weight. Standard errors come from the information at the estimates; for separated outcomes
    use :meth:`fpdfp.FederatedGLM.profile_intervals`, by the penalised likelihood.

    Examples
    --------
    >>> import fpdfp
    >>> model = fpdfp.FederatedLogisticRegression("firth").fit([[0.0], [0.0], [1.0], [1.0]], [0, 0, 1, 1])
    >>> model.coef_.round(4)
    array([[3.2189]])
    """

    name = "firth"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight", "factors"):
            if getattr(self, name) is not None:
                raise ArgumentError(name, "must be None: Firth's penalty has none")

    def describe(self) -> str:
        """Return the name as a summary shows it."""
        return "Firth's"


class L1(ModelPenalty):
    r"""The lasso: :math:`α\|w\|_1` with α = ``weight``; ``penalty="l1"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.FederatedLinearRegression(fpdfp.L1(0.1, factors={"age": 0})).penalty.weight
    0.1
    """

    name = "l1"

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        return self._l1(columns, details), None


class Ridge(ModelPenalty):
    r""":math:`\frac{α}{2}\|w\|^2` with α = ``weight``; ``penalty="ridge"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    """

    name = "ridge"

    @property
    def _ridge(self) -> float:
        return self.strength

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        return penalties.Zero(), None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ElasticNet(ModelPenalty):
    r""":math:`α(r\|w\|_1 + \frac{1-r}{2}\|w\|^2)` with α = ``weight``, r = ``l1_ratio``; ``penalty="elasticnet"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    l1_ratio
        r, from 0 to 1; for a cross-validation a number, or a list of numbers to choose from.
    """

    l1_ratio: float | Sequence[float] = 0.5

    name = "elasticnet"
    mixed = ("l1_ratio",)

    @property
    def _ridge(self) -> float:
        return self.strength * (1.0 - _one(self.l1_ratio))

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        return self._l1(columns, details, _one(self.l1_ratio)), None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Concave(ModelPenalty):
    """Penalties with the slope ``weight`` at 0 and none for large coefficients, which are hardly shrunk."""

    concavity: float | None = None
    l2: float = 0.0  # type: ignore[misc]

    #: The concavity by default, and what it must be above.
    usual: ClassVar[float]
    least: ClassVar[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.concavity is not None and _checks.real("concavity", self.concavity) <= self.least:
            raise ArgumentError("concavity", f"must be above {self.least:g} for {self.name}, got {self.concavity:g}")

    @property
    def is_concave(self) -> bool:
        """True, if the weight is not zero."""
        return self.strength > 0

    @property
    def bend(self) -> float:
        """The concavity, that by default included."""
        return self.usual if self.concavity is None else float(self.concavity)

    @abc.abstractmethod
    def slopes(self, x: Array, weight: Array) -> Array:
        """Return the slope of the penalty at the size of x, where ``weight`` is the slope at 0."""

    @abc.abstractmethod
    def values(self, x: Array, weight: Array) -> Array:
        """Return the penalty of each coefficient: the integral of :meth:`slopes`."""

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        return self._l1(columns, details), None


class MCP(Concave):
    r"""The minimax concave penalty (Zhang 2010), with the slope ``weight`` at 0; ``penalty="mcp"``.

    Minimised by local linear approximation (Zou and Li 2008): l1 problems with a weight for each coefficient, the slope
    of the penalty where the last problem ended, until weights settle or 50 were solved. The first is the lasso, or has
    the slopes at ``start``. Each step decreases the objective, and where weights settle the end is a stationary point;
    it need not be the least value, and depends on the start.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    concavity
        γ, above 1, by default 3: the slope is 0 from γ times the weight on.
    l2
        The weight of an additional :math:`\frac{1}{2}\|w\|^2`.
    """

    name = "mcp"
    usual, least = 3.0, 1.0

    def slopes(self, x: Array, weight: Array) -> Array:
        """Return the slope of the penalty at the size of x, where ``weight`` is the slope at 0.

        >>> MCP().slopes(np.array([0.0, 1.5, 9.0]), np.ones(3))
        array([1. , 0.5, 0. ])
        """
        found: Array = np.maximum(weight - np.abs(x) / self.bend, 0.0)
        return found

    def values(self, x: Array, weight: Array) -> Array:
        """Return the penalty of each coefficient: the integral of :meth:`slopes`.

        >>> MCP().values(np.array([0.0, 3.0, 9.0]), np.ones(3))
        array([0. , 1.5, 1.5])
        """
        near = np.minimum(np.abs(x), self.bend * weight)
        flat: Array = weight * near - near**2 / (2.0 * self.bend)
        return flat


class SCAD(Concave):
    r"""The smoothly clipped absolute deviation (Fan and Li 2001); ``penalty="scad"``; minimised as :class:`MCP` is.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    concavity
        a, above 2, by default 3.7: the slope is 0 from a times the weight on.
    l2
        The weight of an additional :math:`\frac{1}{2}\|w\|^2`.
    """

    name = "scad"
    usual, least = 3.7, 2.0

    def slopes(self, x: Array, weight: Array) -> Array:
        """Return the slope of the penalty at the size of x, where ``weight`` is the slope at 0.

        >>> SCAD().slopes(np.array([0.5, 2.35, 9.0]), np.ones(3))
        array([1. , 0.5, 0. ])
        """
        size, a = np.abs(x), self.bend
        beyond = np.maximum(a * weight - size, 0.0) / (a - 1.0)
        return np.where(size <= weight, weight, beyond)

    def values(self, x: Array, weight: Array) -> Array:
        """Return the penalty of each coefficient: the integral of :meth:`slopes`.

        >>> SCAD().values(np.array([1.0, 3.7, 9.0]), np.ones(3))
        array([1.  , 2.35, 2.35])
        """
        size, a = np.abs(x), self.bend
        first, second = np.minimum(size, weight), np.clip(size, weight, a * weight) - weight
        whole: Array = weight * first + weight * second - second**2 / (2.0 * (a - 1.0))
        return whole


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Group(ModelPenalty):
    r""":math:`α\sum_g \sqrt{d_g}\,\|w_g\|` over groups g of d_g coefficients, α = ``weight``; ``penalty="group"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    groups
        The label of each feature's group; with a formula also a dictionary by feature or term, and by default terms are
        the groups. Coefficients of several classes for the same feature are in one group.
    l2
        The weight of an additional :math:`\frac{1}{2}\|w\|^2`.
    """

    groups: Any = None
    l2: float = 0.0  # type: ignore[misc]

    name = "group"

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        codes, weights = _groups(self.name, columns, self.strength, details)
        return penalties.GroupL12(weights, groups=codes), None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class SparseGroup(Group):
    r""":math:`α(r\|w\|_1 + (1-r)\sum_g \sqrt{d_g}\,\|w_g\|)`, r = ``l1_ratio``; ``penalty="sparse group"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    groups, l2
        As of :class:`Group`.
    l1_ratio
        r, from 0 to 1; for a cross-validation a number, or a list of numbers to choose from.
    """

    l1_ratio: float | Sequence[float] = 0.5

    name = "sparse group"
    mixed = ("l1_ratio",)

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        share = _one(self.l1_ratio)
        codes, weights = _groups(self.name, columns, self.strength * (1.0 - share), details)
        single = columns.spread(self.strength * share * details.factors)
        return penalties.SparseGroup(single, weights, groups=codes), None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Fused(ModelPenalty):
    r""":math:`α(\sum_j |w_{j+1} - w_j| + c\|w\|_1)`, α = ``weight``, c = ``l1``; ``penalty="fused"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    l1
        c; for a cross-validation a number, or a list of numbers to choose from.
    l2
        The weight of an additional :math:`\frac{1}{2}\|w\|^2`.
    """

    l1: float | Sequence[float] = 1.0
    l2: float = 0.0  # type: ignore[misc]

    name = "fused"
    mixed = ("l1",)

    def _matrix(self, columns: Columns, details: Details) -> Any:
        return differences(columns.features)

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        import scipy.sparse

        edges, single = self._matrix(columns, details), _one(self.l1)
        parts, weights = [edges], [np.full(edges.shape[0], self.strength)]
        if single > 0 or edges.shape[0] == 0:
            parts.append(scipy.sparse.eye_array(columns.features))
            weights.append(self.strength * single * details.factors)
        B = scipy.sparse.vstack(parts).tocsr()
        return penalties.L1(columns.repeat(np.concatenate(weights))), columns.map(B)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Graph(Fused):
    r""":math:`α(\|Gw\|_1 + c\|w\|_1)` with G a graph of the features, c = ``l1``; ``penalty="graph"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`.
    l1, l2
        As of :class:`Fused`.
    graph
        Anything that :func:`fpdfp.datasets.as_graph` accepts (a matrix of weights, a list of edges, a networkx graph;
        features by number, or by name if X has column names). By default it is estimated: each site sends the moments
        of its features, and the graphical lasso is applied to their sum.
    form
        ``"weights"``: G is the matrix of weights, as in the paper; ``"differences"``: a row w_i ∓ w_j for each edge.
    sparsity
        The penalty of the graphical lasso: larger means fewer edges.

    Examples
    --------
    >>> import fpdfp
    >>> chain = fpdfp.Graph(weight=0.01, l1=0.5, graph=[(0, 1), (1, 2)], form="differences")
    >>> chain.describe()
    'graph, weight=0.01'
    """

    graph: Any = None
    form: Form = "weights"
    sparsity: float = 0.1

    name = "graph"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.choice("form", self.form, FORMS)
        _checks.real("sparsity", self.sparsity, positive=True)

    def _matrix(self, columns: Columns, details: Details) -> Any:
        assert details.graph is not None
        return details.graph.structure(self.form)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TotalVariation(ModelPenalty):
    r""":math:`α(\sum_j \|(\nabla w)_j\| + c\|w\|_1)` for images (TV-l1), α = ``weight``, c = ``l1``.

    The features are the voxels of a mask, in C order: ``images[:, mask]``. Coefficients are a map that is constant in
    pieces, and zero in most places where c > 0: of standardised voxels, unless ``standardize=False``. Gradients are
    differences of neighbours inside the mask. For the vertices of a surface use :class:`Graph` with
    ``form="differences"``.

    Parameters
    ----------
    weight, factors
        As of every penalty: :class:`fpdfp.models.penalty.ModelPenalty`; ``factors`` are for the part ``l1``.
    mask
        The voxels that have coefficients: an array of truth values of 1, 2 or 3 axes.
    isotropic
        Whether the lengths of gradients are added up, or the absolute differences along every axis (the fused penalty).
    l1, l2
        As of :class:`Fused`.

    References
    ----------
    L. Baldassarre, J. Mourao-Miranda and M. Pontil, "Structured sparsity models for brain decoding from fMRI data",
    PRNI 2012; A. Gramfort, B. Thirion and G. Varoquaux, "Identifying predictive regions from fMRI with TV-L1 prior",
    PRNI 2013.

    Examples
    --------
    >>> import fpdfp
    >>> cohort = fpdfp.datasets.image_cohort((8, 8), subjects=120, sites=3)
    >>> penalty = fpdfp.TotalVariation(weight=0.01, mask=cohort.mask)
    >>> model = fpdfp.FederatedLogisticRegression(penalty, run=fpdfp.RunOptions(tol=1e-3))
    >>> model = model.fit(cohort.images, cohort.outcomes, cohort.sites)
    >>> penalty.unmask(model.coef_).shape
    (8, 8)
    """

    mask: Any
    isotropic: bool = True
    l1: float | Sequence[float] = 1.0
    l2: float = 0.0  # type: ignore[misc]

    name = "tv"
    mixed = ("l1",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.flag("isotropic", self.isotropic)
        linops.MaskedGradient(self.mask)

    def unmask(self, values: Any) -> Array:
        """Return values of the mask's voxels, such as ``model.coef_``, as an image that is 0 outside."""
        mask, entries = np.asarray(self.mask), np.asarray(values).ravel()
        if entries.size != int(mask.sum()):
            raise ArgumentError("values", f"must be {int(mask.sum())} numbers, one for each voxel, got {entries.size}")
        image: Array = np.zeros(mask.shape, dtype=entries.dtype)
        image[mask] = entries
        return image

    def _build(self, columns: Columns, details: Details) -> tuple[penalties.Penalty, linops.LinOp | None]:
        gradient = linops.MaskedGradient(self.mask, others=columns.all - columns.features)
        voxels = gradient.out_shape[1]
        if columns.classes is not None:
            raise ArgumentError("penalty", "must not be a total variation where each class has coefficients of its own")
        if voxels != columns.features:
            raise ArgumentError(
                "mask", f"must have as many voxels as there are features, {columns.features}, got {voxels}"
            )
        across: penalties.Penalty = penalties.L1(self.strength)
        if self.isotropic:
            across = penalties.GroupL12(self.strength, axis=0)
        single = _one(self.l1)
        if not single:
            return across, gradient
        both = penalties.Stacked([across, self._l1(columns, details, single)], [gradient.out_shape, gradient.in_shape])
        return both, linops.VStack([gradient, linops.Identity(gradient.in_shape)])


#: The penalties by their names.
KINDS: dict[str, type[ModelPenalty]] = {
    kind.name: kind for kind in (Graph, Fused, Group, SparseGroup, L1, ElasticNet, MCP, SCAD, Ridge, Firth, NoPenalty)
}  # fmt: skip


def as_model_penalty(given: Any) -> ModelPenalty:
    """Return the penalty that a name or an object means.

    >>> as_model_penalty("l1").strength
    0.001
    """
    if isinstance(given, str):
        return KINDS[_checks.choice("penalty", given, tuple(KINDS))]()
    if isinstance(given, ModelPenalty):
        return given
    kinds: list[type[ModelPenalty]] = [*(one for one in KINDS.values() if one is not NoPenalty), TotalVariation]
    names = ", ".join(f"fpdfp.{kind.__name__}" for kind in kinds)
    hint = ""
    if isinstance(given, penalties.Penalty):
        hint = "; one of fpdfp.penalties is for fpdfp.Problem"
    raise ArgumentTypeError("penalty", f"must be a name or one of {names}, got {type(given).__name__}{hint}")


def differences(features: int) -> Any:
    """The (d − 1) × d matrix of the fused lasso."""
    import scipy.sparse

    ones = np.ones(max(features - 1, 0))
    return scipy.sparse.diags_array([-ones, ones], offsets=[0, 1], shape=(features - 1, features)).tocsr()


def no_edges(features: int) -> FeatureGraph:
    """The graph without edges."""
    import scipy.sparse

    return FeatureGraph(scipy.sparse.csr_array((features, features)))


def _one(given: float | Sequence[float]) -> float:
    assert isinstance(given, int | float | np.floating | np.integer)
    return float(given)


def _groups(name: str, columns: Columns, weight: float, details: Details) -> tuple[Array, Array]:
    """Return the group of each entry, and the weights of groups: theirs times the root of their size, and a factor."""
    if details.groups is None:
        raise ArgumentError("groups", f"must name the group of each feature for the penalty {name!r}, got None")
    labels = np.asarray(details.groups)
    if labels.shape != (columns.features,):
        raise ArgumentError(
            "groups", f"must have one label for each of the {columns.features} features, got shape {labels.shape}"
        )
    names, codes = _checks.labels("groups", labels)
    of_groups = np.zeros(len(names))
    of_groups[codes] = details.factors
    odd = np.flatnonzero(of_groups[codes] != details.factors)
    if odd.size:
        raise ArgumentError(
            "factors", f"must be the same for all features of a group, but not in {str(names[codes[odd[0]]])!r}"
        )
    weights = weight * np.sqrt(np.bincount(codes) * (columns.classes or 1)) * of_groups
    free = columns.all - columns.features
    if free:
        codes, weights = np.append(codes, np.full(free, len(names))), np.append(weights, 0.0)
    return columns.repeat(codes), weights
