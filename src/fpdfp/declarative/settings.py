"""The settings of an experiment: every section checked, every default filled in, before anything runs."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import itertools
import math
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, NamedTuple

from fpdfp import compress, methods, steps
from fpdfp._settings import REQUIRED, Document, Key, Table, show, split_key
from fpdfp.compress import Compressor
from fpdfp.engines.prepare import RunOptions
from fpdfp.methods import InnerSolve, Method
from fpdfp.precondition.cost import Network
from fpdfp.rng import MAX_ROUNDS

SECTIONS = ("data", "split", "loss", "operator", "penalty", "method", "compressor", "downlink", "run")
#: Data sets that are known by name; the sparse ones cannot be centred.
NAMED = ("breast-cancer", "digits", "a9a", "covtype")
SPARSE = ("a9a", "covtype")
TABLES = (".csv", ".tsv", ".parquet", ".csv.gz", ".csv.xz", ".csv.bz2", ".tsv.gz", ".tsv.xz", ".tsv.bz2")
SPLITS = ("iid", "by_label", "by_column", "by_quantity", "dirichlet")
#: Splits that can deal out views, which have no labels.
SPLITS_OF_VIEWS = ("iid", "by_quantity")
MOST_SETTINGS = 10_000
#: Models of scans: the data term is a plain sum over rays as the paper prints it, or scaled to a mean.
PRINTED, MEAN = MODELS = ("printed", "mean")
#: Options of a run that are no keys of ``[run]``: they have a section, or are the runner's.
NOT_IN_RUN = (
    "privacy",
    "compressor",
    "downlink",
    "seed",
    "x0",
    "metrics",
    "callbacks",
    "checkpoint",
    "resume",
    "progress",
    "scratch",
)
#: What stands in a file for None, and the default of what must be given.
DEFAULTS: dict[str, Any] = {
    "rounds": 100, "clients_per_round": "all", "evaluate_every": "automatic", "checkpoint_every": "automatic",
}  # fmt: skip

#: Checked settings: sections of plain values, all defaults written out.
Settings = dict[str, Any]


class Case(NamedTuple):
    """One setting of a sweep.

    Attributes
    ----------
    label
        A short name that is good for a folder; empty where nothing is swept.
    changes
        The values of the swept keys.
    settings
        All settings.
    document
        The file with these values, which knows where each is.
    """

    label: str
    changes: dict[str, Any]
    settings: Settings
    document: Document


def read(path: str | Path, assignments: list[str] | None = None) -> list[Case]:
    """Read a file of settings and check it whole; return the settings of all combinations.

    ``assignments`` are texts KEY=VALUE that go before what the file says.
    """
    return cases(Document.read(Path(path)).assign(assignments or []))


def declare(path: Path, changes: Mapping[str, Any]) -> Settings:
    """Return the settings of a file in which some keys, written with dots, have other values."""
    document = Document.read(path)
    return check(document.replace({split_key(key): value for key, value in changes.items()}, {}))


def cases(document: Document) -> list[Case]:
    """Return the settings of all combinations of what is swept."""
    swept = _swept(document)
    base = Document(document.path, {**document.data, "sweep": {}}, document.places)
    found: list[Case] = []
    labels: set[str] = set()
    for values in itertools.product(*(values for values, _ in swept.values())):
        changes = dict(zip(swept, values, strict=True))
        places = {key: place for key, (_, place) in swept.items()}
        changed = base.replace(changes, places)
        settings = check(changed)
        label = _label(changes)
        if label in labels:
            label = f"setting-{len(found) + 1}"
        labels.add(label)
        found.append(Case(label, {".".join(key): value for key, value in changes.items()}, settings, changed))
    return found


def _swept(document: Document) -> dict[Key, tuple[list[Any], str]]:
    """Return the values of each key that is swept, and where they are given."""
    table = document.data.get("sweep", {})
    if not isinstance(table, dict):
        document.fail(("sweep",), f"sweep must be a section, [sweep], got {show(table)}")
    found: dict[Key, tuple[list[Any], str]] = {}
    _flatten(document, ("sweep",), (), table, found)
    count = 1
    for values, _ in found.values():
        count *= len(values)
    if count > MOST_SETTINGS:
        document.fail(("sweep",), f"[sweep] has {count} combinations; at most {MOST_SETTINGS} are accepted")
    return found


def _flatten(document: Document, at: Key, key: Key, table: Any, found: dict[Key, tuple[list[Any], str]]) -> None:
    for name, values in table.items():
        here, longer = (*at, name), (*key, *split_key(name))
        if isinstance(values, dict):
            _flatten(document, here, longer, values, found)
            continue
        written = ".".join(longer)
        if not isinstance(values, list) or not values:
            document.fail(here, f"sweep.{written} must be a list of the values to try, got {show(values)}")
        if longer[0] not in (*SECTIONS, "name") or longer == ("run", "seeds") or longer == ("name",):
            other = "; give run.seeds in [run]" if longer == ("run", "seeds") else f": one of {', '.join(SECTIONS)}"
            document.fail(here, f"sweep: {written!r} must be a key of a section that can be swept{other}")
        found[longer] = (values, document.place(here))


def _label(changes: dict[Key, Any]) -> str:
    parts = []
    for key, value in changes.items():
        text = str(value.get("kind", "table")) if isinstance(value, dict) else _short(value)
        name = key[-2] if key[-1] == "kind" and len(key) > 1 else key[-1]
        parts.append(f"{name}={text}")
    return re.sub(r"[^A-Za-z0-9._=,+-]+", "_", ",".join(parts))[:120]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def check(document: Document) -> Settings:
    """Check a document without sweeps; return all settings."""
    top = Table(document, (), document.data)
    top.accept(["name", *SECTIONS, "sweep"], what="section or key")
    tables = {name: top.table(name) for name in SECTIONS}
    name = top.text("name", document.path.stem)
    if not name.strip():
        top.fail("name", "must not be empty")
    kind = tables["data"].text("kind", "table", ["table", "ct", "quadratics"])
    if kind == "ct":
        if "operator" in document.data:
            document.fail(("operator",), '[operator] is for tables: with data.kind = "ct" it follows from the penalty')
        _check_scan(tables)
    elif kind == "quadratics":
        _check_quadratics(tables)
    else:
        _check_rows(tables)
    method = check_made(tables["method"], METHODS, ("automatic",))
    check_messages(tables["compressor"])
    check_made(tables["downlink"], COMPRESSORS, ("automatic", "none"))
    _check_run(tables["run"], kind, tables, method)
    for section in ("data", "split", "loss", "operator", "penalty", "run"):
        tables[section].accept()
    return {"name": name, **{key: table.resolved for key, table in tables.items() if table.resolved}}


def _check_rows(tables: dict[str, Table]) -> None:
    """Check the sections of an experiment on rows of features."""
    data, loss = tables["data"], tables["loss"]
    if data.gives("file"):
        if data.gives("name"):
            data.fail("file", "cannot be given beside data.name: the rows come from one of them")
        data.file("file")
        sparse = not data.resolved["file"].lower().endswith(TABLES)
        if not sparse:
            data.text("label")
            if data.gives("site"):
                data.text("site")
            data.texts("drop", [])
            data.text("categories", "error", ["error", "onehot"])
        elif data.gives("features"):
            data.integer("features", at_least=1)
    else:
        sparse = data.text("name", REQUIRED, NAMED) in SPARSE
        if data.gives("directory"):
            if not sparse:
                data.fail("directory", f"is for {' and '.join(SPARSE)}, which may lie in a folder")
            data.file("directory", folder=True)
    if type(data.values.get("test")) is int and data.values["test"] > 0:
        data.integer("test")
    else:
        data.real("test", 0.2, at_least=0.0, below=1.0)
    if data.flag("standardize", not sparse) and sparse:
        data.fail("standardize", "must be false for sparse rows, which centring would fill")
    data.flag("intercept", True)
    data.flag("share_names", True)
    data.integer("seed", 0)
    _check_split(tables["split"], SPLITS, data)
    tables["split"].text("weights", "uniform", ["uniform", "samples"])
    loss.text("kind", "logistic", ["logistic", "least-squares", "softmax"])
    loss.real("l2", 1e-3, at_least=0.0)
    _check_operator(tables["operator"], data)
    _check_penalty(tables["penalty"], ("l1", "group", "box", "non-negative", "none"))


def _check_scan(tables: dict[str, Table]) -> None:
    """Check the sections of an experiment on a scan."""
    data, loss = tables["data"], tables["loss"]
    data.text("model", MEAN, MODELS)
    if data.gives("volume"):
        if data.gives("phantom"):
            data.fail("phantom", "cannot be given beside data.volume: the truth is one of them")
        data.file("volume")
    else:
        data.text("phantom", "thorax", ["thorax", "shepp-logan"])
    nx, _, nz = data.integers("shape", [32, 32, 8], at_least=2, length=3)
    data.integers("detector", [3 * nx // 2, max(2 * nz, 4)], at_least=2, length=2)
    data.integer("views", 60, at_least=1)
    data.real("noise", 0.1, at_least=0.0)
    data.integer("seed", 0)
    data.text("device", "cpu", ["cpu", "cuda", "auto"])
    _check_split(tables["split"], SPLITS_OF_VIEWS, data)
    loss.text("kind", "least-squares", ["least-squares"])
    loss.real("l2", 0.0, at_least=0.0)
    _check_penalty(tables["penalty"], ("tv", "non-negative", "box", "none"))


def _check_quadratics(tables: dict[str, Table]) -> None:
    """Check the sections of an experiment on quadratics."""
    for name, default in (("samples", 20), ("features", 8)):
        tables["data"].integer(name, default, at_least=2)
    tables["data"].integer("seed", 0)
    tables["split"].integer("clients", 10, at_least=1)
    tables["loss"].text("kind", "quadratic", ["quadratic"])
    tables["operator"].text("kind", "difference", ["difference"])
    tables["operator"].flag("stacked", False)
    _check_penalty(tables["penalty"], ("l1", "none"))


def _check_split(split: Table, kinds: tuple[str, ...], data: Table) -> None:
    if isinstance(split.values.get("kind"), str):
        split.values = {**split.values, "kind": split.values["kind"].replace("-", "_")}
    kind = split.text("kind", "iid", kinds)
    if kind == "by_column":
        if "site" not in data.values:
            split.fail("kind", "is 'by_column', which needs data.site: the column that says who holds a row")
        return
    split.integer("clients", 10, at_least=1)
    if kind == "iid":
        split.integer_or("seed", "data", 0, at_least=0)
    elif kind != "by_label":
        split.real("concentration", 0.5, above=0.0)
        split.integer("at_least", 1, at_least=1)
        split.integer("seed", 0)


def _check_operator(operator: Table, data: Table) -> None:
    kind = operator.text("kind", "identity", ["identity", "graph", "difference", "gradient", "file"])
    if kind == "graph":
        operator.real("alpha", 0.1, above=0.0)
        operator.flag("stacked", True)
        operator.text("form", "weights", ["weights", "differences"])
    elif kind == "gradient":
        default = [8, 8] if data.values.get("name") == "digits" else REQUIRED
        if len(operator.integers("shape", default, at_least=1)) > 3:
            operator.fail("shape", "must have one, two or three lengths")
    elif kind == "file":
        operator.file("file", endings=(".npz", ".mtx", ".mtx.gz"))


def _check_penalty(penalty: Table, kinds: tuple[str, ...]) -> None:
    kind = penalty.text("kind", kinds[0], kinds)
    if kind in ("l1", "tv", "group"):
        penalty.real("weight", 1e-3, at_least=0.0)
    if kind == "group":
        penalty.integer_or("size", "automatic", "automatic", at_least=1)
    if kind == "box":
        lower = penalty.real("lower", float("-inf"), finite=False)
        if penalty.real("upper", float("inf"), finite=False) < lower:
            penalty.fail("upper", f"must be at least penalty.lower, {lower:g}")


def run_options() -> dict[str, Parameter]:
    """Return the options that ``[run]`` can give, with their types; others have sections, or are the runner's."""
    return {name: one for name, one in parameters(RunOptions).items() if name not in NOT_IN_RUN}


