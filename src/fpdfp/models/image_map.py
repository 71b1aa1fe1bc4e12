"""Coefficient maps: one coefficient for each voxel of an image, or each vertex of a surface, over many sites."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fpdfp import _checks, linops, losses, penalties
from fpdfp._typing import Array
from fpdfp.engines.options import RunOptions
from fpdfp.engines.solve import run
from fpdfp.errors import ArgumentError
from fpdfp.problem import Problem

FAMILIES, PENALTIES = ("binomial", "gaussian"), ("tv", "fused")


class ImageMap(BaseEstimator):  # type: ignore[misc]
    r"""A linear model of images with a map of coefficients that is piecewise constant and sparse.

    .. math:: \min_{x, c} \frac1N \sum_{\text{subjects}} \ell(\langle a_i, x\rangle + c, y_i)
              + w \left( r \|x\|_1 + (1 - r) \|\nabla x\| \right)

    with the logistic loss or half the squared error, and the differences ∇ of neighbours inside a mask (voxels), or
    along the edges of a surface. Each site keeps its images; the map is fitted by :func:`fpdfp.solve`. The result is
    that of all images in one place.

    Parameters
    ----------
    mask
        The voxels that have coefficients: an array of truth values of 1, 2 or 3 axes.
    edges
        For a surface, instead of a mask: pairs of neighbouring vertices, ``(edges, 2)``. Subjects are then rows with a
        value for each vertex.
    family
        ``"binomial"`` for outcomes of two classes, ``"gaussian"`` for numbers.
    penalty
        ``"tv"``: the sum of the lengths of gradients (TV-l1; for a mask). ``"fused"``: the sum of the absolute
        differences along every axis, or along edges.
    weight
        The weight w.
    l1_ratio
        The share r of the l1 norm.
    rounds
        The largest number of communication rounds.
    tol
        Stop when the objective is within this of its minimum, relative to itself, by a duality gap; None does all
        rounds.
    random_state
        The seed of the quantizers.
    progress
        Whether to show a progress bar; None shows it if standard error is a terminal.

    Attributes
    ----------
    coef_
        The coefficients of the mask's voxels, in C order, or of vertices.
    map_
        The same in the shape of the mask, 0 outside; for a surface ``coef_``.
    intercept_
        The constant c.
    classes_
        The two classes, of the binomial family; the second one has the positive map.
    result_
        The :class:`fpdfp.Result` of the run, with every bit that was sent.

    References
    ----------
    L. Baldassarre, J. Mourao-Miranda and M. Pontil, "Structured sparsity models for brain decoding from fMRI data",
    PRNI 2012; A. Gramfort, B. Thirion and G. Varoquaux, "Identifying predictive regions from fMRI with TV-L1 prior",
    PRNI 2013.

    Examples
    --------
    >>> import fpdfp
    >>> cohort = fpdfp.datasets.image_cohort((8, 8), subjects=120, sites=3)
    >>> model = fpdfp.ImageMap(cohort.mask, weight=0.02).fit(cohort.images, cohort.outcomes, cohort.sites)
    >>> model.map_.shape
    (8, 8)
    >>> model.score(cohort.images, cohort.outcomes) > 0.7
    True
    """

    def __init__(
        self,
        mask: Any = None,
        *,
        edges: Any = None,
        family: Literal["binomial", "gaussian"] = "binomial",
        penalty: Literal["tv", "fused"] = "tv",
        weight: float = 0.01,
        l1_ratio: float = 0.5,
        rounds: int = 1000,
        tol: float | None = 1e-3,
        random_state: int = 0,
        progress: bool | None = False,
    ) -> None:
        self.mask = mask
        self.edges = edges
        self.family = family
        self.penalty = penalty
        self.weight = weight
        self.l1_ratio = l1_ratio
        self.rounds = rounds
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    coef_: Array
    map_: Array
    intercept_: float
    classes_: Array

    def fit(self, images: Any, y: Any, groups: Any = None) -> Self:
        """Fit the map.

        Parameters
        ----------
        images
            The images of subjects: ``(subjects, *mask.shape)``, or ``(subjects, entries)`` with an entry for each voxel
            of the mask, or for each vertex. float32 halves the memory.
        y
            The outcome of each subject.
        groups
            The site of each subject; None for all in one place.
        """
        problem = self.make_problem(images, y, groups)
        options = RunOptions(
            rounds=self.rounds, tol=self.tol, seed=self.random_state, progress=self.progress, accuracy=self.tol or 1e-3
        )
        self.result_ = run(problem, None, options)
        x = np.asarray(self.result_.x)
        self.coef_, self.intercept_ = x[:-1].copy(), float(x[-1])
        self.map_ = self.coef_
        if self.mask is not None:
            self.map_ = np.zeros(np.shape(self.mask), dtype=x.dtype)
            self.map_[np.asarray(self.mask)] = self.coef_
        return self

    def make_problem(self, images: Any, y: Any, groups: Any = None) -> Problem:
        """Return the problem that :meth:`fit` solves, for :func:`fpdfp.solve` with other methods or transports."""
        _checks.choice("family", self.family, FAMILIES)
        _checks.choice("penalty", self.penalty, PENALTIES)
        weight = _checks.real("weight", self.weight, at_least=0.0)
        share = _checks.real("l1_ratio", self.l1_ratio, at_least=0.0)
        if share > 1:
            raise ArgumentError("l1_ratio", f"must be from 0 to 1, got {share:g}")
        differences, count = self._differences()
        rows = self._rows(images, count)
        targets = self._targets(y, len(rows))
        site = np.zeros(len(rows), dtype=np.int64) if groups is None else np.asarray(groups)
        if site.shape != (len(rows),):
            raise ArgumentError("groups", f"must have an entry for each of {len(rows)} subjects, got {site.shape}")
        # Rows by site, and read-only, are used where they are.
        order = np.argsort(site, kind="stable")
        design = np.ones((len(rows), count + 1), dtype=rows.dtype)
        np.take(rows, order, axis=0, out=design[:, :-1], mode="clip")
        design.setflags(write=False)
        kind = losses.Logistic if self.family == "binomial" else losses.LeastSquares
        f = kind(design, targets[order], clients=site[order])
        of_entries = np.full(count + 1, weight * share)
        of_entries[-1] = 0.0
        steep = weight * (1.0 - share)
        across: penalties.Penalty = penalties.L1(steep)
        if self.penalty == "tv":
            across = penalties.GroupL12(steep, axis=0)
        g = penalties.Stacked([across, penalties.L1(of_entries)], [differences.out_shape, (count + 1,)])
        return Problem(f, g, linops.VStack([differences, linops.Identity(count + 1)]), weights="samples")

    def _differences(self) -> tuple[linops.LinOp, int]:
        """Return the map of differences, and the number of coefficients beside the intercept."""
        if (self.mask is None) == (self.edges is None):
            raise ValueError("give either mask or edges")
        if self.mask is not None:
            inside = linops.MaskedGradient(self.mask, others=1)
            return inside, inside.in_shape[0] - 1
        if self.penalty == "tv":
            raise ArgumentError("penalty", "must be 'fused' with edges: a surface has no axes")
        import scipy.sparse

        pairs = np.asarray(self.edges)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
            raise ArgumentError("edges", f"must be pairs of numbers of vertices, (edges, 2), got shape {pairs.shape}")
        if pairs.min() < 0 or (pairs[:, 0] == pairs[:, 1]).any():
            raise ArgumentError("edges", "must join two different vertices, numbered from 0 on")
        count, numbers = int(pairs.max()) + 1, np.arange(len(pairs))
        values = np.repeat([1.0, -1.0], len(pairs))
        where = (np.tile(numbers, 2), np.concatenate([pairs[:, 1], pairs[:, 0]]))
        return linops.Matrix(scipy.sparse.csr_array((values, where), shape=(len(pairs), count + 1))), count

    def _rows(self, images: Any, count: int) -> Array:
        array = _checks.float_array("images", images)
        if self.mask is not None and array.shape[1:] == np.shape(self.mask) and array.shape[1:] != (count,):
            array = array[:, np.asarray(self.mask)]
        if array.ndim != 2 or array.shape[1] != count or not len(array):
            raise ArgumentError("images", f"must have {count} entries for each subject, got shape {array.shape}")
        return array

    def _targets(self, y: Any, count: int) -> Array:
        outcomes = np.asarray(y)
        if outcomes.shape != (count,):
            raise ArgumentError("y", f"must have an outcome for each of {count} subjects, got shape {outcomes.shape}")
        if self.family == "gaussian":
            return _checks.float_array("y", outcomes, dtype=np.float64)
        self.classes_, codes = np.unique(outcomes, return_inverse=True)
        if len(self.classes_) != 2:
            raise ArgumentError("y", f"must have two classes, got {len(self.classes_)}")
        signs: Array = 2.0 * codes - 1.0
        return signs

    def decision_function(self, images: Any) -> Array:
        """Return ⟨a, x⟩ + c for each subject."""
        check_is_fitted(self)
        values: Array = self._rows(images, len(self.coef_)) @ self.coef_ + self.intercept_
        return values

    def predict(self, images: Any) -> Array:
        """Return the class of each subject, or its expected outcome."""
        values = self.decision_function(images)
        if self.family == "gaussian":
            return values
        classes: Array = self.classes_[(values > 0).astype(np.int64)]
        return classes

    def predict_proba(self, images: Any) -> Array:
        """Return the probabilities of both classes, of the binomial family: ``(subjects, 2)``."""
        from scipy.special import expit

        if self.family != "binomial":
            raise ValueError("family: probabilities are those of the binomial family")
        second = expit(self.decision_function(images))
        return np.stack([1.0 - second, second], axis=1)

    def score(self, images: Any, y: Any) -> float:
        """Return the accuracy, or R² of the gaussian family."""
        from sklearn.metrics import accuracy_score, r2_score

        measure = r2_score if self.family == "gaussian" else accuracy_score
        return float(measure(y, self.predict(images)))
