"""Kinds of outcomes: losses, the layout of its coefficients, their names, and its predictions."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.families import Binomial, Family
from fpdfp.federation.questions import Family as Loss
from fpdfp.federation.table import Predictor
from fpdfp.losses import GLM, Cox, LeastSquares, Logistic, Losses, Multinomial, Ordinal, Softmax
from fpdfp.losses.classes import LINKS, Link, base_of
from fpdfp.losses.cox import Ties
from fpdfp.models.penalty import Columns
from fpdfp.models.rows import column, effects_of
from fpdfp.survival import Times
from fpdfp.survival.counts import name_periods

if TYPE_CHECKING:
    from fpdfp.models.result import FitResult

SiteEffects = Literal["none", "fixed", "random"]


class Scaled(NamedTuple):
    """The centres and scales of features (1 for constant ones)."""

    centre: Array
    scale: Array


class Coefficients(NamedTuple):
    """Coefficients of the given features, intercepts of the model and of sites, and thresholds of ordered classes."""

    coef: Array
    intercept: Any
    effects: Array
    thresholds: Array | None = None


class Data(NamedTuple):
    """Properties of the rows of a matrix besides their features."""

    y: Array
    weights: Array | None = None
    scale: float = 1.0
    offset: Array | None = None
    times: Times | None = None
    strata: Array | None = None
    clusters: Any = None
    kept: Array | None = None


@dataclasses.dataclass(frozen=True)
class ClassLikelihood:
    """The interface of classes for inference: the deviance is −2 log-likelihood."""

    name: str
    link: str
    has_dispersion: bool = False
    is_likelihood: bool = True

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the log-likelihood."""
        return -0.5 * deviance


