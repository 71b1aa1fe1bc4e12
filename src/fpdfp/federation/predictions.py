"""Predictions of a model for the rows of a site, and the answers about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import families
from fpdfp._typing import Array
from fpdfp.federation.questions import ModelSpec
from fpdfp.losses.classes import LINKS, Link, base_of
from fpdfp.scores.site import Predicted, SiteScores, score_rows


class Predictor(NamedTuple):
    """A model with its coefficients, as losses of its kind have them.

    Attributes
    ----------
    kind
        The losses of the model.
    x
        Its coefficients.
    classes
        How many classes there are, for models of several.
    family
        The family of outcomes of a GLM.
    link
        The link of ``"Ordinal"``.
    """

    kind: str
    x: Array
    classes: int = 0
    family: Any = None
    link: Link = "logit"

    @classmethod
    def of(cls, spec: ModelSpec, x: Array) -> Predictor:
        """Return the model of a specification."""
        family = None if spec.distribution is None else spec.distribution.make()
        return cls(spec.family, x, len(spec.classes), family, spec.link)

    @property
    def outcomes(self) -> Any:
        """The family of outcomes, as scores know it."""
        known = {
            "Logistic": families.Binomial(), "LeastSquares": families.Gaussian(), "GLM": self.family, "Cox": "cox",
            "Ordinal": "ordinal",
        }  # fmt: skip
        return known.get(self.kind, "multinomial")

    def predict(self, rows: Any) -> Predicted:
        """Return rows of a model (:class:`fpdfp.federation.table.ModelRows`) with what is predicted for them."""
        y = rows.y if self.kind != "Cox" else rows.times
        return Predicted(self.outcomes, self._predictors(rows), y, rows.weights, rows.strata)

    def _predictors(self, rows: Any) -> Array:
        X, x = rows.X, self.x
        if self.kind == "Softmax":
            return np.asarray(X @ x.T)
        if self.kind == "Multinomial":
            z = np.asarray(X @ x.reshape(self.classes - 1, X.shape[1]).T)
            z = z if rows.offset is None else z + rows.offset.reshape(len(z), -1)
            return np.concatenate([np.zeros((len(z), 1)), z], axis=1)
        shift = 0.0 if rows.offset is None else rows.offset
        if self.kind != "Ordinal":
            return np.asarray(X @ x + shift)
        place = X @ x[: X.shape[1]] + shift
        inner = base_of(self.link, self.classes) + x[X.shape[1] :] - place[:, None]
        ends = np.concatenate([np.full((len(place), 1), -np.inf), inner, np.full((len(place), 1), np.inf)], axis=1)
        with np.errstate(all="ignore"):
            return -LINKS[self.link].interval(ends[:, 1:], ends[:, :-1]).value


def predict(rows: Any, spec: ModelSpec, x: Array) -> Predicted:
    """Return the rows of a model (``ModelRows``) with what is predicted for them."""
    return Predictor.of(spec, x).predict(rows)


def score_model(rows: Any, spec: ModelSpec, x: Array, more: Sequence[Array]) -> SiteScores:
    """Return how good the predictions for the rows of a model are, at some coefficients and at more of them."""
    others = [score_rows(predict(rows, spec, one), scores_only=True) for one in more]
    return dataclasses.replace(score_rows(predict(rows, spec, x)), more=others)
