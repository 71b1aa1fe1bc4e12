"""Formulas of models: parsed to a declared tree, coded by the levels of all sites, evaluated with NumPy alone."""

from fpdfp.formula.coding import Design, code
from fpdfp.formula.parsing import parse
from fpdfp.formula.tree import Formula

__all__ = ["Design", "Formula", "code", "parse"]