class PartialLikelihood:
    """The interface of event times for inference."""

    name, link, has_dispersion, is_likelihood = "Cox", "log", False, True

    @staticmethod
    def log_likelihood(deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the partial log-likelihood."""
        return saturated - 0.5 * deviance


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome(abc.ABC):
    """A kind of outcome.

    Attributes
    ----------
    survives
        Whether the response of a formula is the time of an event.
    exact
        Whether a fit without a given method takes Newton steps, penalties or not.
    has_constant
        Whether the model has intercepts among its public coefficients.
    has_information
        Whether the information of the fit belongs to coefficients of features as given: then ``back`` returns a matrix.
    """

    survives: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    has_constant: ClassVar[bool] = True
    has_information: ClassVar[bool] = True
    #: The labels of classes, None for other outcomes.
    classes: Array | None = None

    @property
    @abc.abstractmethod
    def loss(self) -> Loss:
        """The losses, by the name that sites know."""

    @property
    def newton(self) -> bool:
        """Whether a fit without a given method takes Newton steps."""
        return self.exact

    @property
    def likelihood(self) -> Any:
        """The family of outcomes as inference knows it; None without standard errors."""
        return None

    @property
    def family(self) -> Family | None:
        """The family of a generalised linear model."""
        return None

    @property
    def stratifies(self) -> bool:
        """Whether folds are to have equal shares of outcomes: of classes, or of events."""
        return True

    def describe(self) -> dict[str, Any]:
        """Return what else shows sites their losses (fields of ``ModelSpec``)."""
        return {}

    @abc.abstractmethod
    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        """Return the columns of the model."""

    @abc.abstractmethod
    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        """Return the losses of the rows of a matrix."""

    @abc.abstractmethod
    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        """Return the coefficients that x, of a run, stands for; ``within`` puts them within their limits."""

    def take_many(
        self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """Return coefficients and intercepts of many solutions, of several classes with an axis for these."""
        shape = () if columns.classes is None else (columns.classes,)
        model = np.array([undo(one, columns, scaled, within) for one in x.reshape(len(x), *shape, columns.all)])
        model = model.reshape(len(x), *shape, -1)
        return model[..., :-1], model[..., -1]

    def back(self, columns: Columns, scaled: Scaled) -> Array | None:
        """Return the matrix that takes x to coefficients of features as given; None without information."""
        return unscale(columns, scaled)

    def shift(self, columns: Columns) -> Array:
        """Return what is added to x before :meth:`back` takes it to coefficients."""
        return np.zeros(columns.all * (columns.classes or 1))

    def may_centre(self, columns: Columns) -> bool:
        """Whether features may be centred: an intercept, thresholds or a baseline take up the difference."""
        return columns.intercept or not self.has_constant

    def null_places(self, columns: Columns) -> IntArray:
        """Return which entries of x the model without features has."""
        return np.array([columns.features] if columns.intercept else [], dtype=np.int64)

    @property
    def has_zero_model(self) -> bool:
        """Whether there is a model at x = 0."""
        return True

    def path_labels(self) -> tuple[str, ...]:
        """Return the names of the classes that have coefficients each; none where there is one vector of them."""
        return ()

    def effect_names(self, sites: Sequence[str], count: int) -> list[str]:
        """Return the names of the columns after the intercept."""
        return [f"site[{name}]" for name in list(sites)[len(sites) - count :]] if count else []

    def names_of_x(self, features: Sequence[str], *, intercept: bool, effects: Sequence[str]) -> list[str]:
        """Return the names of the entries of x, in its order."""
        return [*features, *(["Intercept"] if intercept else []), *effects]

    def names_of(self, fit: FitResult) -> list[str]:
        """Return the names of the coefficients of a fit that have standard errors, in the order of x."""
        effects = self.effect_names(fit.site_names, fit.fixed_effects.shape[-1])
        return self.names_of_x(fit.names.features, intercept=fit.has_intercept, effects=effects)

    def values(self, fit: FitResult) -> Array:
        """Return the coefficients in the order of :meth:`names_of_x`."""
        constant = np.atleast_1d(fit.intercept) if fit.has_intercept else np.zeros(0)
        return np.concatenate([fit.coef.ravel(), constant, fit.fixed_effects])

    def place(self, values: Array, fit: FitResult) -> dict[str, Any]:
        """Return the fields of a fit whose :meth:`values` are given: coefficients, intercepts, effects, thresholds."""
        d = fit.coef.size
        coef, constant, effects = np.split(values, [d, d + int(fit.has_intercept)])
        found: dict[str, Any] = {"coef": coef.reshape(fit.coef.shape), "effects": effects}
        if fit.has_intercept:
            found["intercept"] = (
                constant.reshape(np.shape(fit.intercept)) if np.ndim(fit.intercept) else float(constant[0])
            )
        return found

    def coefficients(self, fit: FitResult) -> dict[str, Any]:
        """Return the coefficients by name, the intercept first."""
        names = self.effect_names(fit.site_names, fit.effects.shape[-1])
        (row,) = fit.rows_by_name()
        return row | dict(zip(names, map(float, fit.effects), strict=True))

    def order(self, names: list[str]) -> list[int]:
        """Return the order in which coefficients are shown: the intercept first."""
        return sorted(range(len(names)), key=lambda j: names[j] != "Intercept")

    def alias_order(self, names: list[str]) -> list[int]:
        """Return the order in which coefficients are kept that later ones may be determined by."""
        return self.order(names)

    def is_intercept(self, name: str, fit: FitResult) -> bool:
        """Whether a coefficient is an intercept, of all rows or of a site: nothing of these is penalised."""
        return name == "Intercept" or name.startswith("site[")

    @abc.abstractmethod
    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        """Return the model as sites have it, with the number of its columns: features, intercept, effects of sites."""

    @abc.abstractmethod
    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        """Return the linear predictors of rows."""

    @abc.abstractmethod
    def respond(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        """Return what is predicted for rows: a number, or a class."""

    def chances(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        """Return the logarithms of the probabilities of classes."""
        raise ArgumentError("model", f"must have classes to predict probabilities, and {self.loss} does not")


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers(Outcome):
    """Outcomes of a generalised linear model.

    Attributes
    ----------
    distribution
        The family.
    glm
        Whether losses come from a family; otherwise they are squares.
    effects
        Which intercepts sites have.
    periods
        The edges of periods, for times of events in discrete time.
    """

    distribution: Family = dataclasses.field(kw_only=True)
    glm: bool = True
    effects: SiteEffects = "none"
    periods: tuple[float, ...] = ()

    @property
    def loss(self) -> Loss:
        return "GLM" if self.glm else "LeastSquares"

    @property
    def newton(self) -> bool:
        return self.glm

    @property
    def likelihood(self) -> Any:
        return self.distribution

    @property
    def family(self) -> Family | None:
        return self.distribution if self.glm else None

    @property
    def stratifies(self) -> bool:
        return bool(self.periods) or isinstance(self.distribution, Binomial)

    def describe(self) -> dict[str, Any]:
        return {"periods": self.periods} if self.periods else {}

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        return Columns(features, intercept, None, effects + len(name_periods(self.periods)), random=random)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        if not self.glm:
            return LeastSquares(X, data.y, clients=owner, l2=ridge)
        return GLM(
            X, data.y, clients=owner, family=self.distribution, l2=ridge, weights=data.weights,
            weight_scale=data.scale, offset=data.offset,
        )  # fmt: skip

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        (row,) = undo(x, columns, scaled, within)
        return Coefficients(row[:-1], float(row[-1]), x[len(x) - columns.effects :].astype(np.float64))

    def may_centre(self, columns: Columns) -> bool:
        return columns.intercept or bool(self.periods)

    @property
    def has_zero_model(self) -> bool:
        """Whether the mean at 0, as in the null model without an intercept, is possible."""
        mean = self.distribution.mean(np.zeros(1))
        return bool(np.isfinite(mean).all() and (self.distribution.variance(mean) > 0).all())

    def effect_names(self, sites: Sequence[str], count: int) -> list[str]:
        return name_periods(self.periods) or super().effect_names(sites, count)

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        coef, constant = np.ravel(fit.coef), float(np.ravel(fit.intercept)[0])
        if self.periods:
            return Predictor("GLM", np.concatenate([coef, effects + constant]), family=self.family), len(coef) + len(
                effects
            )
        x = np.concatenate([coef, [constant], effects])
        return Predictor(self.loss, x, family=self.family), len(x)

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        scores = fit.shift(fit.scores(X)[:, 0], X, offset)
        if self.effects == "none":
            return scores
        random = self.effects == "random"
        return scores + effects_of(site, fit.sites, fit.effects, len(scores), random=random)

    def respond(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        z = self.decide(fit, X, offset, site)
        return self.distribution.mean(z) if self.glm else z


@dataclasses.dataclass(frozen=True, eq=False)
class Classes(Outcome):
    """Base of outcomes with classes; ``labels`` are the classes in the order of the model.

    ``class_weights`` multiply the weights of the rows of each class.
    """

    labels: tuple[Any, ...] = ()
    class_weights: tuple[float, ...] = ()

    def weigh(self, data: Data) -> Array | None:
        """Return the weights that rows have with those of their classes."""
        if not self.class_weights:
            return data.weights
        by_class = np.array(self.class_weights)[data.y]
        return by_class if data.weights is None else data.weights * by_class

    def respond(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        assert self.classes is not None
        chosen: Array = self.classes[self.chances(fit, X, offset, site).argmax(axis=1)]
        return chosen

    def site_shifts(self, fit: FitResult, site: Any, rows: int) -> Array:
        """Return the intercepts of the sites of rows, in the last axis; zeros without site effects."""
        if not fit.effects.shape[-1]:
            return np.zeros(rows)
        return effects_of(site, fit.sites, fit.effects, rows)


@dataclasses.dataclass(frozen=True, eq=False)
class TwoClasses(Classes):
    """Two classes, with the logistic loss, or the loss of a family with weights, offsets or weights of classes."""

    glm: bool = False

    @property
    def loss(self) -> Loss:
        return "GLM" if self.glm else "Logistic"

    @property
    def newton(self) -> bool:
        return self.glm

    @property
    def likelihood(self) -> Any:
        return Binomial()

    @property
    def family(self) -> Family | None:
        return Binomial() if self.glm else None

    def describe(self) -> dict[str, Any]:
        return {"class_weights": self.class_weights}

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        return Columns(features, intercept, None, effects)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        if not self.glm:
            return Logistic(X, data.y, clients=owner, l2=ridge)
        return GLM(X, data.y, clients=owner, family="binomial", l2=ridge, weights=self.weigh(data), offset=data.offset)

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        model = undo(x, columns, scaled, within)
        return Coefficients(model[:, :-1], model[:, -1], np.zeros(0))

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        x = np.concatenate([fit.coef[0], fit.intercept])
        return Predictor(self.loss, x, family=self.family), len(x)

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        return fit.shift(fit.scores(X)[:, 0], X, offset)

    def chances(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        from scipy.special import log_softmax

        z = self.decide(fit, X, offset, site)
        logarithms: Array = log_softmax(np.stack([np.zeros_like(z), z], axis=1), axis=1)
        return logarithms


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetric(Classes):
    """Three or more classes with coefficients of each, which add up to 0 where nothing else distinguishes them.

    With ``by_reference`` the fit compares classes with the first, which Newton's method does in a few exact rounds.
    """

    by_reference: bool = False
    has_information: ClassVar[bool] = False

    @property
    def loss(self) -> Loss:
        return "Multinomial" if self.by_reference else "Softmax"

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        if self.by_reference:
            return Columns(features, intercept, len(self.labels) - 1, effects, flat=True)
        return Columns(features, intercept, len(self.labels), effects)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        kind = Multinomial if self.by_reference else Softmax
        return kind(X, data.y, clients=owner, l2=ridge, weights=self.weigh(data))

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        rows = x.reshape(len(self.labels) - 1, -1) if self.by_reference else x
        model = undo(rows, columns, scaled, within)
        if self.by_reference:
            model = np.concatenate([np.zeros((1, model.shape[1])), model])
            model = model - model.mean(axis=0)
        return Coefficients(model[:, :-1], model[:, -1] - model[:, -1].mean(), np.zeros(0))

    def take_many(
        self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        coef, intercept = super().take_many(x, columns, scaled, within)
        return coef, intercept - intercept.mean(axis=1, keepdims=True)

    def back(self, columns: Columns, scaled: Scaled) -> Array | None:
        return None

    def path_labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.labels))

    def coefficients(self, fit: FitResult) -> dict[str, Any]:
        return {str(label): row for label, row in zip(self.labels, fit.rows_by_name(), strict=True)}

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        whole = np.concatenate([fit.coef, fit.intercept[:, None]], axis=1)
        return Predictor("Softmax", whole, len(self.labels)), whole.shape[1]

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        if offset is not None:
            raise ArgumentError("offset", f"must be None for more than two classes, got {len(self.labels)} classes")
        return fit.scores(X)

    def chances(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        from scipy.special import log_softmax

        logarithms: Array = log_softmax(self.decide(fit, X, offset, site), axis=1)
        return logarithms


@dataclasses.dataclass(frozen=True, eq=False)
class Compared(Classes):
    """Classes with coefficients of each but the first of ``labels``, the reference."""

    exact = True

    @property
    def loss(self) -> Loss:
        return "Multinomial"

    @property
    def likelihood(self) -> Any:
        return ClassLikelihood("multinomial", "logit")

    @property
    def others(self) -> Array:
        """The classes that have coefficients."""
        return np.array(self.labels[1:])

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        return Columns(features, intercept, len(self.labels) - 1, effects, flat=True)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        more: dict[str, Any] = {} if data.offset is None else {"offset": data.offset}
        return Multinomial(
            X, data.y, n_classes=len(self.labels), clients=owner, l2=ridge, weights=data.weights,
            weight_scale=data.scale, **more,
        )  # fmt: skip

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        x = x.reshape(len(self.labels) - 1, columns.all)
        model = undo(x, columns, scaled, within)
        return Coefficients(model[:, :-1], model[:, -1], x[:, columns.all - columns.effects :].astype(np.float64))

    def back(self, columns: Columns, scaled: Scaled) -> Array | None:
        return np.kron(np.eye(len(self.labels) - 1), unscale(columns, scaled))

    def null_places(self, columns: Columns) -> IntArray:
        if not columns.intercept:
            return np.zeros(0, dtype=np.int64)
        return np.arange(len(self.labels) - 1) * columns.all + columns.features

    def path_labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.labels[1:]))

    def names_of_x(self, features: Sequence[str], *, intercept: bool, effects: Sequence[str]) -> list[str]:
        each = super().names_of_x(features, intercept=intercept, effects=effects)
        return [f"{label}: {name}" for label in self.labels[1:] for name in each]

    def values(self, fit: FitResult) -> Array:
        constant = fit.intercept[:, None] if fit.has_intercept else np.zeros((len(fit.coef), 0))
        return np.concatenate([fit.coef, constant, fit.effects], axis=1).ravel()

    def place(self, values: Array, fit: FitResult) -> dict[str, Any]:
        d, rows = fit.coef.shape[1], values.reshape(len(fit.coef), -1)
        found = {"coef": rows[:, :d], "effects": rows[:, d + int(fit.has_intercept) :]}
        return found | ({"intercept": rows[:, d]} if fit.has_intercept else {})

    def coefficients(self, fit: FitResult) -> dict[str, Any]:
        names = self.effect_names(fit.site_names, fit.effects.shape[1])
        return {
            str(label): row | dict(zip(names, map(float, effects), strict=True))
            for label, row, effects in zip(self.labels[1:], fit.rows_by_name(), fit.effects, strict=True)
        }

    def order(self, names: list[str]) -> list[int]:
        starts = [f"{label}: " for label in self.labels[1:]]
        of_class = [max((len(one), k) for k, one in enumerate(starts) if name.startswith(one))[1] for name in names]
        return sorted(range(len(names)), key=lambda j: (of_class[j], not names[j].endswith(": Intercept")))

    def is_intercept(self, name: str, fit: FitResult) -> bool:
        return name.endswith(": Intercept") or ": site[" in name

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        whole = np.concatenate([fit.coef, fit.intercept[:, None], effects], axis=1)
        return Predictor("Multinomial", whole.ravel(), len(self.labels)), whole.shape[1]

    def read_offset(self, offset: Any, rows: int) -> Array:
        """Return a number for each row, or differences to the reference for each of the other classes."""
        assert self.classes is not None
        if np.ndim(offset) < 2:
            return column("offset", offset, rows)
        shape = (rows, len(self.labels))
        given = _checks.float_array("offset", offset, dtype=np.float64)
        if given.shape != shape:
            raise ArgumentError("offset", f"must be a number for each row, or of shape {shape}, got {given.shape}")
        other = self.classes != self.labels[0]
        return given[:, other] - given[:, ~other]

    def _all_scores(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        """Return the linear predictor of each of ``classes``, 0 for the reference."""
        scores = fit.scores(X)
        rows = len(scores)
        scores = scores + self.site_shifts(fit, site, rows).T.reshape(rows, -1)
        scores = scores + fit.shift(np.zeros(rows), X, None)[:, None]
        if offset is not None:
            scores = scores + self.read_offset(offset, rows).reshape(rows, -1)
        whole = np.zeros((rows, len(self.labels)))
        whole[:, self.classes != self.labels[0]] = scores
        return whole

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        whole = self._all_scores(fit, X, offset, site)
        return whole[:, 1] - whole[:, 0] if len(self.labels) == 2 else whole

    def chances(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        from scipy.special import log_softmax

        logarithms: Array = log_softmax(self._all_scores(fit, X, offset, site), axis=1)
        return logarithms


@dataclasses.dataclass(frozen=True, eq=False)
class Ordered(Classes):
    """Ordered classes with proportional odds: thresholds take the place of an intercept."""

    link: Link = "logit"

    exact = True
    has_constant = False

    @property
    def loss(self) -> Loss:
        return "Ordinal"

    @property
    def likelihood(self) -> Any:
        return ClassLikelihood("ordinal", str(self.link))

    def describe(self) -> dict[str, Any]:
        return {"link": self.link}

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        return Columns(features, intercept, None, effects, thresholds=len(self.labels) - 1)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        more: dict[str, Any] = {} if data.offset is None else {"offset": data.offset}
        return Ordinal(
            X, data.y, n_classes=len(self.labels), link=self.link, clients=owner, l2=ridge, weights=data.weights,
            weight_scale=data.scale, **more,
        )  # fmt: skip

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        found = self.back(columns, scaled) @ (x.astype(np.float64) + self.shift(columns))
        coef, effects, thresholds = np.split(found, [columns.features, columns.of_rows])
        return Coefficients(within(coef), 0.0, effects, thresholds)

    def take_many(
        self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        model = (x + self.shift(columns)) @ self.back(columns, scaled).T
        return within(model[:, : columns.features]), model[:, columns.of_rows :]

    def back(self, columns: Columns, scaled: Scaled) -> Array:
        back, features = np.eye(columns.all), np.arange(columns.features)
        back[features, features] = 1.0 / scaled.scale
        back[columns.of_rows :, : columns.features] = scaled.centre / scaled.scale
        return back

    def shift(self, columns: Columns) -> Array:
        return np.append(np.zeros(columns.of_rows), base_of(self.link, len(self.labels)))

    def null_places(self, columns: Columns) -> IntArray:
        return np.arange(columns.of_rows, columns.all)

    def path_labels(self) -> tuple[str, ...]:
        return tuple(self.threshold_names())

    def threshold_names(self) -> list[str]:
        """Return the names of thresholds, by the classes at their sides."""
        return [f"{low}|{high}" for low, high in zip(self.labels, self.labels[1:], strict=False)]

    def names_of_x(self, features: Sequence[str], *, intercept: bool, effects: Sequence[str]) -> list[str]:
        return [*features, *effects, *self.threshold_names()]

    def values(self, fit: FitResult) -> Array:
        assert fit.thresholds is not None
        return np.concatenate([fit.coef, fit.effects, fit.thresholds])

    def place(self, values: Array, fit: FitResult) -> dict[str, Any]:
        ends = [len(fit.coef), len(fit.coef) + len(fit.effects)]
        return dict(zip(("coef", "effects", "thresholds"), np.split(values, ends), strict=True))

    def alias_order(self, names: list[str]) -> list[int]:
        thresholds = self.threshold_names()
        return sorted(range(len(names)), key=lambda j: names[j] not in thresholds)

    def coefficients(self, fit: FitResult) -> dict[str, Any]:
        assert fit.thresholds is not None
        return super().coefficients(fit) | dict(
            zip(self.threshold_names(), map(float, fit.thresholds), strict=True)
        )  # fmt: skip

    def is_intercept(self, name: str, fit: FitResult) -> bool:
        return name in self.threshold_names() or name.startswith("site[")

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        assert fit.thresholds is not None
        classes = len(self.labels)
        x = np.concatenate([fit.coef, effects, fit.thresholds - base_of(self.link, classes)])
        return Predictor("Ordinal", x, classes, link=self.link), len(fit.coef) + len(effects)

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        scores = fit.shift(fit.scores(X)[:, 0], X, offset)
        return scores + self.site_shifts(fit, site, len(scores))

    def probabilities(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        """Return the probabilities of classes, in their order."""
        scores = self.decide(fit, X, offset, site)
        below = LINKS[self.link].chances(fit.thresholds - scores[:, None])
        found: Array = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return found

    def chances(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        with np.errstate(divide="ignore"):
            logarithms: Array = np.log(self.probabilities(fit, X, offset, site))
        return logarithms


@dataclasses.dataclass(frozen=True, eq=False)
class Hazards(Outcome):
    """Times of events, compared within sites and strata: Cox's partial likelihood."""

    ties: Ties = "efron"

    exact = True
    survives = True
    has_constant = False

    @property
    def loss(self) -> Loss:
        return "Cox"

    @property
    def likelihood(self) -> Any:
        return PartialLikelihood

    def describe(self) -> dict[str, Any]:
        return {"ties": self.ties}

    def columns(self, features: int, *, intercept: bool, effects: int, random: bool) -> Columns:
        return Columns(features, intercept, None, effects)

    def make_losses(self, X: Any, data: Data, owner: IntArray, ridge: Array) -> Losses:
        times = data.times
        assert times is not None
        return Cox(
            X, times.time, times.event, owner, entry=times.entry, l2=ridge, ties=self.ties, strata=data.strata,
            clusters=data.clusters, weights=data.weights, weight_scale=data.scale, offset=data.offset,
        )  # fmt: skip

    def take(self, x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Coefficients:
        (row,) = undo(x, columns, scaled, within)
        return Coefficients(row[:-1], 0.0, np.zeros(0))

    def predictor(self, fit: FitResult, effects: Array) -> tuple[Predictor, int]:
        self._check_fixed(fit)
        return Predictor("Cox", fit.coef), len(fit.coef)

    @staticmethod
    def _check_fixed(fit: FitResult) -> None:
        """Refuse risks where they change with time."""
        if fit.plan is not None and fit.plan.design.varies:
            raise ArgumentError("model", "has effects that change with time, so that rows have no single risk")

    def decide(self, fit: FitResult, X: Any, offset: Any, site: Any) -> Array:
        self._check_fixed(fit)
        return fit.shift(fit.scores(X)[:, 0], X, offset)

    respond = decide


def undo(x: Array, columns: Columns, scaled: Scaled, within: Callable[[Array], Array]) -> Array:
    """Return the model for features as they were given, intercept last, a row for each of several classes."""
    model, d = np.atleast_2d(x), columns.features
    constant = model[:, d : d + 1] if columns.intercept else np.zeros((len(model), 1))
    coefficients = within(model[:, :d] / scaled.scale)
    shift = coefficients @ scaled.centre
    return np.concatenate([coefficients, constant - shift[:, None]], axis=1)


def unscale(columns: Columns, scaled: Scaled) -> Array:
    """Return the matrix that maps coefficients of scaled features to coefficients of the given features."""
    matrix, features = np.eye(columns.all), np.arange(columns.features)
    matrix[features, features] = 1.0 / scaled.scale
    if columns.intercept:
        matrix[columns.features, : columns.features] = -scaled.centre / scaled.scale
    return matrix
