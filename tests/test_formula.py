"""Formulas: the tree, coding by the rules of formulaic, names, and errors by name."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpdfp.errors import ArgumentError
from fpdfp.formula import code, parse
from fpdfp.formula.evaluation import Values
from fpdfp.formula.tree import Arithmetic, Column, Comparison, Formula, Number, Numeric

KINDS = {"a": "number", "z": "number", "b": "truth", "k": "integer", "s": "category", "t": "category", "y": "number"}


class Frame:
    """Rows of a pandas frame without missing values, as formulas read them."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def values(self, column: str) -> Values:
        given = self.frame[column]
        missing = given.isna().to_numpy()
        if KINDS[column] != "category":
            return Values(given.to_numpy(dtype=float), missing, None)
        levels, codes = np.unique(given.to_numpy().astype(str), return_inverse=True)
        return Values(codes.astype(float), missing, tuple(map(str, levels)))


def made(rows: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.standard_normal(rows),
            "a": rng.uniform(0.5, 3.0, rows),
            "z": rng.standard_normal(rows),
            "b": rng.random(rows) < 0.5,
            "k": np.arange(rows) % 4,
            "s": np.array(["u", "v", "w"])[np.arange(rows) % 3],
            "t": np.array(["p", "q"])[rng.permutation(rows) % 2],
        }
    )


def built(text: str, frame: pd.DataFrame, **options: Any) -> tuple[list[str], np.ndarray]:
    levels: dict[str, list[Any]] = {name: sorted(set(frame[name])) for name in ("s", "t", "k")}
    formula = parse(text)
    design = code(formula, KINDS, levels, **options)
    first = [np.ones((len(frame), 1))] if formula.intercept else []
    matrix = np.concatenate([*first, design.matrix(Frame(frame), [])], axis=1)
    return ["Intercept"] * formula.intercept + design.names, matrix


def check(text: str, frame: pd.DataFrame) -> None:
    from formulaic import model_matrix

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = model_matrix(text, frame, context={"log1p": np.log1p, "sqrt": np.sqrt, "expm1": np.expm1}).rhs
    names, matrix = built(text, frame)
    assert names == list(other.columns)
    np.testing.assert_allclose(matrix, other.to_numpy(dtype=float), rtol=1e-12, atol=1e-12)


FACTORS = ["a", "z", "b", "s", "t", "C(k)", "I(k == 3)", "log(a)", "C(s)"]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3, unique=True), min_size=1, max_size=4),
    st.sampled_from([":", "*", "+"]),
    st.sampled_from(["", " - 1", " + 0", " + 1"]),
    st.integers(0, 3),
)
def test_columns_and_names_are_those_of_formulaic(
    terms: list[list[str]], between: str, intercept: str, seed: int
) -> None:
    check(f"y ~ {' + '.join(between.join(term) for term in terms)}{intercept}", made(seed=seed))


@pytest.mark.parametrize(
    "text",
    [
        "y ~ s*t*a",
        "y ~ 0 + s:t + a",
        "y ~ (a + s + t)**2",
        "y ~ (a + s)**2 - a:s",
        "y ~ s/a",
        "y ~ a %in% s",
        "y ~ I(log(a) + z) + I(a**2)",
        "y ~ {a * z - 1} + sqrt(a) + exp(z) + log1p(a) + log10(a) + log2(a) + expm1(z)",
        "y ~ t:s:a + s",
        "y ~ 1",
        "y ~ C(k):C(s) + a - 1",
        "y ~ bs(a, knots=[1.5, 2.0], lower_bound=0, upper_bound=4)",
        "y ~ bs(a, knots=[1.5], lower_bound=0, upper_bound=4, degree=2):s",
    ],
)
def test_more_of_the_grammar(text: str) -> None:
    check(text, made())


def test_full_rank_where_formulaic_spans_the_same() -> None:
    frame = made(200)
    for text in ("y ~ s*t", "y ~ 0 + s*t", "y ~ s:t", "y ~ s:t + s", "y ~ C(k)*s*t - 1"):
        _, matrix = built(text, frame)
        assert np.linalg.matrix_rank(matrix) == matrix.shape[1]


def test_tree_and_names() -> None:
    formula = parse("died ~ I(rank == 3) + C(stage, ref='II') + age")
    assert formula.columns == ["died", "rank", "stage", "age"]
    assert formula.terms[0] == (Numeric("I(rank == 3)", Comparison("==", Column("rank"), Number(3.0))),)
    design = code(formula, {"stage": "category"}, {"stage": ["I", "II", "III"]})
    assert design.names == ["I(rank == 3)", "C(stage, ref='II')[T.I]", "C(stage, ref='II')[T.III]", "age"]
    assert design.term_of_each == ["I(rank == 3)", *["C(stage, ref='II')"] * 2, "age"]
    assert parse("log(y) ~ a").response != parse("y ~ a").response
    quoted = parse("y ~ `odd name` + log(`a b`)")
    assert quoted.columns == ["y", "odd name", "a b"]


def test_levels_and_order_can_be_given() -> None:
    frame = made()
    names, matrix = built("y ~ C(s, levels=['w', 'v', 'u'])", frame)
    assert names == ["Intercept", "C(s, levels=['w', 'v', 'u'])[T.v]", "C(s, levels=['w', 'v', 'u'])[T.u]"]
    np.testing.assert_array_equal(matrix[:, 1], frame.s == "v")
    names, matrix = built("y ~ C(k, ref=2)", frame)
    assert names == ["Intercept", "C(k, ref=2)[T.0]", "C(k, ref=2)[T.1]", "C(k, ref=2)[T.3]"]
    np.testing.assert_array_equal(matrix[:, 3], frame.k == 3)


