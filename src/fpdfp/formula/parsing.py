"""From the text of a formula to the declared tree."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
import math
import re
import warnings
from collections.abc import Iterable
from typing import Any, get_args

from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.formula.tree import (
    MOST_DEGREE,
    Arithmetic,
    Call,
    Categorical,
    Column,
    Comparison,
    Converted,
    Cut,
    Definition,
    Elapsed,
    Expression,
    Factor,
    Formula,
    Function,
    Knotless,
    Logic,
    Number,
    Numeric,
    Poly,
    Recode,
    Spline,
    Standard,
    Survival,
    Text,
    columns_of,
    rebuild,
)

#: The longest text, the most terms, and the deepest expression that are accepted.
LONGEST, MOST_TERMS, DEEPEST = 10_000, 1000, 16
FUNCTIONS = tuple(name for name in get_args(Function) if name not in ("negative", "not"))
STANDARD, SPLINES = ("center", "scale"), ("bs", "ns")
DURATIONS = ("days", "months", "years")
DEFINITIONS = ("convert", "cut", "recode", *DURATIONS)
#: The most degrees of freedom of a spline whose knots are quantiles.
MOST_DF = 10
KNOWN = sorted(("C", "I", "poly", *FUNCTIONS, *STANDARD, *SPLINES, *DEFINITIONS))
OPERATORS: dict[type, Any] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
COMPARISONS: dict[type, Any] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="
}  # fmt: skip
QUOTED = re.compile(r"`([^`]*)`")


def parse(text: str) -> Formula:
    """Return the tree of a formula; everything that is not declared is refused by name.

    The grammar of terms follows ``formulaic`` (and patsy and R): ``+``, ``-``, ``:``, ``*``, ``/``, ``%in%``,
    ``(a + b)**2``, ``- 1`` or ``+ 0`` for no intercept, and backticks around names that are not Python's. A factor is
    a column, ``C(column, ref=…, levels=[…])``, ``I(…)`` or ``{…}`` of arithmetic, comparisons and functions, or one of
    the functions by itself. It may be a spline ``ns(x, df=4)`` or ``bs(x, knots=[…], lower_bound=…, upper_bound=…)``,
    or orthogonal polynomials ``poly(x, 2)``. A definition such as ``cut(x, [40, 60])`` (:func:`parse_variable`) is a
    column. A response ``cbind(successes, failures)`` has the share of successes, and trials as weights. ``offset(…)``
    is added to the linear predictor unchanged, with no coefficient. A response ``Surv(time, event)`` or ``Surv(start,
    stop, event)`` is the time of an event. With it ``strata(a, b)`` names columns whose levels have hazards of their
    own, and ``cluster(subject)`` the column that names which rows belong together.

    >>> formula = parse("died ~ age + C(stage, ref='I') + I(log(dose) > 2)")
    >>> formula.columns
    ['died', 'age', 'stage', 'dose']
    >>> parse("died ~ age + sin(dose)")
    Traceback (most recent call last):
      ...
    fpdfp.errors.ArgumentError: formula: the function 'sin' in 'sin(dose)' is not known; known are C, I, abs, bs,
    center, convert, cut, days, exp, expm1, log, log10, log1p, log2, months, ns, poly, recode, scale, sqrt, years
    """
    if not isinstance(text, str):
        raise ArgumentTypeError("formula", f"must be a text such as 'y ~ a + b', got {type(text).__name__}")
    left, right = _terms(text)
    if left is None:
        raise ArgumentError("formula", f"must name the response, as in 'y ~ a + b', got {text!r}")
    if len(left) != 1 or len(left[0]) != 1:
        raise ArgumentError("formula", f"must have one response before '~', got {text.split('~')[0].strip()!r}")
    trials = left[0][0][0].startswith("cbind(")
    weights: Expression | None = None
    if trials:
        successes, failures = _Reader(left[0][0][0]).read_trials()
        weights = Arithmetic("+", successes, failures)
        response: Expression | Survival = Arithmetic("/", successes, weights)
    else:
        response = _response(*left[0][0])
    terms, intercept, offset = [], False, None
    grouping: dict[str, list[str]] = {"strata": [], "cluster": []}
    for factors in sorted(right, key=lambda term: 0 if _is_one(term) else len(term)):
        if _is_one(factors):
            intercept = True
            continue
        special = factors[0][0].partition("(")[0] if len(factors) == 1 and "(" in factors[0][0] else ""
        if special == "offset":
            added = _Reader(factors[0][0]).read_offset()
            offset = added if offset is None else Arithmetic("+", offset, added)
            continue
        if special in grouping:
            grouping[special] += _Reader(factors[0][0]).read_columns(special)
            continue
        made = tuple(_factor(*factor) for factor in factors)
        terms.append(made)
    if not terms and not intercept:
        raise ArgumentError("formula", f"must have a term or an intercept after '~', got {text!r}")
    strata, clusters = grouping.values()
    outcome = set(columns_of(response))
    # The offset and weights of a rate may be of the time that is in the response too; times of events may not.
    grows = [term for term in terms if varies_with_time(term, response)]
    plain = [factor for term in terms for factor in term if term not in grows or not _is_clock(factor, response)]
    right = [*columns_of(plain), *strata, *clusters, *(columns_of(offset) if isinstance(response, Survival) else ())]
    for name in right:
        if name in outcome:
            raise ArgumentError(
                "formula:", f"the column {name!r} of the response is on the right of '~' too; what happened cannot "
                "explain itself. An effect that changes with time is age:log(time), in a Cox model of Surv(time, event)"
            )  # fmt: skip
    if strata and not isinstance(response, Survival):
        raise ArgumentError(
            "formula:", "strata(…) needs a response Surv(…), whose hazard is what strata have of their own"
        )
    if len(clusters) > 1:
        raise ArgumentError("formula:", "cluster(…) takes one column")
    cluster = Column(clusters[0]) if clusters else None
    return Formula(
        text, response, tuple(terms), intercept, offset, weights, tuple(dict.fromkeys(strata)), cluster, trials
    )


def varies_with_time(factors: tuple[Any, ...], response: Any) -> bool:
    """Whether a term is an effect that changes with time: of other factors, times a function of the response's time.

    >>> formula = parse("Surv(months, died) ~ age + age:log(months)")
    >>> [varies_with_time(term, formula.response) for term in formula.terms]
    [False, True]
    """
    clocks = sum(_is_clock(factor, response) for factor in factors)
    return clocks == 1 and len(factors) > 1


def clocks_of(formula: Formula) -> tuple[Any, ...]:
    """Return the functions of time that effects change with, each once."""
    found = [factor for term in formula.terms for factor in term if _is_clock(factor, formula.response)]
    return tuple(dict.fromkeys(found))


def _is_clock(factor: Any, response: Any) -> bool:
    """Whether a factor is a function of the time of a response Surv(time, event) alone."""
    if not isinstance(response, Survival) or not isinstance(response.leaves, Column):
        return False
    return isinstance(factor, Numeric) and set(columns_of(factor)) == {response.leaves.column}


def _response(text: str, kind: str) -> Expression | Survival:
    """Return what is before ``~``."""
    if text.startswith("Surv("):
        return _Reader(text).read_survival()
    response = _factor(text, kind)
    if isinstance(response, Categorical):
        return Column(response.column)
    if not isinstance(response, Numeric):
        raise ArgumentError("formula", f"must have a response of one column, got {response.name!r}")
    return response.value


def parse_weights(text: str) -> Expression:
    """Return the tree of what weighs rows: a column, or an expression of columns.

    >>> parse_weights("1 / variance")
    Arithmetic(operator='/', left=Number(number=1.0), right=Column(column='variance'))
    """
    if not isinstance(text, str):
        raise ArgumentTypeError("weights", f"must name a column, or be InverseProbability, got {type(text).__name__}")
    return _Reader(text).read_plain()


def parse_variable(text: str) -> Expression | Spline | Definition:
    """Return the tree of a variable that a site defines: an expression of columns, a definition of one, or a spline.

    Definitions are ``cut(x, [40, 60])``, with ``labels=[…]`` and ``right=False`` for intervals that are closed at the
    left; ``recode(x, {"old": "new", "?": None})``; ``days(start, end)``, ``months`` and ``years`` between dates; and
    ``convert(x, "kg", {"lb": 0.4536})``, by the unit that a site declares. A spline has no name here.

    >>> parse_variable("age >= 65")
    Comparison(comparison='>=', left=Column(column='age'), right=Number(number=65.0))
    >>> parse_variable("cut(age, [40, 60])").labels
    ('<= 40', '(40, 60]', '> 60')
    """
    if not isinstance(text, str):
        raise ArgumentTypeError("variable", f"must be a text such as 'age >= 65', got {type(text).__name__}")
    reader = _Reader(text)
    definition = reader.read_definition()
    if definition is not None:
        return definition
    factor = reader.read()
    if isinstance(factor, Spline):
        return dataclasses.replace(factor, name="")
    if isinstance(factor, Categorical | Knotless | Poly):
        raise reader.refuse("C(…), poly(…) and splines with df= need no definition")
    return reader.without_standard(factor.value)


def parse_condition(text: str) -> Expression:
    """Return the tree of a condition that rows meet: an expression of columns.

    >>> parse_condition("adult")
    Column(column='adult')
    """
    if not isinstance(text, str):
        raise ArgumentTypeError("condition", f"must be a text such as 'age >= 18', got {type(text).__name__}")
    return _Reader(text).read_plain()


def is_definition(name: str) -> bool:
    """Whether the name of a column is a definition: such a column is made at a site, which must have approved it."""
    return name.partition("(")[0] in DEFINITIONS and name.endswith(")")


def name_of(text: str) -> str:
    """Return the name of the column that a definition makes; any other text unchanged.

    >>> name_of("cut(age,[40,60])"), name_of("age >= 65")
    ('cut(age, [40, 60])', 'age >= 65')
    """
    if not is_definition(text.strip()):
        return text
    reader = _Reader(text.strip())
    return reader.name(reader._parse())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is nearest, or nothing."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _is_one(factors: Any) -> bool:
    return [kind for _, kind in factors] == ["literal"] and factors[0][0] == "1"


def _terms(text: str) -> tuple[Any, Any]:
    """Return the factors of each term left and right of ``~``, as texts with their kinds; None where nothing is left.

    formulaic's parser does no more than that: it evaluates nothing.
    """
    try:
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise ImportError("formulas need formulaic: pip install formulaic") from None
    if len(text) > LONGEST:
        raise ArgumentError("formula", f"must have at most {LONGEST:,} characters, got {len(text):,}")
    if re.search(r"(^|[~+\-*:/(\s])\.($|[~+\-*:/)\s])", text):
        raise ArgumentError("formula", f"must name its columns, got '.' for all of them in {text!r}")
    parser = DefaultFormulaParser(feature_flags={"twosided"})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if _count(parser.get_ast(text, context={})) > MOST_TERMS:
                raise ArgumentError("formula", f"must have at most {MOST_TERMS:,} terms, got more in {_short(text)}")
            sides = parser.get_terms(text)._structure
    except ArgumentError:
        raise
    except Exception as error:  # whatever a parser of free text raises, the text is at fault
        reason = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).split("\n")[0]
        raise ArgumentError("formula", f"cannot be read: {reason or type(error).__name__} ({_short(text)})") from None
    if not set(sides) <= {"root", "lhs", "rhs"}:
        raise ArgumentError("formula", f"must be of the form 'y ~ a + b', got {_short(text)}")
    read = {
        side: [[(factor.expr, factor.eval_method.value) for factor in term.factors] for term in terms]
        for side, terms in sides.items()
    }
    return read.get("lhs"), read.get("rhs", read.get("root"))


def _count(node: Any) -> int:
    """Bound the number of terms that a formula is multiplied out to, before it is; its work is bounded by that."""
    if not hasattr(node, "operator"):
        return 1
    counts, symbol = [_count(one) for one in node.args], node.operator.symbol
    if symbol in ("**", "^"):
        power = str(node.args[1]).strip("()")
        return min(counts[0] ** int(power), MOST_TERMS + 1) if power.isdigit() and int(power) < 10 else MOST_TERMS + 1
    found = math.prod(count + 1 for count in counts) if symbol in ("*", "/", ":", "%in%") else sum(counts)
    if symbol == "/" and counts[0] > DEEPEST:
        return MOST_TERMS + 1
    return min(found, MOST_TERMS + 1)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "…")


def _factor(text: str, kind: str) -> Factor:
    """Return the factor of a text."""
    if kind == "lookup":
        return Numeric(text, Column(text))
    if kind != "python":
        raise ArgumentError("formula", f"must not multiply a term with a number, got {text!r}; write I(2 * x) for 2x")
    return _Reader(text).read()


class _Reader:
    """Translates the text of one factor."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.quoted: dict[str, str] = {}

    def refuse(self, problem: str) -> ArgumentError:
        """Return an error about this factor."""
        return ArgumentError("formula:", f"{problem} in {_short(self.text)}")

    def read(self) -> Factor:
        """Return the factor."""
        node = self._parse()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in DEFINITIONS:
                made = self._call(node, 0)
                return Numeric(made.column, made) if isinstance(made, Column) else Numeric(self.text, made)
            if node.func.id == "C":
                return self._categorical(node)
            if node.func.id in SPLINES:
                return self._spline(node)
            if node.func.id == "poly":
                return self._poly(node)
            if node.func.id == "I":
                return Numeric(self.text, self._expression(self._one(node), 0))
        return Numeric(self.text, self._expression(node, 0))

    def _call_of(self, function: str) -> ast.Call:
        """Return the call of a function, which must be the whole text."""
        node = self._parse()
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function):
            raise self.refuse(f"{function}(…) must stand by itself")
        return node

    def read_offset(self) -> Expression:
        """Return what is inside of ``offset(…)``."""
        return self.without_standard(self._expression(self._one(self._call_of("offset")), 0))

    def read_survival(self) -> Survival:
        """Return what ``Surv(…)`` says."""
        node = self._call_of("Surv")
        if node.keywords or len(node.args) not in (2, 3) or any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refuse("Surv takes (time, event) or (start, stop, event)")
        *enters, leaves, event = (self.without_standard(self._expression(one, 1)) for one in node.args)
        return Survival(leaves, event, *enters)

    def read_columns(self, function: str) -> list[str]:
        """Return the columns in ``strata(…)`` or ``cluster(…)``."""
        node = self._call_of(function)
        columns = [self._column(one) for one in node.args]
        if node.keywords or not columns or None in columns:
            raise self.refuse(f"{function}(…) takes the names of columns")
        return [one for one in columns if one is not None]

    def read_plain(self) -> Expression:
        """Return an expression."""
        return self.without_standard(self._expression(self._parse(), 0))

    def without_standard(self, found: Expression) -> Expression:
        def refuse(node: Any) -> Any:
            if isinstance(node, Standard):
                raise self.refuse("center(…) and scale(…) are for terms only; they are not known")
            return node

        rebuild(found, refuse)
        return found

    def _parse(self) -> ast.expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(QUOTED.sub(self._unquote, self.text), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self.refuse("there is something that cannot be read") from None

    def _unquote(self, found: re.Match[str]) -> str:
        name = f"quoted_{len(self.quoted)}_"
        self.quoted[name] = found[1]
        return name

    def name(self, node: ast.expr) -> str:
        """Return the text of a node with the names of columns as they were written."""
        text = ast.unparse(node)
        for place, name in self.quoted.items():
            text = re.sub(rf"\b{place}\b", lambda _, name=name: f"`{name}`", text)  # type: ignore[misc]
        return text

    def read_definition(self) -> Definition | None:
        """Return the definition that is the whole text; None if it is something else."""
        node = self._parse()
        known = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DEFINITIONS
        return self._definition(node, 0) if known else None  # type: ignore[arg-type]

    def _definition(self, node: ast.Call, depth: int) -> Definition:
        name = node.func.id  # type: ignore[attr-defined]
        given = {str(one.arg): self._literal(name, one.value) for one in node.keywords}
        if name in DURATIONS:
            if len(node.args) != 2 or given:
                raise self.refuse(f"{name}(…) takes two columns of dates, the earlier one first,")
            start, end = (self._plain_column(name, one, depth) for one in node.args)
            return Elapsed(name, start, end)
        usage = {
            "cut": "cut(x, [40, 60])",
            "recode": "recode(x, {'old': 'new'})",
            "convert": "convert(x, 'kg', {'lb': 0.4536})",
        }
        wanted = 3 if name == "convert" else 2
        accepted = {"labels", "right"} if name == "cut" else set()
        if len(node.args) != wanted or set(given) - accepted:
            raise self.refuse(f"{name}(…) is to be written as {usage[name]},")
        values = [self._literal(name, one) for one in node.args[1:]]
        if name == "cut":
            return self._cut(self._expression(node.args[0], depth + 1), values[0], **given)
        column, pairs = self._plain_column(name, node.args[0], depth), values[-1]
        if not isinstance(pairs, dict) or not pairs or len(pairs) > MOST_TERMS:
            raise self.refuse(f"{name}(…) takes a dictionary, as in {usage[name]},")
        old, new = tuple(pairs), tuple(pairs.values())
        if name == "recode":
            if not all(isinstance(one, bool | int | float | str) for one in old) or not all(
                one is None or isinstance(one, bool | int | float | str) for one in new
            ):
                raise self.refuse("recode(…) takes texts and numbers, and None for no value,")
            return Recode(column, old, new)
        if not isinstance(values[0], str) or not all(isinstance(one, str) for one in old):
            raise self.refuse(f"convert(…) is to be written as {usage[name]},")
        if not all(type(one) in (int, float) and 0 < one < math.inf for one in new):
            raise self.refuse("the factors of units must be positive numbers")
        return Converted(column, values[0], old, tuple(map(float, new)))

    def _cut(self, of: Expression, edges: Any, labels: Any = None, right: Any = True) -> Cut:
        listed = edges if isinstance(edges, list | tuple) else [edges]
        numbers = [self._constant(one) for one in listed if isinstance(one, int | float)]
        ends = [one.number for one in numbers if isinstance(one, Number)]
        if len(ends) < max(len(listed), 1) or any(b <= a for a, b in itertools.pairwise(ends)):
            raise self.refuse("the edges must be increasing numbers")
        if not isinstance(right, bool):
            raise self.refuse("right must be True or False")
        self.without_standard(of)
        inner = [f"({a:g}, {b:g}]" if right else f"[{a:g}, {b:g})" for a, b in itertools.pairwise(ends)]
        names = (
            [f"<= {ends[0]:g}", *inner, f"> {ends[-1]:g}"] if right else [f"< {ends[0]:g}", *inner, f">= {ends[-1]:g}"]
        )
        if labels is not None:
            if not isinstance(labels, list | tuple) or not all(isinstance(one, str) and one for one in labels):
                raise self.refuse("labels must be a list of texts")
            if len(labels) != len(names) or len(set(labels)) < len(labels):
                raise self.refuse(f"labels must be {len(names)} different texts")
            names = list(labels)
        return Cut(of, tuple(ends), tuple(names), right)

    def _literal(self, name: str, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise self.refuse(f"{name}(…) takes numbers, texts, lists and dictionaries after the column") from None

    def _plain_column(self, name: str, node: ast.expr, depth: int) -> Column:
        found = self._expression(node, depth + 1)
        if not isinstance(found, Column):
            raise self.refuse(f"{name}(…) takes the name of a column")
        return found

    def _column(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DEFINITIONS:
            self._definition(node, 0)
            return self.name(node)
        return self.quoted.get(node.id, node.id) if isinstance(node, ast.Name) else None

    def _one(self, node: ast.Call) -> ast.expr:
        """Return the only argument of a call."""
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            raise self.refuse(f"{ast.unparse(node.func)}(…) takes one argument")
        return node.args[0]

    def _expression(self, node: ast.expr, depth: int) -> Expression:
        if depth > DEEPEST:
            raise self.refuse(f"there are more than {DEEPEST} expressions inside each other")
        down = depth + 1
        if isinstance(node, ast.Name):
            return Column(self.quoted.get(node.id, node.id))
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = self._expression(node.left, down), self._expression(node.right, down)
            return Arithmetic(OPERATORS[type(node.op)], left, right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            left, right = self._expression(node.left, down), self._expression(node.right, down)
            return Logic("and" if isinstance(node.op, ast.BitAnd) else "or", left, right)
        if isinstance(node, ast.BoolOp):
            parts = [self._expression(one, down) for one in node.values]
            return self._join("and" if isinstance(node.op, ast.And) else "or", parts)
        if isinstance(node, ast.UnaryOp):
            inner = self._expression(node.operand, down)
            if isinstance(node.op, ast.UAdd):
                return inner
            return Call("negative" if isinstance(node.op, ast.USub) else "not", inner)
        if isinstance(node, ast.Compare) and all(type(op) in COMPARISONS for op in node.ops):
            sides = [self._expression(one, down) for one in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
            return self._join("and", [self._compare(COMPARISONS[type(op)], a, b) for op, a, b in pairs])
        if isinstance(node, ast.Call):
            return self._call(node, down)
        if isinstance(node, ast.Attribute):
            raise self.refuse(f"there is {ast.unparse(node)!r}: write functions without their module, as log(x)")
        raise self.refuse(f"there is {_short(ast.unparse(node))}, which formulas do not know")

    def _join(self, logic: Any, parts: list[Expression]) -> Expression:
        if len(parts) > DEEPEST:
            raise self.refuse(f"there are more than {DEEPEST} conditions")
        joined = parts[0]
        for part in parts[1:]:
            joined = Logic(logic, joined, part)
        return joined

    def _compare(self, comparison: Any, left: Expression, right: Expression) -> Expression:
        texts = [isinstance(side, Text) for side in (left, right)]
        if any(texts):
            columns = [isinstance(side, Column) for side in (left, right)]
            if comparison not in ("==", "!=") or not any(columns):
                raise self.refuse("a text can only be compared with a column, by == or !=")
        return Comparison(comparison, left, right)

    def _constant(self, value: Any) -> Expression:
        if isinstance(value, str):
            return Text(value)
        if isinstance(value, bool | int | float):
            try:
                if math.isfinite(number := float(value)):
                    return Number(number)
            except OverflowError:
                pass
        raise self.refuse(f"{_short(repr(value)[:100])} is neither a finite number nor a text")

    def _call(self, node: ast.Call, depth: int) -> Expression:
        if not isinstance(node.func, ast.Name):
            if isinstance(node.func, ast.Attribute):
                self._expression(node.func, depth)
            raise self.refuse(f"there is a call of {_short(ast.unparse(node.func))}, which is not a function's name")
        name = node.func.id
        if name in ("C", "poly", *SPLINES):
            raise self.refuse(f"{name}(…) must stand by itself, not inside of something else,")
        if name == "I":
            return self._expression(self._one(node), depth)
        if name in DEFINITIONS:
            self._definition(node, depth)
            return Column(self.name(node))
        if name in STANDARD:
            inner = self._expression(self._one(node), depth)
            return Standard(name, inner)  # type: ignore[arg-type]
        if name in FUNCTIONS:
            return Call(name, self._expression(self._one(node), depth))  # type: ignore[arg-type]
        raise ArgumentError(
            "formula:",
            f"the function {name!r} in {_short(self.text)} is not known; known are "
            f"{', '.join(KNOWN)}{nearest(name, KNOWN)}",
        )

    def _arguments(self, node: ast.Call, accepted: tuple[str, ...]) -> tuple[ast.expr, dict[str, Any]]:
        """Return the first argument, and the others by name as numbers, texts and lists of them."""
        name = ast.unparse(node.func)
        if len(node.args) != 1:
            raise self.refuse(f"{name}(…) takes one argument, and others by name ({', '.join(accepted)}),")
        given: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg not in accepted:
                raise self.refuse(f"{name}(…) takes {', '.join(accepted)} by name, not {keyword.arg!r},")
            try:
                given[keyword.arg] = ast.literal_eval(keyword.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                raise self.refuse(f"{keyword.arg} must be a number, a text, or a list of such") from None
        return node.args[0], given

    def _categorical(self, node: ast.Call) -> Factor:
        inner, given = self._arguments(node, ("ref", "levels"))
        column = self._column(inner)
        if column is None:
            raise self.refuse("C(…) takes the name of a column")
        ref, levels = given.get("ref"), given.get("levels")
        for level in [*([] if ref is None else [ref]), *(levels if isinstance(levels, list | tuple) else [])]:
            if not isinstance(level, bool | int | str) or (isinstance(level, int) and abs(level) >= 1 << 63):
                raise self.refuse(
                    f"a level must be a text, an integer, True or False, not {_short(repr(level)[:100])},"
                )
        if levels is not None and (not isinstance(levels, list | tuple) or len(set(levels)) < max(2, len(levels))):
            raise self.refuse("levels must be a list of at least two levels, all different,")
        if ref is not None and levels is not None and ref not in levels:
            raise self.refuse(f"ref must be one of the levels, not {ref!r},")
        return Categorical(self.text, column, None if levels is None else tuple(levels), ref)

    def _spline(self, node: ast.Call) -> Factor:
        name = ast.unparse(node.func)
        accepted = ("knots", "lower_bound", "upper_bound", "df", *(("degree",) if name == "bs" else ()))
        inner, given = self._arguments(node, accepted)
        degree = given.get("degree", 3)
        if type(degree) is not int or not 1 <= degree <= 5:
            raise self.refuse("degree must be an integer from 1 to 5")
        if set(given) <= {"df", "degree"} and "df" in given:
            least = 1 if name == "ns" else degree
            if type(given["df"]) is not int or not least <= given["df"] <= MOST_DF:
                raise self.refuse(f"df must be an integer from {least} to {MOST_DF}")
            return Knotless(self.text, name, self._plain_column(name, inner, 0), given["df"], degree)  # type: ignore[arg-type]
        if set(accepted[:3]) - set(given) or "df" in given:
            raise self.refuse(
                f"{name}(…) needs df=, for knots at quantiles over all sites, or knots=[…], lower_bound= and "
                "upper_bound=,"
            )
        knots = given["knots"] if isinstance(given["knots"], list | tuple) else [given["knots"]]
        ends = [given["lower_bound"], *knots, given["upper_bound"]]
        numbers = [self._constant(one) for one in ends if isinstance(one, int | float)]
        values = [one.number for one in numbers if isinstance(one, Number)]
        if len(values) < len(ends) or any(b <= a for a, b in itertools.pairwise(values)):
            raise self.refuse("the bounds and the knots between them must be increasing numbers")
        of = self._expression(inner, 1)
        return Spline(self.text, name, of, tuple(values[1:-1]), values[0], values[-1], degree)  # type: ignore[arg-type]

    def _poly(self, node: ast.Call) -> Factor:
        degree = self._literal("poly", node.args[1]) if len(node.args) == 2 else None
        if node.keywords or type(degree) is not int or not 1 <= degree <= MOST_DEGREE:
            raise self.refuse(f"poly(…) takes a column and a degree from 1 to {MOST_DEGREE}, as poly(x, 2)")
        return Poly(self.text, self._plain_column("poly", node.args[0], 0), degree)

    def read_trials(self) -> tuple[Column, Column]:
        """Return the columns of ``cbind(successes, failures)``."""
        node = self._call_of("cbind")
        if node.keywords or len(node.args) != 2:
            raise self.refuse("cbind takes (successes, failures)")
        successes, failures = (self._plain_column("cbind", one, 0) for one in node.args)
        return successes, failures