def _check_option(run: Table, name: str, option: Parameter) -> None:
    """Check an option of a run by its type; where it may be None, a word stands for that, or 0 for a number."""
    (first, *_), default = option.kinds, DEFAULTS.get(name, option.default)
    if isinstance(run.values.get(name), dict) and option.tables and run.gives(name):
        table = run.table(name)
        check_made(table, option.tables, ())
        run.resolved[name] = table.resolved
    elif name == "sampling" and isinstance(run.values.get(name), list):
        run.reals(name, above=0.0)
    elif typing.get_origin(first) is typing.Literal:
        run.text(name, default, typing.get_args(first))
    elif bool in option.kinds:
        run.flag(name, default)
    elif float in option.kinds:
        run.real(name, default or 0.0, at_least=0.0, below=1.0 if name == "drop_out" else math.inf)
    elif isinstance(run.values.get(name), list) and len(option.kinds) > 2:
        run.integers(name, at_least=0)
    elif isinstance(default, str):
        run.integer_or(name, default, default, at_least=1)
    else:
        run.integer(name, default, at_least=1, at_most=MAX_ROUNDS)


def _check_run(run: Table, kind: str, tables: dict[str, Table], method: Any) -> None:
    for name, option in run_options().items():
        _check_option(run, name, option)
    per_round, clients = run.resolved["clients_per_round"], tables["split"].resolved.get("clients")
    if isinstance(per_round, int) and clients is not None and per_round > clients:
        run.fail("clients_per_round", f"must be at most split.clients, {clients}, got {per_round}")
    seeds = run.integers("seeds", [0], at_least=0)
    if len(set(seeds)) < len(seeds):
        run.fail("seeds", f"must be different from each other, got {show(seeds)}")
    has_reference = kind != "ct" or (tables["penalty"].resolved["kind"] == "tv" and tables["loss"].resolved["l2"] == 0)
    if run.flag("reference", kind != "ct") and not has_reference:
        run.fail("reference", "must be false: for scans it is known for total variation without a ridge alone")
    engine = run.text("engine", "local", ["local", "ray"])
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        run.fail("engine", "is 'ray', which is not installed: pip install ray")
    if engine == "ray" and isinstance(method, Method) and not method.traits.restorable:
        run.fail("engine", f"must be 'local' for {type(method).__name__}")
    if run.flag("together", False):
        _check_together(run, kind, tables)
    if run.text("history", "csv", ["csv", "parquet"]) == "parquet" and importlib.util.find_spec("pyarrow") is None:
        run.fail("history", "is 'parquet', which needs pyarrow: pip install pyarrow")


