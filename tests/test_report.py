"""Reports without a browser: what the page holds, and what its server refuses."""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fpdfp
import fpdfp.report
from fpdfp.cli import app
from fpdfp.report import live, ssim
from fpdfp.report.describe import MOST_CLIENTS, MOST_ROWS, circle_order, describe
from fpdfp.report.pictures import Volumes, coarser, pack, slice_psnr, volumes_of
from fpdfp.runs import Recorder, linear_model, load

EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&amp;\u2028"


class Elements(HTMLParser):
    """The elements of a page, and the text of each script by its id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: dict[str, str] = {}
        self._id: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._id = dict(attrs).get("id") or tag if tag in ("script", "title") else None

    def handle_endtag(self, tag: str) -> None:
        self._id = None

    def handle_data(self, data: str) -> None:
        if self._id is not None:
            self.scripts[self._id] = self.scripts.get(self._id, "") + data


def strictly(text: str) -> Any:
    def refused(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refused)


def data_of(path: Path) -> Any:
    return strictly(Elements(path.read_text(encoding="utf-8")).scripts["data"])


def folder_of(path: Path, *, history: str | None = None, **info: Any) -> Path:
    """Write a run folder by hand."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"format": 1, "name": path.name, "status": "running", **info}))
    if history is not None:
        (path / "history.csv").write_text(history)
    return path


HISTORY = "round,objective,bits_up,bits_down,step,seconds\n0,2.0,0,0,0.1,0.0\n1,1.5,10,20,0.1,0.5\n"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small graph-guided problem."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((40, 4)), np.ones(40)])
    y = np.where(X[:, 0] + 0.1 * rng.standard_normal(40) > 0, 1.0, -1.0)
    graph = fpdfp.datasets.as_graph([(0, 1, 0.5), (1, 3, -0.25)], 4)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=np.arange(40) % 4, l2=0.01), fpdfp.penalties.L1(0.05))
    model = linear_model(["a", "b", EVIL, "d", "one"], intercept=4, graph=graph, classes=["no", "yes"])
    best = fpdfp.minimize(problem)
    recorder = Recorder(folder, problem, name=EVIL, reference=best, model=model)
    recorder.solve(rounds=40, clients_per_round=2, metrics={"size": lambda x: float(np.abs(x).sum())}, progress=False)
    return folder


def test_a_report_is_one_file_that_loads_nothing(recorded: Path, tmp_path: Path) -> None:
    path = fpdfp.report.write(recorded, tmp_path / "new" / "report.html")
    page = Elements(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "new" / "report.html"
    assert list(path.parent.iterdir()) == [path]
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "action", "style")
        assert not name.startswith("on")
        assert name != "href" or value in ("data:,", "#main")
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"@import|url\((?!#)|import\s*\(|XMLHttpRequest|WebSocket|innerHTML|eval\(", text)
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == {"http://www.w3.org/2000/svg"}


