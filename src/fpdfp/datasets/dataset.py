"""A data set: rows, labels, and the site of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fpdfp._typing import Array


@dataclass(frozen=True, repr=False, eq=False)
class DataSet:
    """Rows of features with labels, as ``fpdfp.datasets.load`` returns them.

    Attributes
    ----------
    name
        The registered name, or the name of the file.
    X
        The features: a SciPy ``csr_array`` from a LIBSVM file, a C-ordered float64 array from a table.
    y
        The labels: floats, or text where the target column of a table holds text.
    site
        The site of each row (integers, other numbers or text), or None.
    feature_names
        The names of the columns of X, or None.
    source
        The file that was read.

    Examples
    --------
    >>> import numpy as np
    >>> DataSet("tiny", np.eye(3), np.array(["no", "yes", "no"]), None, ("a", "b", "c"), "tiny.csv")
    DataSet('tiny': 3 rows, 3 features, dense, 2 labels)
    """

    name: str
    X: Any
    y: Array
    site: Array | None
    feature_names: tuple[str, ...] | None
    source: str

    def __repr__(self) -> str:
        rows, features = self.X.shape
        parts = [f"{rows:,} rows", f"{features:,} features"]
        if isinstance(self.X, np.ndarray):
            parts.append("dense")
        else:
            parts.append(f"{self.X.nnz:,} entries stored ({self.X.nnz / (rows * features):.1%})")
        distinct = len(np.unique(self.y))
        if self.y.dtype.kind == "U" or distinct <= 20:
            parts.append(f"{distinct} label{'s' if distinct != 1 else ''}")
        if self.site is not None:
            parts.append(f"{len(np.unique(self.site)):,} sites")
        return f"DataSet({self.name!r}: {', '.join(parts)})"