def _check_together(run: Table, kind: str, tables: dict[str, Table]) -> None:
    """Refuse settings that runs cannot have which are solved together."""
    if kind != "table":
        run.fail("together", "is for tables: data.kind must be 'table'")
    if run.resolved["tol"] <= 0:
        run.fail("tol", "must be above 0 with run.together, such as 1e-6: the relative accuracy of all runs")
    if len(run.resolved["seeds"]) > 1:
        run.fail("seeds", "must be one with run.together, which draws nothing")
    if run.resolved["engine"] != "local":
        run.fail("engine", "must be 'local' with run.together")
    for section in ("method", "compressor", "downlink"):
        if tables[section].resolved != {"kind": "automatic"}:
            tables[section].fail("kind", "must be 'automatic' with run.together: all runs are in the same messages")
    for name, option in run_options().items():
        usual = DEFAULTS.get(name, option.default)
        if name not in ("rounds", "tol", "evaluate_every", "checkpoint_every") and (
            run.resolved[name] not in (usual, usual or 0)
        ):
            run.fail(name, "must be left out with run.together: all clients take part in all exchanges")


# --- Methods, compressors and what they take, by name; what is accepted follows from their fields ---------------------


def _of(module: ModuleType, base: type) -> dict[str, type]:
    """Return the public classes of a module that are of a kind and can be made."""
    public = getattr(module, "__all__", vars(module))
    found = {name: one for name, one in vars(module).items() if isinstance(one, type) and issubclass(one, base)}
    return {name: one for name, one in sorted(found.items()) if not inspect.isabstract(one) and name in public}


