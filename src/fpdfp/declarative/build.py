"""Problems, metrics, methods and messages, built from settings."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import datasets
from fpdfp._typing import Array, IntArray
from fpdfp.datasets import FeatureGraph, feature_graph, splits
from fpdfp.declarative.settings import DEFAULTS, METHODS, Settings, remake, remake_messages, run_options
from fpdfp.engines.prepare import RunOptions, choose
from fpdfp.errors import ArgumentError
from fpdfp.linops import Difference, Identity, LinOp, VStack
from fpdfp.runs import linear_model

#: The sections that the problem depends on.
OF_THE_PROBLEM = ("data", "split", "loss", "operator", "penalty")
#: How near the reference is to the minimum, relative to it.
TOLERANCE = 1e-10
#: How many problems are kept: sweeps mostly change the method.
KEPT = 4


@dataclasses.dataclass(frozen=True)
class Built:
    """A problem and what belongs to it.

    Attributes
    ----------
    problem
        What is minimised.
    metrics
        What is measured at every evaluation.
    reference
        Finds the minimum.
    model
        What the numbers of a linear model mean, else None.
    truth, voxel
        The true volume of a scan, else None, and the side of a voxel.
    """

    problem: fpdfp.Problem
    metrics: dict[str, Callable[[Array], float]]
    reference: Callable[[], float]
    model: dict[str, Any] | None = None
    truth: Array | None = None
    voxel: float = 1.0


def build(settings: Settings) -> Built:
    """Make the problem of some settings; the latest ones are kept."""
    return _build(problem_key(settings))


def problem_key(settings: Settings) -> str:
    """Return a text that is the same where the problem is."""
    return json.dumps({name: settings[name] for name in OF_THE_PROBLEM if name in settings}, sort_keys=True)


@functools.lru_cache(maxsize=KEPT)
def _build(key: str) -> Built:
    settings = json.loads(key)
    kind = settings["data"]["kind"]
    if kind == "ct":
        from fpdfp.declarative import scan

        return scan.build(settings)
    return _build_rows(settings) if kind == "table" else _build_quadratics(settings)


def deal(
    split: dict[str, Any], count: int, order: Callable[[int], IntArray], labels: Any = None, site: Any = None
) -> IntArray:
    """Return who holds each row or view; ``order`` gives the random order in which they are where it is the data's."""
    kind, clients = split["kind"], split.get("clients", 1)
    if kind == "by_column":
        return splits.by_column(site)
    if split.get("seed") == "data":
        if clients > count:
            raise ArgumentError(
                "split.clients", f"must leave one of {count} rows or views for every client, got {clients}"
            )
        owners: IntArray = np.empty(count, dtype=np.int64)
        owners[order(count)] = np.arange(count) % clients
        return owners
    given = {name: value for name, value in split.items() if name not in ("kind", "clients", "weights")}
    dealt: IntArray = getattr(splits, kind)(labels if kind in ("by_label", "dirichlet") else count, clients, **given)
    return dealt


def make_penalty(penalty: dict[str, Any]) -> fpdfp.penalties.Penalty:
    """Make a penalty that needs no more than its own settings; for images, the total variation."""
    kind = penalty["kind"]
    if kind == "l1":
        return fpdfp.penalties.L1(penalty["weight"])
    if kind == "tv":
        return fpdfp.penalties.GroupL12(penalty["weight"], axis=0)
    if kind == "box":
        return fpdfp.penalties.Box(penalty["lower"], penalty["upper"])
    return fpdfp.penalties.NonNegative() if kind == "non-negative" else fpdfp.penalties.Zero()


def solve_options(settings: Settings) -> dict[str, Any]:
    """Return method, messages and the rest of what ``fpdfp.solve`` is to be given."""
    run, method = settings["run"], settings["method"]
    # What stands for None in a file: a word, or 0.
    options = {
        name: None if option.default is None and run[name] in (DEFAULTS.get(name), 0) else run[name]
        for name, option in run_options().items()
    }
    for name, option in run_options().items():
        if isinstance(table := options[name], Mapping):
            options[name] = remake(table, option.tables)
    return {
        "method": None if method["kind"] == "automatic" else remake(method, METHODS),
        "compressor": remake_messages(settings["compressor"]),
        "downlink": remake_messages(settings["downlink"]),
        "engine": fpdfp.cohorts.Ray() if run["engine"] == "ray" else None,
        **options,
    }


def check_fit(settings: Settings) -> None:
    """Refuse a method or messages that do not fit the problem, before any of the runs begins."""
    options = solve_options(settings)
    method, _ = options.pop("method"), options.pop("engine")
    choose(build(settings).problem, method, RunOptions(**options))


