"""Each site's own fit of a model, and a coefficient over all sites: a two-stage meta-analysis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from fpdfp.errors import ArgumentError, RefusalError, SeparationError
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.inference import Heterogeneity, HeterogeneityTable, Table
from fpdfp.inference.covariances import Kind


@dataclasses.dataclass(frozen=True)
class SiteFits:
    """The fits of the sites by themselves; ``print`` shows how much their coefficients differ.

    Attributes
    ----------
    models
        The fitted estimator of each site that has one.
    refused
        The reason for a missing fit, by site: a site may have too few rows, or outcomes that a covariate separates.
    """

    models: Mapping[str, Any]
    refused: Mapping[str, str]

    def tables(
        self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False
    ) -> dict[str, Table | None]:
        """Return the coefficients of each site; the arguments are as in :meth:`fpdfp.FederatedGLM.table`."""
        found: dict[str, Table | None] = dict.fromkeys(self.refused)
        for name, model in self.models.items():
            table = model.table(errors=errors, level=level, exponentiate=exponentiate)
            found[name] = dataclasses.replace(table, errors=f"of each site's own fit, {table.errors}")
        return found

    def meta(
        self, name: str, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False
    ) -> Heterogeneity:
        """Return a coefficient of all sites: fixed and random effects, Cochran's Q, I² and τ², a forest plot."""
        tables = self.tables(errors=errors, level=level, exponentiate=exponentiate)
        return Heterogeneity.of_tables(name, tables)

    def meta_table(
        self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False
    ) -> HeterogeneityTable:
        """Return the same of every coefficient that two sites have."""
        tables = self.tables(errors=errors, level=level, exponentiate=exponentiate)
        return HeterogeneityTable.of_tables(tables)

    def __str__(self) -> str:
        return "\n".join([str(self.meta_table()), *(f"no fit at {name}: {why}" for name, why in self.refused.items())])

    __repr__ = __str__


def fit_sites(model: Any, source: Any, formula: str, groups: Any = None, **options: Any) -> SiteFits:
    """Fit a model at each site by itself, for a two-stage meta-analysis.

    Each site's fit is exact, with its own levels, means and dispersion; no row leaves a site, but each fit belongs to a
    single site, which its policy must allow (``single_sites``). ``ds.glmSLMA`` of DataSHIELD does the same.

    Parameters
    ----------
    model
        An estimator without a penalty; it is not changed.
    source, formula, groups, **options
        As in its ``fit``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"dose": rng.normal(size=300), "site": np.arange(300) % 3})
    >>> table["visits"] = rng.poisson(np.exp(0.2 + 0.5 * table["dose"]))
    >>> fits = fpdfp.fit_sites(fpdfp.FederatedGLM("poisson"), table, "visits ~ dose", groups="site")
    >>> print(fits.meta("dose"))
    dose            estimate   2.5 %  97.5 %  weight
    0                 0.4842  0.3361  0.6323  39.2 %
    1                 0.6869  0.5292  0.8445  34.6 %
    2                 0.4943  0.3135  0.6752  26.3 %
    fixed effect      0.5569  0.4642  0.6496
    random effects    0.5564  0.2703  0.8425
    Q = 3.997 on 2 df, p = 0.136; I² = 50 %; τ² = 0.006784
    estimates and errors of each site's own fit, of the model (expected information)
    """
    if not isinstance(formula, str):
        raise ArgumentError("formula", f"must be a text such as 'y ~ a + b', got {type(formula).__name__}")
    if not isinstance(source, TableCohort):
        source = LocalCohort(source, groups)
    elif groups is not None:
        raise ArgumentError("groups", "must be None for a federation, whose sites are known")
    source = source.at_level()
    models: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name in source.names:
        own = source.without([one for one in source.names if one != name])
        try:
            models[name] = clone(model).fit(own, formula, **options)
        except (ArgumentError, RefusalError, SeparationError) as error:
            refused[name] = str(error)
    if len(models) < 2:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise ArgumentError("source", f"must have at least two sites with a fit of their own ({reasons})")
    return SiteFits(models, refused)