def test_conditions() -> None:
    frame = made()
    names, matrix = built("y ~ I((a > 1) & (z < 0)) + I(1 < a <= 2) + I(s == 'u') + I(not b) + I(s != 'u' or b)", frame)
    assert len(names) == 6
    a, z, s, b = frame.a, frame.z, frame.s, frame.b
    wanted = [(a > 1) & (z < 0), (a > 1) & (a <= 2), s == "u", ~b, (s != "u") | b]
    np.testing.assert_array_equal(matrix[:, 1:], np.stack(wanted, axis=1).astype(float))


def test_natural_splines_are_linear_beyond_their_bounds() -> None:
    x = np.linspace(0.0, 4.0, 4001)
    frame = pd.DataFrame({"y": x, "a": x})
    design = code(parse("y ~ ns(a, knots=[1, 2.5], lower_bound=0, upper_bound=4)"), KINDS, {})
    values = design.matrix(Frame(frame), [])
    assert values.shape == (4001, 3)
    bends = np.diff(values, 2, axis=0) / (x[1] - x[0]) ** 2
    assert abs(bends[[0, -1]]).max() < 0.02 < abs(bends).max()
    # The line is in the space, as it is in that of every natural spline.
    line = np.linalg.lstsq(np.column_stack([np.ones_like(x), values]), x, rcond=None)[0]
    np.testing.assert_allclose(np.column_stack([np.ones_like(x), values]) @ line, x, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a + b", "must name the response"),
        ("y + z ~ a", "one response"),
        ("y ~ poly(a, 4)", "a degree from 1 to 3"),
        ("y ~ lgo(a)", "did you mean 'log'"),
        ("y ~ np.log(a)", "without their module"),
        ("y ~ log(a, 2)", "takes one argument"),
        ("y ~ I(a if b else c)", "formulas do not know"),
        ("y ~ I(a[0])", "formulas do not know"),
        ("y ~ I((lambda: 1)())", "not a function's name"),
        ("y ~ I(__import__('os').system('true'))", "formulas do not know|not a function|without their module"),
        ("y ~ .", "must name its columns"),
        ("y ~ 2:a", "multiply a term with a number"),
        ("y ~ y", "on the right of '~' too"),
        ("y ~ a | b", "cannot be read|of the form"),
        ("y ~ -1", "a term or an intercept"),
        ("y ~ a b", "cannot be read"),
        ("y ~ C(s, ref=1.5)", "a level must be"),
        ("y ~ C(s, levels=['u'])", "at least two levels"),
        ("y ~ C(s, base='u')", "by name"),
        ("y ~ C(a + 1)", "the name of a column"),
        ("y ~ I(C(s))", "stand by itself"),
        ("y ~ bs(a, df=2)", "an integer from 3 to 10"),
        ("y ~ bs(a, knots=[1])", "lower_bound"),
        ("y ~ bs(a, knots=[3], lower_bound=0, upper_bound=2)", "increasing"),
        ("y ~ I(s > 'u')", "compared with a column"),
        ("y ~ (a + b + c + d)**9", "terms"),
        ("y ~ " + "*".join(f"x{i}" for i in range(30)), "terms"),
        ("y ~ I(" + "-" * 100 + "a)", "inside each other"),
        ("y ~ I(" + "(" * 3000 + "a" + ")" * 3000 + ")", "cannot be read"),
        ("y ~ I(1e999 * a)", "neither a finite number"),
        ("y ~ " + "a" * 20_000, "characters"),
        ("", "must name the response"),
    ],
)
def test_errors_by_name(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as raised:
        parse(text)
    assert raised.value.argument == "formula"


def test_levels_are_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"ref='IV'.*'I', 'II'"):
        code(parse("y ~ C(g, ref='IV')"), {"g": "category"}, {"g": ["I", "II"]})
    with pytest.raises(ArgumentError, match="only the level 'I'"):
        code(parse("y ~ g"), {"g": "category"}, {"g": ["I"]})


PIECES = st.sampled_from(
    [*"ayzs~+-*:/()^.,`'\"{}[]|%0123 =<>&", "**", "C(", "I(", "log(", "bs(", "ref=", "knots=", "center(", "__", "λ",
     "\0", "\\", "lambda", "import"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PIECES, max_size=25).map("".join),
    st.lists(PIECES, max_size=20).map(lambda pieces: "y ~ " + "".join(pieces)),
    st.text(max_size=60),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(TEXTS)
def test_any_text_is_a_declared_tree_or_refused(text: str) -> None:
    began = time.perf_counter()
    try:
        formula = parse(text)
    except ArgumentError:
        pass
    else:
        assert isinstance(formula, Formula)
        assert all(type(factor).__module__ == "fpdfp.formula.tree" for term in formula.terms for factor in term)
    assert time.perf_counter() - began < 2.0


def test_arithmetic_is_kept_as_it_was_written() -> None:
    ((factor,),) = parse("y ~ I(a - z / 2)").terms
    assert factor == Numeric("I(a - z / 2)", Arithmetic("-", Column("a"), Arithmetic("/", Column("z"), Number(2.0))))
