"""What estimators do with a formula: fit it to a table or to the sites of a federation, and code new rows."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.compress.plain import plain_bits
from fpdfp.datasets import Moments
from fpdfp.errors import ArgumentError, DataWarning, RefusalError
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.questions import Distribution, Family, ModelSpec, MomentsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.tree import Level
from fpdfp.losses import Losses
from fpdfp.models.formulas import Asking, Plan, plan
from fpdfp.models.penalty import ModelPenalty, NoPenalty
from fpdfp.models.stepping import Scaled
from fpdfp.survival.periods import name_periods


class ByFormula:
    """The part of :class:`fpdfp.models.base.FederatedLinearModel` that knows formulas."""

    penalty_: ModelPenalty

    #: The formula that was fitted, None for a matrix.
    formula_: str | None

    #: The sites that have refused, with what each has said; empty unless the fit went on without them.
    excluded_: Mapping[str, str] = types.MappingProxyType({})

    def _fit_formula(
        self: Any, source: Any, formula: Any, groups: Any, missing: Any, levels: Any, on_refusal: Any, **options: Any
    ) -> Array:
        """Fit a formula to a table, or to the sites of a cohort, and return the model, intercept last.

        Both go the same way: sites answer questions, and sums are formed in the order of sites. Where some refuse, the
        fit ends, or begins anew without them.
        """
        _checks.choice("on_refusal", on_refusal, ("stop", "exclude"))
        if not isinstance(source, TableCohort):
            source = LocalCohort(source, groups)
        elif groups is not None:
            raise ArgumentError("groups", "must be None for a federation, whose sites are known")
        if self.penalty is None:
            self.penalty_ = NoPenalty()
        if self.standardize is None:
            self._standardized = self.penalty_.penalises
        excluded: dict[str, str] = {}
        while True:
            try:
                model: Array = self._fit_sites(source, formula, missing, levels, **options)
                break
            except RefusalError as error:
                if on_refusal == "stop" or not error.sites or set(source.names) <= set(error.sites):
                    raise
                excluded |= error.sites
                source = source.without(error.sites)
        self.excluded_ = excluded
        return model

    def _fit_sites(
        self: Any, source: Any, formula: Any, missing: Any, levels: Any, *, weights: Any = None, effects: bool = False
    ) -> Array:
        """Fit a formula to sites."""
        asking, classify = Asking(source), self._classifies()
        options: dict[str, Any] = {"missing": missing, "levels": levels, "intercept": self._codes_intercept()}
        options["weights"] = weights
        made = plan(asking, formula, classify=classify, survival=self._survives, **options)
        found = self.plan_ = self._arrange(made)
        design, d = found.design, len(found.design.names)
        self.formula_, self.sites_ = str(formula), np.array(asking.names)
        self.feature_names_in_, self.n_features_in_ = np.array(design.names, dtype=object), d
        distribution = self._distribution(found)
        family: Family
        family, classes = self._losses_of(found) if distribution is None else ("GLM", None)
        if self._survives and distribution is None:
            family, classes = "Cox", None
        if design.cluster is not None and family != "Cox":
            raise ArgumentError("formula:", "cluster(…) is for FederatedCoxRegression")
        diagonal = self._wanted_moments(d)
        moments: list[Moments] = []
        if diagonal is not None and d:
            moments = [asking.ask(MomentsQuestion(design, found.means, diagonal))]
        centre, scale = self._scaling(d, moments)
        others = tuple(asking.names[self._first_effect :]) if effects else ()
        options = self._spec_options()
        more = len(name_periods(options.get("periods", ())))
        columns = self._columns(d, found.intercept, classes, len(others) + more)
        columns = columns._replace(random=bool(others) and self._first_effect == 0)
        if family == "Softmax" and columns.flat:
            family = "Multinomial"
        structure = self._structure(columns, moments, np.where(scale > 0, scale, 1.0))
        spec = ModelSpec(
            design, found.means, centre, scale, found.intercept, family, found.classes, structure.ridge,
            None if distribution is None else Distribution.of(distribution), found.weight_scale, others,
            class_weights=self._class_weights(found), **options,
        )  # fmt: skip

        def build() -> Losses:
            now = self._distribution(found)
            told = spec if now is None else dataclasses.replace(spec, distribution=Distribution.of(now))
            losses: Losses = source.losses(told)
            return losses

        used = Scaled(centre, np.where(scale > 0, scale, 1.0))
        problem = self._minimise(build, structure, columns, used, self._choose_method)
        self._note_run(problem, formula=str(formula), missing=missing, levels=levels, weights=weights)
        told = len(asking.names) if moments and self._standardized else 0
        down = asking.down + told * plain_bits((2 * d,), np.dtype(np.float64))
        self._keep(problem, columns, structure.ridge, asking.up, down)
        self.rows_ = dict(zip(asking.names, found.used, strict=True))
        self.left_out_ = {
            name: rows - used for name, rows, used in zip(asking.names, found.rows, found.used, strict=True)
        }
        self._coded = (columns, *used)
        model: Array = self._conclude(problem, columns, *used)
        self._ask_more(asking, spec)
        if found.imputed and self.information_ is not None and not self._penalised:
            warn(
                f"means were put in where {', '.join(found.imputed)} had no value: standard errors take them for "
                'known, and are too small; missing="drop" leaves these rows out',
                DataWarning,
            )
        return model

    #: Whether the response is the time of an event.
    _survives = False

    def _codes_intercept(self: Any) -> bool:
        """Whether categories are coded as beside an intercept."""
        return bool(self.fit_intercept)

    def _arrange(self: Any, found: Plan) -> Plan:
        """Keep the classes, and return a plan that has them in the order of the model."""
        if self._classifies():
            self.classes_ = np.array(found.classes)
        return found

    def _losses_of(self, found: Plan) -> tuple[Family, int | None]:
        """Return the losses of a plan, and the number of classes that have coefficients each."""
        return family_of(found.classes)

    def _spec_options(self) -> dict[str, Any]:
        """Return what else tells sites their losses."""
        return {}

    def _ask_more(self, asking: Asking, spec: ModelSpec) -> None:
        """Ask sites for what a model has beside its coefficients."""

    def _classifies(self) -> bool | None:
        """Whether the response has classes; None if it may have two."""
        return bool(is_classifier(self))

    def _distribution(self, found: Any) -> Any:
        """Return the family of a GLM; None for the losses of the classes that were found."""
        return None

    def _class_weights(self, found: Any) -> tuple[float, ...]:
        """Return the weights of classes; none where all are 1."""
        return ()

    def _formula_groups(self: Any, given: Any) -> Any:
        """Return the group of each feature: that of its term, or what a penalty says of features and terms."""
        design = self.plan_.design
        if given is None:
            return design.term_of_each
        if not isinstance(given, dict):
            return given
        known = {*design.names, *design.term_of_each}
        strange = [name for name in given if name not in known]
        if strange:
            raise ArgumentError("groups:", f"{strange[0]!r} is no feature and no term of the formula")
        pairs = zip(design.names, design.term_of_each, strict=True)
        return [str(given.get(name, given.get(term, term))) for name, term in pairs]

    def _code(self: Any, X: Any) -> Array:
        """Return the features of new rows of a table, coded as those that were fitted."""
        table, plan = X if isinstance(X, SiteTable) else SiteTable.read(X), self.plan_
        lacking = ~plan.design.complete(table, response=False)
        if lacking.any():
            used = [name for name in table.columns if name in plan.design.columns and table.columns[name].missing.any()]
            raise ArgumentError(
                "X",
                f"must have a value for every column of the formula, but {int(lacking.sum())} of {len(table)} rows "
                f'lack one of {", ".join(map(repr, used))}; leave them out, or fit with missing="mean" or "indicator"',
            )
        return table.matrix_of(plan.design, plan.means)


def family_of(classes: tuple[Level, ...]) -> tuple[Family, int | None]:
    """Return the losses of a model of these classes, and their number where each has coefficients."""
    if not classes:
        return "LeastSquares", None
    return ("Softmax", len(classes)) if len(classes) > 2 else ("Logistic", None)