# --- Rows of features: a data set, who holds it, a loss, a map and a penalty ------------------------------------------

#: The sections that rows, losses and the map depend on, and of how many of these the latest are kept.
BUT_PENALTY = ("data", "split", "loss", "operator")
KEPT_ROWS = 2


@dataclasses.dataclass(frozen=True)
class BuiltRows(Built):
    """A problem on rows: with those for training and for testing, their labels as the loss has them, and the graph."""

    features: Any = None
    labels: Any = None
    test_features: Any = None
    test_labels: Any = None
    graph: FeatureGraph | None = None
    l2: float = 0.0


class Rows(NamedTuple):
    """Rows, their labels unchanged, who holds them, and the names of columns and classes."""

    X: Any
    y: Array
    site: Array | None
    names: list[str]
    classes: list[str] | None


class Loaded(NamedTuple):
    """All of a problem but its penalty."""

    losses: fpdfp.losses.Losses
    matrix: Any
    linop: Any
    metrics: dict[str, Any]
    model: dict[str, Any]
    rows: dict[str, Any]


def _build_rows(settings: dict[str, Any]) -> BuiltRows:
    """Make the problem; those that differ in the penalty alone share their losses."""
    loaded = _load_all(json.dumps({name: settings[name] for name in BUT_PENALTY}, sort_keys=True))
    penalty = _penalty(settings["penalty"], settings["operator"], loaded.losses.shape, loaded.matrix)
    problem = fpdfp.Problem(loaded.losses, penalty, loaded.linop, weights=settings["split"]["weights"])
    return BuiltRows(
        problem, loaded.metrics, lambda: fpdfp.minimize(problem, tol=TOLERANCE).objective, loaded.model, **loaded.rows
    )


@functools.lru_cache(maxsize=KEPT_ROWS)
def _load_all(key: str) -> Loaded:
    settings = json.loads(key)
    data, loss = settings["data"], settings["loss"]
    rows = load(data)
    targets, classes = _targets(rows, loss["kind"])
    train, test = _split_rows(len(targets), data)
    X = rows.X
    if data["standardize"]:
        X = _standardize(X, X[train])
    graph = _graph(settings["operator"], X[train])
    names, intercept = rows.names, None
    if data["intercept"]:
        X, names, intercept = _add_ones(X), [*names, "intercept"], X.shape[1]
    site = None if rows.site is None else rows.site[train]
    owners = deal(settings["split"], len(train), np.arange, rows.y[train], site)
    given: dict[str, Any] = {"clients": owners, "l2": loss["l2"]}
    if data["share_names"]:
        given["feature_names"] = names
    if settings["split"]["kind"] == "by_column" and site is not None:
        given["clients"] = site
    losses: fpdfp.losses.Losses
    if loss["kind"] == "softmax":
        assert classes is not None
        losses = fpdfp.losses.Softmax(X[train], targets[train], n_classes=len(classes), **given)
    else:
        kind = fpdfp.losses.Logistic if loss["kind"] == "logistic" else fpdfp.losses.LeastSquares
        losses = kind(X[train], targets[train], **given)
    matrix = _matrix(settings["operator"], rows.X.shape[1], len(names), graph)
    linop = matrix if matrix is None or len(losses.shape) == 1 else fpdfp.linops.EachRow(matrix, losses.shape[0])
    return Loaded(
        losses,
        matrix,
        linop,
        _metrics(loss["kind"], X[test], targets[test]) if len(test) else {},
        linear_model(names, intercept=intercept, graph=graph, classes=classes, standardized=bool(data["standardize"])),
        {
            "features": X[train], "labels": targets[train], "test_features": X[test], "test_labels": targets[test],
            "graph": graph, "l2": loss["l2"],
        },
    )  # fmt: skip


def load(data: dict[str, Any]) -> Rows:
    """Read the rows."""
    if "file" in data:
        given = {"n_features": data["features"]} if "features" in data else {}
        if "label" in data:
            given = {"target": data["label"], "site": data.get("site"), "drop": data["drop"]}
            given["categories"] = data["categories"]
        found = datasets.load(Path(data["file"]), **given)
    elif data["name"] in ("breast-cancer", "digits"):
        from sklearn.datasets import load_breast_cancer, load_digits

        bunch = load_digits() if data["name"] == "digits" else load_breast_cancer()
        classes = [str(name) for name in bunch.target_names]
        return Rows(bunch.data, bunch.target, None, [str(name) for name in bunch.feature_names], classes)
    else:
        found = datasets.load(data["name"], directory=data.get("directory"))
    names = found.feature_names or [f"x{i}" for i in range(found.X.shape[1])]
    return Rows(found.X, found.y, found.site, list(names), None)