METHODS = _of(methods, Method)
COMPRESSORS = _of(compress, Compressor)
#: What a parameter may be that is a table: a schedule of steps, how exactly something is solved, a network.
INNER: dict[str, type] = {
    **{name: one for name, one in _of(steps, steps.Schedule).items() if name != "Automatic"},
    "InnerSolve": InnerSolve,
    "Network": Network,
}


class Parameter(NamedTuple):
    """A field of a class: its default, and the types that it may have."""

    default: Any
    kinds: tuple[Any, ...]

    def convert(self, value: Any) -> Any:
        """Return a value of a file as the field has it: a list is a tuple there, and the word "none" None."""
        if isinstance(value, list) and any(typing.get_origin(one) is tuple for one in self.kinds):
            return tuple(value)
        return None if value == "none" and NoneType in self.kinds else value

    @property
    def tables(self) -> dict[str, type]:
        """The classes that a table may stand for."""
        classes = tuple(one for one in self.kinds if isinstance(one, type))
        return {name: one for name, one in INNER.items() if issubclass(one, classes)}


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type that a hint is."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)


@functools.cache
def parameters(kind: Any) -> dict[str, Parameter]:
    """Return what a class takes, from the types of its fields."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: Parameter(field.default, alternatives(hints[field.name]))
        for field in dataclasses.fields(kind)
        if field.init
    }


def check_made(table: Table, classes: Mapping[str, type], words: tuple[str, ...]) -> Any:
    """Check a section that names a class, or one of some words; keep all its parameters, and return what was made.

    A word is returned unchanged.
    """
    kind = table.text("kind", words[0] if words else REQUIRED, [*words, *classes])
    if kind in words:
        table.accept(["kind"])
        return kind
    accepted = parameters(classes[kind])
    table.accept(["kind", *accepted], what="parameter")
    given = {}
    for name, one in accepted.items():
        value = table.values.get(name)
        if isinstance(value, dict) and one.tables:
            given[name] = check_made(table.table(name), one.tables, ())
        elif name in table.values:
            given[name] = one.convert(value)
        elif one.default is dataclasses.MISSING:
            table.document.fail((*table.path, name), f"{table.title} must have the key {name!r} for {kind}")
    made = table.make(classes[kind], given)
    table.resolved.update(plain(made))
    return made


def check_messages(table: Table) -> None:
    """Check what is sent: a compressor, a word, or a section for each of the arrays of a message."""
    if table.values and all(isinstance(one, dict) for one in table.values.values()):
        for name in table.values:
            part = table.table(name)
            check_made(part, COMPRESSORS, ("none",))
            table.resolved[name] = part.resolved
    else:
        check_made(table, COMPRESSORS, ("automatic", "none"))


def plain(made: Any) -> dict[str, Any]:
    """Return the settings that make an object, all its parameters written out.

    >>> plain(compress.TopK(k=3))["k"]
    3
    """
    kind: Any = type(made)
    return {"kind": kind.__name__, **{name: _plain(getattr(made, name)) for name in parameters(kind)}}


def _plain(value: Any) -> Any:
    if value is None:
        return "none"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(value)
    return list(value) if isinstance(value, tuple) else value


def remake(settings: Mapping[str, Any], classes: Mapping[str, type]) -> Any:
    """Make what checked settings say."""
    kind = classes[settings["kind"]]
    return kind(**{
        name: remake(settings[name], one.tables) if isinstance(settings[name], Mapping) else one.convert(settings[name])
        for name, one in parameters(kind).items()
    })  # fmt: skip


def remake_messages(settings: Mapping[str, Any]) -> Any:
    """Make the compressors that checked settings describe, for ``fpdfp.solve``."""
    if "kind" not in settings:
        return {name: remake_messages(one) for name, one in settings.items()}
    if settings["kind"] in ("automatic", "none"):
        return "auto" if settings["kind"] == "automatic" else None
    return remake(settings, COMPRESSORS)
