"""How good a model was after rounds of its fit: the iterates that were kept, asked about as models are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.federation.questions import MOST_POINTS
from fpdfp.inference.intervals import quantile_of
from fpdfp.models.evaluating import CohortSites, Sites
from fpdfp.scores.evaluation import summarise
from fpdfp.scores.learning import LearningCurve


class Learning:
    """The part of an estimator that says how good it was along its fit."""

    def learning_curve(
        self: Any, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95, points: int = 15,
    ) -> LearningCurve:  # fmt: skip
        """Return how good the model was after rounds of its fit, over all sites and at each.

        Some of the iterates of every fit are kept in memory (:class:`fpdfp.engines.iterates.Iterates`). Sites are asked
        as by :meth:`evaluate`, about all of them in one exchange; a site with a policy counts each as a question of
        its own. A model that was read from a file has no iterates.

        Parameters
        ----------
        X, y, groups, sample_weight, offset, strata, level
            As of :meth:`evaluate`.
        points
            How many iterates at most, from 2 to 100: the first, the last, and others between them, more of early ones.

        Returns
        -------
        fpdfp.scores.LearningCurve
            Scores against rounds and bits.

        Examples
        --------
        >>> import numpy as np
        >>> import fpdfp
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((600, 3))
        >>> y, hospital = (X[:, 0] + rng.logistic(size=600) > 0).astype(int), np.arange(600) % 3
        >>> model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(X[:300], y[:300], groups=hospital[:300])
        >>> found = model.learning_curve(X[300:], y[300:], groups=hospital[300:])
        >>> print([round(one.value, 2) for one in found.overall["auc"]][:2], found.rounds[0])
        [0.5, 0.76] 0
        """
        check_is_fitted(self)
        quantile_of(level)
        _checks.integer("points", points, at_least=2, at_most=MOST_POINTS)
        if not hasattr(self, "iterates_"):
            raise ArgumentError("model:", "has no iterates, since it was read from a file; fit it to have them")
        kept = self.iterates_.kept
        places = np.unique(np.linspace(0, len(kept) - 1, points).round().astype(np.int64))
        chosen = [kept[place] for place in places]
        # A fit that has converged stays where it is, and is asked about once.
        distinct = {one.x.tobytes(): self._at_point(one.x) for one in chosen}
        models = list(distinct.values())
        family, data = self._predictor()[0].outcomes, (X, y, groups, sample_weight, offset, strata)
        asked: list[Sites] = [models[0]._sites_of(*data)]
        if isinstance(asked[0], CohortSites):
            answers = asked[0].score_also([one._predictor()[0].x for one in models[1:]])
        else:
            # Effects of sites are in the rows, so that each model has rows of its own.
            asked += [one._sites_of(*data) for one in models[1:]]
            answers = [one.score() for one in asked]
        found = [summarise(asked[0].names, one, family, level=level) for one in answers]
        by_point = dict(zip(distinct, found, strict=True))
        # The choice of a penalty weight comes before the fit.
        before = getattr(self, "path_", None)
        rounds, up, down = (0, 0, 0) if before is None else (before.rounds, before.bits_up, before.bits_down)
        return LearningCurve.of(
            [by_point[one.x.tobytes()] for one in chosen],
            rounds=rounds + np.array([one.round for one in chosen]),
            bits_up=up + np.array([one.bits_up for one in chosen]),
            bits_down=down + np.array([one.bits_down for one in chosen]),
            exchanges=1,
            asked_up=sum(one.up for one in asked),
            asked_down=sum(one.down for one in asked),
        )

    def _at_point(self: Any, x: Array) -> Any:
        """Return a copy of the model with the coefficients that x, of a run of the fit, stands for."""
        made = copy.copy(self)
        made._adopt(x, *self._coded)
        return made