def test_names_cannot_break_out_of_the_page(recorded: Path, tmp_path: Path) -> None:
    path = fpdfp.report.write(recorded, tmp_path / "report.html", title=EVIL)
    page = Elements(path.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert page.scripts["title"] == EVIL
    data = strictly(page.scripts["data"])
    assert data["title"] == data["runs"][0]["name"] == EVIL
    assert data["runs"][0]["model"]["features"] == ["a", "b", EVIL, "d"]


def test_the_page_has_the_numbers_of_the_run(recorded: Path, tmp_path: Path) -> None:
    run = load(recorded)
    data = data_of(fpdfp.report.write([run], tmp_path / "report.html"))
    (found,) = data["runs"]
    assert found["columns"]["objective"] == run.history["objective"].tolist()
    reference = run.info["reference"]
    assert found["columns"]["error"] == pytest.approx((run.history["objective"] - reference) / abs(reference))
    assert found["error"] == pytest.approx((run.info["objective"] - reference) / abs(reference))
    assert found["metrics"] == ["size"]
    assert found["columns"]["size"] == run.history["size"].tolist()
    assert found["bits_once_up"] == run.info["bits_once_up"] > 0
    assert found["total_up"] == run.info["total_up"] == sum(line["up"] for line in found["traffic"])
    kinds = ["rounds", "preconditioner", "facts", "evaluation"]
    assert [line["kind"] for line in found["traffic"]] == kinds
    assert found["columns"]["total_up"] == run.history["total_up"].tolist()
    assert found["certificate"] == run.info["certificate"]
    assert data["federations"][0]["samples"] == [10, 10, 10, 10]
    assert data["federations"][0]["labels"] == ["no", "yes"]
    assert np.sum(data["federations"][0]["counts"]) == 40


def test_the_model_leaves_the_intercept_out_and_counts_zeros(recorded: Path) -> None:
    model = describe(recorded)["model"]
    x = load(recorded).x
    assert x is not None
    assert model["values"] == [pytest.approx(x[:4], abs=1e-8 * np.abs(x).max())]
    assert model["intercepts"] == [x[4]]
    assert model["zeros"] == [np.count_nonzero(np.abs(x[:4]) <= 1e-8 * np.abs(x).max())]
    assert sorted(model["edges"]) == [[0, 1, 0.5], [1, 3, -0.25]]
    assert sorted(model["order"]) == [0, 1, 2, 3]


def test_coefficients_that_are_negligible_count_as_zero(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "small", kind="linear")
    np.savez(folder / "final.npz", x=np.array([2.0, 1e-9, -1e-12, 1e-6]))
    (folder / "model.json").write_text(json.dumps({"features": list("abcd"), "edges": [], "intercept": None}))
    model = describe(folder)["model"]
    assert model["values"] == [[2.0, 0.0, 0.0, 1e-6]]
    assert model["zeros"] == [2]


def test_neighbours_are_near_on_the_circle_and_loners_last() -> None:
    path = [[i, i + 2, 1.0] for i in range(0, 10, 2)]
    order = circle_order(12, path)
    assert order[6:] == [1, 3, 5, 7, 9, 11]
    assert all(abs(order.index(i) - order.index(j)) == 1 for i, j, _ in path)
    assert circle_order(2, []) == [0, 1]


def test_a_model_of_several_classes_has_a_row_for_each(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "softmax", kind="linear")
    np.savez(folder / "final.npz", x=np.arange(6.0).reshape(3, 2))
    (folder / "model.json").write_text(
        json.dumps(
            {
                "features": ["a", "b"],
                "intercept": 1,
                "edges": [[0, 9, 1.0], [0, 0, 1.0], "x"],
                "classes": ["r", "g", "b"],
            }
        )
    )
    model = describe(folder)["model"]
    assert model["values"] == [[0.0], [2.0], [4.0]]
    assert model["zeros"] == [1, 0, 0]
    assert model["intercepts"] == [1.0, 3.0, 5.0]
    assert model["classes"] == ["r", "g", "b"]
    assert model["edges"] == []


def test_what_is_missing_or_damaged_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder_of(tmp_path / "only-begun")
    half = folder_of(tmp_path / "half", history=HISTORY[:-8])
    (half / "model.json").write_text("{")
    (half / "final.npz").write_bytes(b"PK\x03\x04 cut off")
    (tmp_path / "no-json").mkdir()
    (tmp_path / "no-json" / "run.json").write_text('{"format": 1, "na')
    wrong = {"method": 3, "messages": "m", "clients": [1, {"labels": []}], "certificate": [], "seconds": "long"}
    folder_of(tmp_path / "wrong", history=HISTORY, versions=None, **wrong)
    data = data_of(fpdfp.report.write(tmp_path, tmp_path / "report.html"))
    runs = {run["id"]: run for run in data["runs"]}
    assert list(runs) == ["half", "no-json", "only-begun", "wrong"]
    assert runs["only-begun"]["trouble"] == []
    assert runs["only-begun"]["columns"]["round"] == []
    assert "history.csv" in runs["half"]["trouble"][0]
    assert "model.json" in runs["half"]["trouble"][1]
    assert "run.json" in runs["no-json"]["trouble"][0]
    assert runs["no-json"]["name"] == "no-json"
    assert runs["wrong"]["columns"]["objective"] == [2.0, 1.5]
    assert runs["wrong"]["objective"] == 1.5
    assert runs["wrong"]["seconds"] is None
    assert runs["wrong"]["certificate"] is None


def test_a_page_does_not_tell_where_the_folders_were(tmp_path: Path) -> None:
    (folder_of(tmp_path / "one") / "history.csv").write_text("round\n1,2\n")
    text = fpdfp.report.write(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "history.csv cannot be read" in text
    assert str(tmp_path) not in text


def test_runs_are_in_the_order_of_their_folders_with_numbers_as_numbers(tmp_path: Path) -> None:
    for weight in ("0.5", "10", "0.05", "1e-3", "2"):
        folder_of(tmp_path / f"weight={weight}" / "seed-0", created=f"2026-01-01T00:00:{60 - len(weight)}+00:00")
    runs = data_of(fpdfp.report.write(tmp_path, tmp_path / "report.html"))["runs"]
    assert [run["id"].split("/")[0].split("=")[1] for run in runs] == ["1e-3", "0.05", "0.5", "2", "10"]


def written(folder: Path, config: str, **info: Any) -> Path:
    folder_of(folder, **{"name": "study", "seed": 0, "history": HISTORY, **info})
    (folder / "config.toml").write_text(config)
    return folder


CONFIG = "name = 'study'\n[data]\nname = 'a9a'\n[run]\nrounds = 5\nseeds = [{seed}]\n"


def test_runs_that_differ_in_the_seed_alone_are_one_series(tmp_path: Path) -> None:
    for seed in (0, 1):
        name = f"study, seed {seed}"
        written(tmp_path / "a" / f"seed-{seed}", CONFIG.format(seed=seed), seed=seed, name=name, problem="1")
    one, two = data_of(fpdfp.report.write(tmp_path / "a", tmp_path / "report.html"))["runs"]
    assert one["series"] == two["series"]
    assert one["name"] == two["name"] == "study"


@pytest.mark.parametrize(
    ("config", "info"),
    [
        (CONFIG, {"problem": "2"}),
        (CONFIG.replace("a9a", "covtype"), {"problem": "1"}),
        (CONFIG.replace("rounds = 5", "rounds = 5\ntol = 0.1"), {"problem": "1"}),
        (CONFIG, {"problem": "1", "clients": [{"name": "A", "samples": 3}]}),
        (CONFIG, {"problem": "1", "method": "PDFP"}),
    ],
    ids=["problem", "data", "settings", "clients", "method"],
)
def test_runs_of_other_experiments_are_other_series(tmp_path: Path, config: str, info: dict[str, Any]) -> None:
    written(tmp_path / "seed-0", CONFIG.format(seed=0), problem="1")
    written(tmp_path / "seed-1", config.format(seed=1), seed=1, **info)
    one, two = data_of(fpdfp.report.write(tmp_path, tmp_path / "report.html"))["runs"]
    assert one["series"] != two["series"]


def test_runs_in_other_folders_are_other_series(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / name / "seed-0", CONFIG.format(seed=0), problem="1")
    one, two = data_of(fpdfp.report.write(tmp_path, tmp_path / "report.html"))["runs"]
    assert one["series"] != two["series"]


def test_data_that_differ_make_other_problems(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 1.0), ("c", 1.01)):
        losses = fpdfp.losses.Logistic(factor * np.eye(4), [1.0, -1.0, 1.0, -1.0], clients=[0, 0, 1, 1])
        Recorder(tmp_path / name, fpdfp.Problem(losses, fpdfp.penalties.L1(0.1)), name="same").solve(rounds=2)
    a, b, c = (describe(tmp_path / name)["series"] for name in "abc")
    assert a == b != c


def test_settings_metrics_classes_and_units_are_kept(tmp_path: Path) -> None:
    rows = [f"{i % 7 + 0.5},{'north' if i % 2 else 'south'},{'sick' if i % 7 > 3 else 'healthy'}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("age,hospital,ill\n" + "\n".join(rows) + "\n")
    (tmp_path / "study.toml").write_text(
        "name = 'study'\n[data]\nfile = 'rows.csv'\nlabel = 'ill'\nsite = 'hospital'\ntest = 0.2\n"
        "standardize = true\n[split]\nkind = 'by_column'\n[loss]\nkind = 'logistic'\nl2 = 0.1\n"
        "[run]\nrounds = 3\n"
    )
    result = CliRunner().invoke(app, ["run", str(tmp_path / "study.toml"), "--output", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    data = data_of(fpdfp.report.write(tmp_path / "runs", tmp_path / "report.html"))
    (run,) = data["runs"]
    assert run["settings"]["loss.l2"] == "0.1"
    assert run["settings"]["data.standardize"] == "true"
    assert "run.seeds" not in run["settings"]
    assert run["settings"]["data.file"] == "rows.csv"
    assert str(tmp_path) not in (tmp_path / "report.html").read_text()
    assert set(run["ends"]) == {"test_loss", "accuracy"}
    assert run["ends"]["accuracy"] == load(tmp_path / "runs" / "seed-0").history["accuracy"][-1]
    assert run["model"]["between"] == ["healthy", "sick"]
    assert run["model"]["standardized"] is True
    assert data["federations"][0]["names"] == ["north", "south"]


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", history=HISTORY.replace("1.5", "nan").replace("0.5", "inf"), reference=0.0)
    (folder / "run.json").write_text(
        '{"format": 1, "name": "run", "objective": NaN, "seconds": Infinity, "reference": 0}'
    )
    (found,) = data_of(fpdfp.report.write(tmp_path, tmp_path / "report.html"))["runs"]
    assert found["columns"]["objective"] == [2.0, None]
    assert found["columns"]["seconds"] == [0.0, None]
    assert found["columns"]["error"] == [None, None]  # beside a minimum of 0 nothing is small
    assert found["seconds"] is None


def test_long_histories_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    rows = 3 * MOST_ROWS
    lines = [f"{i},{rows - i}.0,{i},{i},0.1,{i}.0" for i in range(rows)]
    folder = folder_of(tmp_path / "long", history="\n".join([HISTORY.splitlines()[0], *lines]) + "\n")
    found = describe(folder)
    assert found["every"] == 3
    assert found["evaluations"] == rows
    assert found["columns"]["round"][0] == 0
    assert found["columns"]["round"][-1] == rows - 1
    assert len(found["columns"]["round"]) <= MOST_ROWS + 1


def test_of_many_clients_some_of_all_sizes_are_shown(tmp_path: Path) -> None:
    clients = [{"name": str(i), "samples": (i * 7919) % 1000, "share": 0.001} for i in range(1000)]
    found = describe(folder_of(tmp_path / "many", clients=clients, clients_in_all=5000))["clients"]
    assert found["of"] == 5000
    assert len(found["names"]) == MOST_CLIENTS
    assert min(found["samples"]) == 0
    assert max(found["samples"]) == 999
    assert np.median(found["samples"]) == pytest.approx(500, abs=10)


def test_runs_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"runs must be folders of runs.*none in"):
        fpdfp.report.write(tmp_path, tmp_path / "report.html")
    with pytest.raises(ValueError, match="does not exist"):
        fpdfp.report.write(tmp_path / "nowhere", tmp_path / "report.html")
    with pytest.raises(TypeError, match="runs must be folders of runs, got int"):
        fpdfp.report.write(3, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def direct_ssim(a: Any, b: Any, peak: float) -> float:
    """The definition, pixel by pixel: a Gaussian window of 11 × 11 and the image mirrored at the border."""
    steps = np.arange(-5, 6)
    weights = np.exp(-(steps[:, None] ** 2 + steps[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    A, B = (np.pad(image, 5, mode="symmetric") for image in (a, b))
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            p, q = A[i : i + 11, j : j + 11], B[i : i + 11, j : j + 11]
            mp, mq = (weights * p).sum(), (weights * q).sum()
            vp, vq = (weights * (p - mp) ** 2).sum(), (weights * (q - mq) ** 2).sum()
            covariance = (weights * (p - mp) * (q - mq)).sum()
            total += (2 * mp * mq + c1) * (2 * covariance + c2) / ((mp**2 + mq**2 + c1) * (vp + vq + c2))
    return float(total / a.size)


def test_ssim_is_its_definition(rng: np.random.Generator) -> None:
    truth = rng.random((14, 9, 12))
    image = truth + 0.2 * rng.standard_normal(truth.shape)
    for axis in range(3):
        found = ssim(image, truth, axis=axis, peak=1.0)
        pairs = zip(np.moveaxis(image, axis, 0), np.moveaxis(truth, axis, 0), strict=True)
        assert found == pytest.approx([direct_ssim(a, b, 1.0) for a, b in pairs], rel=1e-10)
    assert ssim(image[0], truth[0], peak=1.0) == pytest.approx(direct_ssim(image[0], truth[0], 1.0))
    assert ssim(image, truth) == pytest.approx(ssim(image, truth, peak=float(np.ptp(truth))))


def test_quality_of_a_constant_and_of_an_exact_slice() -> None:
    flat = np.ones((4, 4, 2))
    assert ssim(flat, flat).tolist() == [1.0, 1.0]
    assert slice_psnr(flat, flat).tolist() == [math.inf, math.inf]
    image = flat.copy()
    image[:, :, 1] -= 0.1
    assert slice_psnr(image, flat) == pytest.approx([math.inf, 20.0])


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 3)), {}, r"a must have the shape \(2, 3\) of b"),
        (np.ones(3), np.ones(3), {}, "b must be an image or a volume"),
        (np.ones((2, 2, 2)), np.ones((2, 2, 2)), {"axis": 3}, "axis must be an integer of at least 0 and at most 2"),
        (np.ones((2, 2)), np.ones((2, 2)), {"peak": 0}, "peak must be a finite number greater than 0"),
        (np.full((2, 2), np.nan), np.ones((2, 2)), {}, "a must be finite"),
    ],
)
def test_ssim_says_what_is_wrong(a: Any, b: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ssim(a, b, **options)


def unpacked(volume: Any, bits: int) -> Any:
    numbers = np.frombuffer(base64.b64decode(volume["data"]), dtype=f"<u{bits // 8}").reshape(volume["shape"])
    return volume["low"] + numbers * ((volume["high"] - volume["low"]) / (2**bits - 1))


@pytest.mark.parametrize(("limit", "bits", "factor"), [(10_000, 16, 1), (3000, 8, 1), (1000, 16, 2)])
def test_volumes_are_packed_to_fit(rng: np.random.Generator, limit: int, bits: int, factor: int) -> None:
    truth, first, second = rng.standard_normal((3, 10, 9, 8)).astype(np.float32)
    found = pack({"a": Volumes(first, truth, [], []), "b": Volumes(second, truth, [], [])}, limit)
    assert (found["bits"], found["factor"]) == (bits, factor)
    assert len(found["volumes"]) == 3  # the truth is there once
    one = found["runs"][1]
    for name, volume in (("truth", truth), ("image", second)):
        expected = coarser(volume, factor) if factor > 1 else volume
        shown = unpacked(found["volumes"][one[name]], bits)
        assert np.abs(shown - expected).max() <= 0.51 * np.ptp(expected) / (2**bits - 1) + 1e-6
    assert sum(len(base64.b64decode(volume["data"])) for volume in found["volumes"].values()) <= limit


def test_a_constant_volume_is_packed_too() -> None:
    found = pack({"a": Volumes(np.full((2, 2, 2), 3.0), None, [], [])})
    assert found["runs"][0]["truth"] is None
    assert unpacked(found["volumes"][found["runs"][0]["image"]], 16).tolist() == np.full((2, 2, 2), 3.0).tolist()


def test_volumes_of_a_run_without_truth_or_without_shape(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "ct", kind="ct")
    assert volumes_of(load(folder)) is None
    np.savez(folder / "best.npz", x=np.ones((2, 3, 4)), round=1, objective=1.0)
    found = volumes_of(load(folder))
    assert found is not None
    assert found.truth is None
    np.savez(folder / "truth.npz", volume=np.zeros((2, 3, 4), dtype=np.float32), voxel=0.1)
    np.savez(folder / "final.npz", x=np.ones(24))
    found = volumes_of(load(folder))
    assert found is not None
    assert found.image.shape == (2, 3, 4)
    assert [len(values) for values in found.psnr] == [2, 3, 4]
    (folder / "final.npz").write_bytes(b"nothing")
    assert volumes_of(load(folder)) is None


class Answer:
    """What a server says to one request."""

    def __init__(self, url: str, path: str, method: str = "GET", **headers: str) -> None:
        place, _, token = url.removeprefix("http://").rstrip("/").partition("/")
        path = path if path.startswith("*") else f"/{token}{path}" if path.startswith("/") else path
        connection = http.client.HTTPConnection(place, timeout=10)
        sent = {"Host": place, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.putrequest(method, path, skip_host=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()
        connection.close()


def port_of(page: live.Live) -> int:
    return int(page.url.rsplit(":", 1)[1].partition("/")[0])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[live.Live, Path]]:
    folder = tmp_path / "runs"
    folder_of(folder / "one", history=HISTORY)
    (tmp_path / "secret.txt").write_text("secret")
    with live.serve(folder) as page:
        yield page, folder


def test_the_live_page_can_be_read(served: tuple[live.Live, Path]) -> None:
    page, _ = served
    assert page.url.startswith("http://127.0.0.1:")
    answer = Answer(page.url, "/")
    assert answer.status == 200
    assert Elements(answer.body.decode()).tags.count("script") == 3
    data = strictly(Answer(page.url, "/data.json").body.decode())
    assert [run["name"] for run in data["runs"]] == ["one"]
    assert strictly(Answer(page.url, "/volumes.json").body.decode())["runs"] == []
    head = Answer(page.url, "/data.json", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["Content-Length"]) > 100


def test_the_live_page_is_for_those_who_know_its_token(served: tuple[live.Live, Path]) -> None:
    page, _ = served
    bare, token = page.url.rstrip("/").rsplit("/", 1)
    assert len(token) >= 20
    for guess in ("", "/", "/data.json", "/volumes.json", f"/{token[:-1]}/data.json", f"/{token}x/data.json"):
        assert Answer(bare, guess or "/").status == 404
    assert Answer(bare, f"/{token}/data.json").status == 200


def test_the_live_page_trusts_its_own_script_alone(served: tuple[live.Live, Path]) -> None:
    page, _ = served
    for path in ("/", "/data.json", "/elsewhere"):
        headers = Answer(page.url, path).headers
        rules = dict(rule.strip().split(" ", 1) for rule in headers["Content-Security-Policy"].split(";"))
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
        assert re.fullmatch(r"'sha256-[\w+/]+='", rules["script-src"])
        assert re.fullmatch(r"'sha256-[\w+/]+='", rules["style-src"])
        assert rules["connect-src"] == "'self'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_nothing_new_is_not_sent_again(served: tuple[live.Live, Path]) -> None:
    page, folder = served
    first = Answer(page.url, "/data.json")
    again = Answer(page.url, "/data.json", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    (folder / "one" / "history.csv").write_text(HISTORY + "2,1.25,20,40,0.1,1.0\n")
    changed = Answer(page.url, "/data.json", If_None_Match=first.headers["ETag"])
    assert changed.status == 200
    assert strictly(changed.body.decode())["runs"][0]["columns"]["objective"] == [2.0, 1.5, 1.25]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_the_live_page_only_reads(served: tuple[live.Live, Path], method: str) -> None:
    page, folder = served
    before = look_at(folder)
    answer = Answer(page.url, "/data.json", method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert look_at(folder) == before


def look_at(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """What would change if a file were written, moved or given other rights; not when it was read last."""
    found = {file: file.stat() for file in folder.rglob("*")}
    return {file: (one.st_mtime_ns, one.st_ctime_ns, one.st_size) for file, one in found.items()}


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/one/run.json",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/data.json/",
        "/.",
        "/runs",
        "*",
        "http://a/b",
    ],
)
def test_the_live_page_has_no_other_paths(served: tuple[live.Live, Path], path: str) -> None:
    page, _ = served
    answer = Answer(page.url, path)
    assert answer.status == 404
    assert b"secret" not in answer.body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1234", 200), ("LOCALHOST", 200), ("[::1]:80", 200), ("127.0.0.1", 200), ("evil.example", 421),
        ("localhost.evil.example", 421), ("127.0.0.1.evil.example", 421), ("192.0.2.7", 421), ("", 421), ("[", 421),
    ],
)  # fmt: skip
def test_the_live_page_answers_to_its_own_name_alone(served: tuple[live.Live, Path], host: str, status: int) -> None:
    page, _ = served
    assert Answer(page.url, "/data.json", Host=host).status == status


def test_a_folder_may_come_break_and_vanish(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with live.serve([folder]) as page:

        def names() -> list[str]:
            return [run["name"] for run in strictly(Answer(page.url, "/data.json").body.decode())["runs"]]

        assert names() == []
        run = folder_of(folder / "one", history=HISTORY)
        assert names() == ["one"]
        (run / "run.json").write_text('{"form')
        (run / "history.csv").write_text("round,obj")
        assert names() == ["one"]
        for file in run.iterdir():
            file.unlink()
        run.rmdir()
        assert names() == []


def test_a_page_that_is_closed_frees_its_port(tmp_path: Path) -> None:
    page = live.serve(tmp_path)
    port = port_of(page)
    with pytest.raises(OSError, match=f"cannot be served at 127.0.0.1, port {port}.*another host or port"):
        live.serve(tmp_path, port=port)
    page.close()
    page.close()
    with live.serve(tmp_path, port=port) as second:
        assert port_of(second) == port
        assert second.url != page.url
    with pytest.raises(ConnectionError):
        Answer(page.url, "/")


def test_serve_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="port must be an integer of at least 0 and at most 65535"):
        live.serve(tmp_path, port=70_000)
    with pytest.raises(ValueError, match="host must be an address or a name"):
        live.serve(tmp_path, host="")


def test_the_command_report_writes_a_page(recorded: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["report", str(recorded), "--output", str(tmp_path / "page.html"), "--title", "mine"]
    )
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["title"] == "mine"


@pytest.mark.parametrize("command", [["report"], ["watch"]])
def test_the_commands_name_what_is_missing(command: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*command, str(tmp_path / "nowhere")])
    assert done.exit_code == 2
    assert "does not exist" in done.output
    assert "Traceback" not in done.output
    assert "Example: fpdfp" in CliRunner().invoke(app, [*command, "--help"]).output


def test_a_report_that_cannot_be_written_says_so(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["report", str(recorded), "--output", str(tmp_path / "file" / "page.html")])
    assert done.exit_code == 2
    assert "could not be written" in done.output


def test_watch_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    folder_of(tmp_path / "one", history=HISTORY)
    program = [sys.executable, "-c", "from fpdfp.cli import main; main()", "watch", str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        try:
            assert strictly(Answer(url, "/data.json").body.decode())["runs"][0]["name"] == "one"
        finally:
            process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors.strip() == "closed"


def test_the_page_has_how_good_the_model_is(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded, folder)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y, site = (X[:, 0] + rng.logistic(size=200) > 0).astype(int), np.array([EVIL, "north"])[np.arange(200) % 2]
    evaluation = fpdfp.FederatedLogisticRegression("none").fit(X, y, groups=site).evaluate(X, y, groups=site)
    path = evaluation.save(folder)
    (found,) = data_of(fpdfp.report.write(folder, tmp_path / "report.html"))["runs"]
    said = found["evaluation"]
    assert [one["name"] for one in said["overall"]] == list(evaluation.overall)
    assert said["overall"][0]["value"] == evaluation.overall["auc"].value
    assert {site["name"] for site in said["sites"]} == {EVIL, "north"}
    assert said["roc"][0]["points"][0] == [0.0, 0.0]
    assert len(said["calibration"]) == 10
    for damaged in (
        "{",
        "[]",
        "\xff",
        '{"overall": {"auc": 3, "x": {"value": NaN}}, "roc": {"a": {"true": [1, "b"]}}}',
    ):
        path.write_text(damaged, encoding="latin-1")
        (found,) = data_of(fpdfp.report.write(folder, tmp_path / "report.html"))["runs"]
        assert (found["evaluation"] is None) == bool(found["trouble"])
        assert found["evaluation"] is None or found["evaluation"]["roc"] == []


@pytest.mark.parametrize("standardize", [False, True])
def test_bars_of_a_penalised_fit_are_per_standard_deviation_where_these_are_known(
    tmp_path: Path, standardize: bool
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1.0, 10.0, 0.1] + [5.0, 0.0, 1.0]
    y, site = X[:, 0] + rng.normal(size=300) > 5.0, np.arange(300) % 2
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), standardize=standardize).fit(X, y, groups=site)
    run = describe(model.write_run(tmp_path / "run"))
    bars = model.coef_ * X.std(axis=0) if standardize else model.coef_
    np.testing.assert_allclose(np.ravel(run["model"]["values"]), np.ravel(bars), rtol=1e-4, atol=1e-7)
    assert run["model"]["standardized"] is standardize
