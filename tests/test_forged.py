"""Objects that a coordinator has forged are refused, before any compiled code sees them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import linops, penalties, precondition
from fpdfp._kernels import matrix as matrix_kernels
from fpdfp._kernels import tv
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.requests import Job, Place
from fpdfp.cohorts.serialization import constructor_hints, pack, unpack
from fpdfp.cohorts.site import MOST_STEPS, Site
from fpdfp.errors import MessageError
from fpdfp.precondition.base import Announced
from fpdfp.problem import LocalLosses, Model
from tests import helpers

OBJECTS: list[Any] = [
    linops.Gradient((3, 4, 5)), linops.Difference(5), linops.Identity((3, 4)), linops.Diagonal(np.ones(5)),
    linops.aslinop(helpers.graph(6)), linops.Matrix(np.ones((2, 3))), linops.EachRow(np.eye(3), rows=2),
    linops.VStack([linops.Identity(3), linops.Difference(3)]), linops.Compose(np.eye(3), linops.Identity(3)),
    penalties.L1(0.1), penalties.L1(np.ones(3)), penalties.Box(-1.0, 1.0), penalties.NonNegative(), penalties.Zero(),
    penalties.ElasticNet(0.1, [0.1, 0.0, 1.0], -1.0), penalties.SparseGroup(0.1, [0.1, 0.2], groups=[0, 0, 1]),
    penalties.GroupL12(0.1, axis=0), penalties.GroupL12(0.1, groups=[0, 0, 1]),
    penalties.Stacked([penalties.L1(0.1), penalties.NonNegative()], shapes=[(3,), (3,)]),
    precondition.Scaling(np.ones(3)), precondition.Whitening(np.eye(3)), precondition.Fourier(np.eye(5)[2]),
    precondition.Fourier(np.eye(5)[2]).factor,
    fpdfp.steps.Constant(0.1), fpdfp.QSGD(3), fpdfp.compress.TopK(2), fpdfp.methods.InnerSolve(),
    fpdfp.ShiftedPDFP(), fpdfp.FPDFP(), fpdfp.methods.FedProx(0.1),
]  # fmt: skip
DERIVED = (
    "out_shape", "in_shape", "squared_norm", "_transpose", "_copies", "_edges", "_starts", "_order", "_ndim", "_roots",
    "_root", "_gains", "factor", "inverse", "apply", "adjoint", "prox", "bind", "wire_id", "traits", "__dict__",
    "__class__", "__init__", "__setstate__", "__doc__", "",
)  # fmt: skip


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_nothing_but_a_constructor_s_arguments_is_taken(value: Any) -> None:
    tree = parcels.dump(value)
    assert repr(parcels.load(unpack(pack(tree)))) == repr(value)
    for name in DERIVED:
        for forged in ([3, 40, 50, 60], 1.0, np.eye(6), {"in_shape": [3]}, None):
            with pytest.raises(MessageError, match="is made of"):
                parcels.load({"class": tree["class"], "fields": tree["fields"] | {name: forged}})
    for name in tree["fields"]:
        fewer = {other: one for other, one in tree["fields"].items() if other != name}
        with pytest.raises(MessageError, match="is made of"):
            parcels.load({"class": tree["class"], "fields": fewer})


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (linops.Gradient((3, 4, 5)), {"shape": [3, 4, -5]}), (linops.Gradient((3, 4, 5)), {"shape": [1, 2, 3, 4]}),
        (linops.Gradient((3, 4, 5)), {"shape": [3.0, 4, 5]}), (linops.Gradient((3, 4, 5)), {"shape": 60}),
        (linops.Difference(5), {"size": 2**63}), (linops.Difference(5), {"size": True}),
        (linops.Diagonal(np.ones(5)), {"factors": np.array([1.0, np.nan])}), (linops.Matrix(np.eye(3)), {"matrix": 3}),
        (linops.Matrix(np.eye(3)), {"matrix": np.ones(3)}), (linops.Compose(np.eye(3), np.eye(3)), {"inner": 1}),
        (penalties.GroupL12(1.0, groups=[0, 1]), {"groups": np.array([0.5, 1.0])}),
        (penalties.GroupL12(1.0, axis=0), {"axis": "0"}), (penalties.L1(0.1), {"weight": -1.0}),
        (penalties.L1(0.1), {"weight": float("nan")}), (penalties.L1(0.1), {"weight": "0.1"}),
        (penalties.Box(0.0, 1.0), {"lower": np.array(2.0)}),
        (precondition.Scaling(np.ones(3)), {"announced": []}), (precondition.Scaling(np.ones(3)), {"rows": 0}),
        (
            precondition.Whitening(np.eye(3)),
            {"announced": 3 * parcels.dump(precondition.Whitening(np.eye(3)).announced)},
        ),
        (precondition.Whitening(np.eye(3)), {"announced": parcels.dump(precondition.Scaling(np.ones(2)).announced)}),
        (fpdfp.FPDFP(), {"step": [0.1]}), (fpdfp.FPDFP(), {"local_steps": 0}), (fpdfp.FPDFP(), {"lam": float("inf")}),
        (fpdfp.QSGD(3), {"levels": 0}), (fpdfp.QSGD(3), {"block": "all"}), (fpdfp.QSGD(3), {"codec": "pickle"}),
    ],
)  # fmt: skip
def test_arguments_are_checked(value: Any, change: dict[str, Any]) -> None:
    tree = parcels.dump(value)
    assert set(change) <= set(tree["fields"])
    with pytest.raises(MessageError):
        parcels.load({"class": tree["class"], "fields": tree["fields"] | change})


def test_messages_of_preconditioners_are_checked() -> None:
    tree = parcels.dump(precondition.Whitening(np.eye(3)))
    part = tree["fields"]["announced"][0]
    for change in ({"bits": part["fields"]["bits"] + 8}, {"message": part["fields"]["message"][:-1]}, {"message": b""}):
        forged = {"class": part["class"], "fields": part["fields"] | change}
        with pytest.raises(MessageError):
            parcels.load({"class": tree["class"], "fields": tree["fields"] | {"announced": [forged]}})


def test_indices_of_sparse_matrices_are_inside() -> None:
    good = parcels.dump(linops.aslinop(helpers.graph(6)))
    rows = good["fields"]["matrix"]
    changes: list[dict[str, Any]] = [
        {"indices": rows["indices"] + 1000}, {"indices": -rows["indices"]}, {"indptr": rows["indptr"][::-1].copy()},
        {"indptr": rows["indptr"] * 1000}, {"shape": [12, 3]}, {"shape": [10**6, 6]}, {"data": rows["data"][:-1]},
        {"indices": rows["indices"].astype(float)}, {"data": np.full_like(rows["data"], np.nan)}, {"shape": [12]},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(MessageError):
            parcels.load({"class": good["class"], "fields": {"matrix": rows | change}})


@pytest.mark.parametrize(
    "indptr",
    [
        [0, 4, 7, 9, -(2**31)], [0, 4, 7, 9, -1], [0, 10, 0, 0, 0], [0, -5, 0, 0, 10], [0, 4, 2**31 - 1, -(2**31), 10],
        [0, 4, 7, 9, 11], [1, 4, 7, 9, 10], [0, 4, 10],
    ],
)  # fmt: skip
def test_rows_of_sparse_matrices_are_inside(indptr: list[int]) -> None:
    """SciPy's own check looks at nothing where the last number is not positive, and its differences may overflow."""
    columns = np.array([0, 1, 2, 3, 1, 2, 3, 2, 3, 3], dtype=np.int32)
    tree = {"shape": [4, 4], "data": np.ones(10), "indices": columns, "indptr": np.array(indptr, dtype=np.int32)}
    with pytest.raises(MessageError, match="indptr"):
        parcels.load({"class": "linops.Matrix", "fields": {"matrix": tree}})