def _targets(rows: Rows, loss: str) -> tuple[Array, list[str] | None]:
    """Return what the loss is to be given, and the names of the classes."""
    if loss == "least-squares":
        if rows.y.dtype.kind not in "fiub":
            raise ArgumentError("loss.kind", "is 'least-squares', which needs labels that are numbers; these are texts")
        return rows.y.astype(np.float64), None
    labels, codes = np.unique(rows.y, return_inverse=True)
    if loss == "logistic" and len(labels) != 2:
        raise ArgumentError(
            "loss.kind",
            f"is 'logistic', which needs two different labels, but there are {len(labels)}; "
            "'softmax' is for several classes, 'least-squares' for numbers",
        )
    if loss == "softmax" and len(labels) > len(rows.y) // 2:
        raise ArgumentError("loss.kind", f"is 'softmax', but {len(labels)} of {len(rows.y)} labels differ: no classes")
    written = [f"{label:g}" if isinstance(label, float) else str(label) for label in labels.tolist()]
    classes = rows.classes if rows.classes is not None and len(rows.classes) == len(labels) else written
    return (np.where(codes == 1, 1.0, -1.0) if loss == "logistic" else codes.astype(np.float64)), classes


def _split_rows(count: int, data: dict[str, Any]) -> tuple[Array, Array]:
    """Return the numbers of the rows for training and for testing."""
    test = data["test"]
    kept = count - test if isinstance(test, int) else round((1.0 - test) * count)
    if kept >= count:
        return np.arange(count), np.arange(0)
    return splits.train_test(count, max(kept, 1), seed=data["seed"])


