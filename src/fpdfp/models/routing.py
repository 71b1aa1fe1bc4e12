"""Warnings for searches of scikit-learn.

Cross-validation passes ``groups`` to the splitter and not to the estimator, and a search for a penalty weight fits
every weight and fold by itself.
"""

from __future__ import annotations

import inspect
from typing import Any

import sklearn

from fpdfp._warn import warn
from fpdfp.models.penalty import as_model_penalty

#: Modules of scikit-learn that pass ``groups`` to the splitter only, unless metadata routing is enabled.
MODULES = ("sklearn.model_selection._validation", "sklearn.model_selection._search")


def warn_of_groups(name: str) -> None:
    """Warn if this is called from a cross-validation that has groups and does not pass them to ``fit``."""
    if sklearn.get_config()["enable_metadata_routing"]:
        return
    frame = inspect.currentframe()
    while frame is not None:
        where = frame.f_globals.get("__name__")
        if where in MODULES:
            given, to_fit = frame.f_locals.get("groups"), frame.f_locals.get("params") or {}
            search = where == MODULES[1]
            if (search and "groups" in to_fit) or (not search and given is not None and "groups" not in to_fit):
                _warn(name, search)
                return
        frame = frame.f_back


def advise_on_search(name: str) -> None:
    """Say that there is a cheaper way if this is called from a search over penalty weights."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == MODULES[1]:
            search = frame.f_locals.get("self")
            given = getattr(search, "param_grid", None) or getattr(search, "param_distributions", None) or {}
            grids = given if isinstance(given, list) else [given]
            if any(
                str(key).split("__")[-1] == "penalty" and _weights(one) for grid in grids for key, one in grid.items()
            ):
                warn(
                    f"{type(search).__name__} fits every penalty and every fold by itself; fpdfp.{name}CV finds "
                    "all weights in the exchanges of about one fit",
                    UserWarning,
                    "sklearn",
                    "joblib",
                )
                return
        frame = frame.f_back


def _weights(penalties: Any) -> bool:
    """Whether some of the penalties of a search differ in nothing but weight or options."""
    kinds = [as_model_penalty(one).name for one in penalties] if isinstance(penalties, list | tuple) else ["", ""]
    return len(set(kinds)) < len(kinds)


def _warn(name: str, search: bool) -> None:
    or_else = "" if search else ', or give params={"groups": groups} as well'
    warn(
        f"groups are passed to the splitter only, so {name} is fitted as if one site held all rows; enable metadata "
        f"routing (sklearn.set_config(enable_metadata_routing=True)) and call set_fit_request(groups=True){or_else}",
        UserWarning,
        "sklearn",
        "joblib",
    )