def test_parts_of_a_model_fit_each_other() -> None:
    tree = parcels.dump(helpers.graph_guided().model)
    changes: list[dict[str, Any]] = [
        {"shape": [13]}, {"shape": []}, {"dtype": "<i8"}, {"dtype": "O"}, {"device": "tpu"},
        {"linop": parcels.dump(linops.Identity(13))}, {"linop": parcels.dump(penalties.L1(1.0))},
        {"penalty": parcels.dump(penalties.L1(np.ones(3)))}, {"penalty": parcels.dump(linops.Identity(12))},
        {"penalty": parcels.dump(penalties.GroupL12(1.0, axis=5))},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(MessageError):
            parcels.load({"class": tree["class"], "fields": tree["fields"] | change}, Model)


def test_every_class_has_a_type_for_every_argument() -> None:
    assert len(parcels.classes()) == len(parcels.sendable())
    for kind, (_, hints) in parcels.sendable().items():
        assert all(not name.startswith("_") and hint is not Any for name, hint in hints.items()), kind
    with pytest.raises(TypeError, match="LocalLosses cannot be sent: nothing is said of the type of memory"):
        constructor_hints(LocalLosses)


@pytest.mark.parametrize(
    "module", ["builtins", "__main__", "other.penalties", "fpdfp_more.penalties", "fpdfp.penaltiesX"]
)
def test_classes_of_users_may_not_be_sent(module: str) -> None:
    made = type("L1", (penalties.L1,), {"__module__": module, "sent": {"weight": float}})
    assert made in penalties.L1.__subclasses__()
    found = parcels.sendable.__wrapped__()
    assert penalties.L1 in found
    assert made not in found
    assert set(found) == set(parcels.sendable())


class TestSites:
    """A site refuses what does not fit its losses."""

    @pytest.fixture
    def problem(self) -> fpdfp.Problem:
        return helpers.graph_guided(clients=2)

    def job(self, problem: fpdfp.Problem, coordinates: Any = None, **others: Any) -> Job:
        algorithm = helpers.prepare(problem, fpdfp.ShiftedPDFP(0.1, shift_step=1.0))
        place = {"numbers": np.arange(2), "scaling": None, "total": 1.0, "seed": 0}
        given: dict[str, Any] = {
            "algorithm": dataclasses.replace(algorithm, coordinates=coordinates),
            "compressors": {"difference": fpdfp.QSGD(3)}, "downlink": None,
            "place": Place(**{name: others.pop(name, one) for name, one in place.items()}), **others,
        }  # fmt: skip
        return Job(**given)

    @pytest.mark.parametrize(
        "contents",
        [
            {"job": {"method": 1}},
            {"update": {}, "key": "k"},
            {"exact_moments": {"job": {"class": "os:system"}}},
            {"constants": {"factor": {"class": "subprocess:Popen", "fields": {}}}},
            {"at": {"x": "text", "parts": ["values"]}},
            {"at": {"x": np.zeros(7), "parts": ["values"]}},
            {"at": {"x": np.zeros(12), "parts": ["data"]}},
            {"at": {"x": np.zeros(12), "parts": 3}},
            {"update": 3},
            {"facts": {}, "key": [], "job": []},
        ],
    )
    def test_requests_that_make_no_sense(self, problem: fpdfp.Problem, contents: dict[str, Any]) -> None:
        with pytest.raises(MessageError):
            Site(problem.losses).handle(parcels.load(unpack(pack(contents))))

    @pytest.mark.parametrize(
        "factor", [linops.Difference(12), linops.Identity(13), linops.Matrix(np.ones((3, 12))), linops.Identity((3, 4))]
    )
    def test_a_factor_maps_points_to_points(self, problem: fpdfp.Problem, factor: Any) -> None:
        for size in (None, 3):
            request = unpack(pack({"constants": {"factor": parcels.dump(factor), "batch_size": size}}))
            with pytest.raises(MessageError, match=r"a factor must map arrays of shape \(12,\) to such"):
                Site(problem.losses).handle(parcels.load(request))

    @pytest.mark.parametrize(
        "coordinates",
        [
            precondition.Scaling(np.ones(11)),
            precondition.Whitening(np.eye(13)),
            precondition.Scaling(np.ones(12), rows=2),
        ],
    )
    def test_coordinates_are_those_of_the_losses(self, problem: fpdfp.Problem, coordinates: Any) -> None:
        job = self.job(problem, coordinates)
        with pytest.raises(MessageError, match="coordinates must be for"):
            Site(problem.losses).begin(job, "key")
        with pytest.raises(MessageError, match="coordinates must be for"):
            Site(problem.losses).handle({"constants": {"coordinates": coordinates}})

    @pytest.mark.parametrize("kind", ["Scaling", "Whitening"])
    @pytest.mark.parametrize("rows", [2**25, 2**31])
    def test_coordinates_are_compared_before_they_are_built(
        self, problem: fpdfp.Problem, kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = getattr(precondition, kind)
        made = chosen(np.ones(12) if kind == "Scaling" else np.eye(12), rows=rows)
        tree = unpack(pack({"constants": {"coordinates": parcels.dump(made)}}))

        def build(_: Any) -> Any:
            raise AssertionError("a factor of 2 GiB and more")

        monkeypatch.setattr(chosen, "factor", property(build))
        with pytest.raises(MessageError, match=r"coordinates must be for arrays of shape \(12,\)"):
            Site(problem.losses).handle(parcels.load(tree))
        with pytest.raises(MessageError, match=r"coordinates must be for arrays of shape \(12,\)"):
            Site(problem.losses).begin(self.job(problem, made), "key")

    @pytest.mark.parametrize(
        ("others", "words"),
        [
            ({"compressors": {}}, "a compressor for each of"), ({"compressors": {"x": fpdfp.QSGD(3)}}, "for each of"),
            ({"compressors": {"difference": fpdfp.QSGD(3, block=(2,))}}, "axis 2"),
            ({"downlink": fpdfp.QSGD(3, block=(1,))}, "axis 1"), ({"numbers": np.arange(3)}, "has 2 clients"),
        ],
    )  # fmt: skip
    def test_jobs_that_cannot_be_done(self, problem: fpdfp.Problem, others: dict[str, Any], words: str) -> None:
        with pytest.raises(MessageError, match=words):
            Site(problem.losses).begin(self.job(problem, **others), "key")

    @pytest.mark.parametrize(
        "method",
        [
            fpdfp.FedAvg(local_steps=MOST_STEPS + 1, penalty="ignore"), fpdfp.FPDFP(local_steps=2**24),
            fpdfp.FedMiD(local_steps=500, inner=fpdfp.InnerSolve()), fpdfp.RandProx(local_steps=2**24),
            fpdfp.FedDR(local_steps=2**24, inner=fpdfp.InnerSolve()),
        ],
    )  # fmt: skip
    def test_a_forged_number_of_steps_does_not_keep_a_site_busy(self, problem: fpdfp.Problem, method: Any) -> None:
        site = Site(problem.losses)
        with pytest.raises(MessageError, match="a client takes at most 250,000 steps in a round, the run has"):
            site.begin(self.job(problem, algorithm=helpers.prepare(problem, method)), "key")

    @pytest.mark.parametrize(
        "others",
        [
            {"numbers": np.array([1, 0])}, {"numbers": np.array([-1, 0])}, {"numbers": np.arange(2)[None]},
            {"scaling": np.ones(3)}, {"scaling": np.zeros(2)}, {"total": 0.0}, {"seed": -1}, {"norm_bound": 0.0},
        ],
    )  # fmt: skip
    def test_jobs_that_cannot_be(self, problem: fpdfp.Problem, others: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="must"):
            self.job(problem, **others)

    def test_messages_have_the_shapes_of_the_method(self, problem: fpdfp.Problem) -> None:
        full = fpdfp.compress.Full()
        draws = fpdfp.rng.Draws(0, 0, np.zeros(1, dtype=np.int64))
        site = Site(problem.losses)
        site.begin(self.job(problem), "key")
        clients = np.arange(2)
        stamps = {"clients": clients, "versions": np.zeros(2, dtype=np.int64)}
        stamps["digests"] = [ledger.stamp().digest for ledger in site.ledgers]  # type: ignore[assignment]

        def ask(array: Any, frames: int = 1) -> dict[str, Any]:
            whole = frames * full.encode(full.quantize(array[None], draws, 0))
            message = {"whole": whole}
            return site.handle({"key": "key", "update": {"round": 0, "message": message} | stamps})

        assert "frames" in ask(np.zeros(12))["update"]
        for array, frames in (
            (np.zeros(13), 1), (np.zeros((2, 12)), 1), (np.zeros(12, np.float32), 1), (np.zeros(12), 2),
            (np.zeros(12), 0),
        ):  # fmt: skip
            with pytest.raises(MessageError):
                ask(array, frames)

    def test_a_question_has_the_shapes_of_the_method(self, problem: fpdfp.Problem) -> None:
        site = Site(problem.losses)
        site.begin(self.job(problem), "key")
        ask: dict[str, Any] = {"clients": np.arange(2), "versions": np.zeros(2, dtype=np.int64)}
        ask["digests"] = [ledger.stamp().digest for ledger in site.ledgers]
        good = [Announced.plain(one).message for one in (np.zeros(12), np.zeros(12, np.float32), np.zeros(1))]
        longer, two = (Announced.plain(np.zeros(n)).message for n in (11, 2))
        assert site.handle({"key": "key", "answers": ask | {"frames": good}})["answers"]
        for frames in (good[:2], good[::-1], [longer, *good[1:]], [*good[:2], two]):
            with pytest.raises(MessageError, match="a question must"):
                site.handle({"key": "key", "answers": ask | {"frames": frames}})
        for wrong in (Announced.plain(np.zeros(13)).message, b"", good[0][:-1]):
            with pytest.raises(MessageError):
                site.handle({"key": "key", "answers": ask | {"frames": [wrong, *good[1:]]}})

    def test_copies_are_what_clients_remember(self, problem: fpdfp.Problem) -> None:
        site = Site(problem.losses)
        site.begin(self.job(problem), "key")
        ledger = site.ledgers[0]
        for copied in ({"shift": np.zeros(13)}, {"shift": np.zeros(12, np.float32)}, {"other": np.zeros(12)}):
            with pytest.raises(MessageError, match="copy must hold"):
                ledger.adopt(copied, ledger.stamp())


class TestKernels:
    """Compiled code is not called with arrays that do not fit each other."""

    def test_total_variation(self) -> None:
        x, v = np.zeros((2, 3, 4, 5)), np.zeros((2, 3, 3, 4, 5))
        tv.gradient(x, v)
        tv.adjoint(v, x)
        for other in (np.zeros((2, 3, 30, 4, 5)), np.zeros((1, 3, 3, 4, 5)), np.zeros((2, 3, 3, 4, 4)), v[:, :2], x):
            with pytest.raises(ValueError, match="no gradient of shape"):
                tv.gradient(x, other)
            with pytest.raises(ValueError, match="no gradient of shape"):
                tv.adjoint(other, x)

    @pytest.mark.parametrize("change", [(0, 1), (1, 1), (4, 1), (5, 1), (1, 2), (4, 3)])
    def test_dual_steps(self, change: tuple[int, int]) -> None:
        half, v = np.zeros((2, 3, 4, 5)), np.zeros((2, 3, 3, 4, 5))
        arrays: list[Any] = [half, v, True, np.ones(4), v.copy(), half.copy()]

        def step(half: Any, v: Any, isotropic: Any, constants: Any, new_v: Any, new_x: Any) -> None:
            tv.dual_step(half, v, isotropic, constants, True, new_v, new_x)

        step(*arrays)
        at, axis = change
        shape = list(arrays[at].shape)
        shape[axis] += 1
        arrays[at] = np.zeros(shape)
        with pytest.raises(ValueError, match="do not fit dual variables"):
            step(*arrays)

    def test_products(self) -> None:
        sparse = linops.aslinop(helpers.graph(6)).matrix  # type: ignore[attr-defined]
        for one in (sparse, sparse.toarray()):
            for count in (1, 3):
                assert matrix_kernels.multiply(one, np.zeros((count, 6)), np.float64).shape == (count, 12)
                for shape in ((count, 5), (count, 7), (6,), (count, 1, 6)):
                    with pytest.raises(ValueError, match="does not take"):
                        matrix_kernels.multiply(one, np.zeros(shape), np.float64)