def _standardize(X: Array, training: Array) -> Array:
    """Return columns of mean 0 and variance 1 over the rows for training; constant ones are centred alone."""
    spread = training.std(axis=0)
    scaled: Array = (X - training.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _add_ones(X: Any) -> Any:
    if isinstance(X, np.ndarray):
        return np.column_stack([X, np.ones(len(X))])
    import scipy.sparse

    return scipy.sparse.hstack([X, np.ones((X.shape[0], 1))]).tocsr()


def _graph(operator: dict[str, Any], X: Any) -> FeatureGraph | None:
    return feature_graph(X, alpha=operator["alpha"]) if operator["kind"] == "graph" else None


def _matrix(operator: dict[str, Any], features: int, columns: int, graph: FeatureGraph | None) -> Any:
    """Return B as a sparse matrix, None for the identity; it has zeros where the intercept is."""
    import scipy.sparse

    matrix: Any
    if operator["kind"] == "identity":
        if columns == features:
            return None
        matrix = scipy.sparse.eye_array(features, format="csr")
    elif operator["kind"] == "graph":
        assert graph is not None
        matrix = graph.stacked(operator["form"]) if operator["stacked"] else graph.structure(operator["form"])
        if matrix.shape[0] == 0:
            raise ArgumentError(
                "operator.alpha", "is so large that the graph has no edges; lower it, or stack the graph"
            )
    elif operator["kind"] == "difference":
        if features < 2:
            raise ArgumentError("operator.kind", "is 'difference', which needs at least two features")
        matrix = gradient([features])[:-1]
    elif operator["kind"] == "gradient":
        if int(np.prod(operator["shape"])) != features:
            raise ArgumentError(
                "operator.shape", f"must have {features} entries, one a feature, got {operator['shape']}"
            )
        matrix = gradient(operator["shape"])
    else:
        matrix = _read_matrix(Path(operator["file"]))
        if matrix.shape[1] not in (features, columns):
            raise ArgumentError(
                "operator.file", f"must hold a matrix with {features} columns, one a feature, got {matrix.shape}"
            )
    matrix = scipy.sparse.csr_array(matrix, dtype=np.float64, copy=True)
    matrix.resize(matrix.shape[0], columns)
    return matrix


def gradient(shape: list[int]) -> Any:
    """Return the discrete gradient of images as a matrix: as ``fpdfp.linops.Gradient``, for images as vectors.

    >>> gradient([2]).toarray()
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    import scipy.sparse

    parts = []
    for axis, length in enumerate(shape):
        below = np.ones(length)
        below[-1] = 0.0
        step = scipy.sparse.diags_array([-below, below[:-1]], offsets=[0, 1], shape=(length, length))
        before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        left, right = scipy.sparse.eye_array(before), scipy.sparse.eye_array(after)
        parts.append(scipy.sparse.kron(scipy.sparse.kron(left, step), right))
    return scipy.sparse.vstack(parts).tocsr()


def _read_matrix(path: Path) -> Any:
    """Read a matrix: SciPy's .npz or NumPy's with one array, or Matrix Market."""
    import scipy.io
    import scipy.sparse

    try:
        if path.name.lower().endswith(".npz"):
            with np.load(path, allow_pickle=False) as archive:
                if "format" not in archive.files:
                    arrays = [archive[name] for name in archive.files]
                    if len(arrays) != 1 or arrays[0].ndim != 2:
                        raise ValueError("it must hold one matrix, dense or as scipy.sparse.save_npz writes it")
                    return arrays[0]
            return scipy.sparse.load_npz(path)
        return scipy.io.mmread(path)
    except Exception as error:
        raise ArgumentError("operator.file:", f"{path} cannot be read as a matrix: {error}") from error


def _penalty(penalty: dict[str, Any], operator: dict[str, Any], shape: Any, matrix: Any) -> fpdfp.penalties.Penalty:
    if penalty["kind"] != "group":
        return make_penalty(penalty)
    entries = shape[-1] if matrix is None else matrix.shape[0]
    size = penalty["size"]
    if size != "automatic":
        groups = np.arange(entries) // size
    elif operator["kind"] == "gradient":
        groups = np.tile(np.arange(int(np.prod(operator["shape"]))), len(operator["shape"]))
    elif len(shape) == 2:
        return fpdfp.penalties.GroupL12(penalty["weight"], axis=0)
    else:
        raise ArgumentError(
            "penalty.size",
            "must be the number of successive entries of Bx in a group; it is automatic for images "
            "(operator.kind 'gradient') and for several classes (loss.kind 'softmax') alone",
        )
    if len(shape) == 2:
        # A group for each class.
        groups = groups + np.arange(shape[0])[:, None] * (groups.max() + 1)
    return fpdfp.penalties.GroupL12(penalty["weight"], groups=groups)


def _metrics(loss: str, X: Any, targets: Array) -> dict[str, Any]:
    """Return what is measured on the rows for testing."""
    if loss == "least-squares":
        return {"test_loss": lambda x: float(0.5 * np.square(X @ x - targets).mean())}
    if loss == "logistic":
        return {
            "test_loss": lambda x: float(np.logaddexp(0.0, -targets * (X @ x)).mean()),
            "accuracy": lambda x: float(np.mean((X @ x > 0) == (targets > 0))),
        }
    codes = targets.astype(np.int64)

    def test_loss(x: Array) -> float:
        from scipy.special import logsumexp

        scores = X @ x.T
        return float((logsumexp(scores, axis=1) - scores[np.arange(len(codes)), codes]).mean())

    return {"test_loss": test_loss, "accuracy": lambda x: float(np.mean((X @ x.T).argmax(axis=1) == codes))}


# --- Quadratics whose constants are known exactly, for measuring what theorems say ------------------------------------


@dataclasses.dataclass(frozen=True)
class BuiltQuadratics(Built):
    """A problem on quadratics: with the a_ij and the diagonal of H.

    Client i has S samples f_ij(x) = ½(x − a_ij)ᵀH(x − a_ij) with one diagonal H for all.
    """

    centres: Any = None
    curvatures: Any = None


def _build_quadratics(settings: dict[str, Any]) -> BuiltQuadratics:
    """Make the problem: the a_ij are a signal with one jump, moved for each client and for each sample."""
    data, clients = settings["data"], settings["split"]["clients"]
    samples, features = data["samples"], data["features"]
    generator = np.random.default_rng(data["seed"])
    signal = np.where(np.arange(features) < features // 2, 1.0, -0.5)
    moved = signal + 0.15 * generator.standard_normal((clients, 1, features))
    a: Array = moved + 0.3 * generator.standard_normal((clients, samples, features))
    curvatures = np.linspace(1.0, 2.0, features)

    def value(i: int, x: Array) -> float:
        return float(0.5 * np.mean(np.sum(curvatures * (x - a[i]) ** 2, axis=-1)))

    def gradient(i: int, x: Array, chosen: Any) -> Array:
        mean = a[i].mean(axis=0) if chosen is None else a[i, chosen].mean(axis=0)
        return np.asarray(curvatures * (x - mean))

    losses = fpdfp.losses.Custom(
        value, gradient, n_clients=clients, shape=features, lipschitz=float(curvatures.max()),
        strong_convexity=float(curvatures.min()), sizes=[samples] * clients,
    )  # fmt: skip
    linop: LinOp = Difference(features)
    if settings["operator"]["stacked"]:
        linop = VStack([linop, Identity(features)])
    problem = fpdfp.Problem(losses, make_penalty(settings["penalty"]), linop)
    return BuiltQuadratics(
        problem, {}, lambda: fpdfp.minimize(problem, tol=TOLERANCE).objective, centres=a,
        curvatures=curvatures,
    )  # fmt: skip
