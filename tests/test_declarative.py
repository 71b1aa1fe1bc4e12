"""Declared experiments: what a file may say, what its mistakes are told as, and what is run."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from typer.testing import CliRunner

import fpdfp
from fpdfp import demo
from fpdfp._settings import Document, SettingsError, suggest
from fpdfp.cli import app
from fpdfp.declarative import build, diagnosis, results, settings
from fpdfp.declarative.runner import Job
from fpdfp.declarative.settings import NOT_IN_RUN, Case, read, run_options
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.runs import load, toml
from fpdfp.runs.folder import write_file, write_json

EXAMPLE = Path(build.__file__).with_name("example.toml")
PAPER = Path(__file__).parents[1] / "reproduce"
SMALL = """
name = "small"

[data]
name = "breast-cancer"

[split]
clients = 6

[loss]
l2 = 0.01

[run]
rounds = 12
clients_per_round = 3
reference = false
"""


def written(folder: Path, text: str = SMALL, name: str = "experiment.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def the_case(folder: Path, text: str, assignments: list[str] | None = None) -> Case:
    (case,) = read(written(folder, text), assignments)
    return case


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def error_of(folder: Path, text: str, assignments: list[str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        read(written(folder, text), assignments)
    return str(caught.value)


class TestMistakes:
    """Each is one paragraph with the file, the line, and what is accepted."""

    @pytest.mark.parametrize(
        ("old", "new", "line", "words"),
        [
            ("rounds = 12", "roundz = 12", 14, "[run] has no key 'roundz'; did you mean 'rounds'?"),
            ("[split]", "[splits]", 7, "has no section or key 'splits'; did you mean 'split'?"),
            ("rounds = 12", 'rounds = "12"', 14, "run.rounds must be a whole number, got '12'"),
            ("rounds = 12", "rounds = 1.5", 14, "run.rounds must be a whole number, got 1.5"),
            ("rounds = 12", "rounds = true", 14, "run.rounds must be a whole number, got true"),
            ("rounds = 12", "rounds = 0", 14, "run.rounds must be a whole number of at least 1"),
            ("l2 = 0.01", "l2 = -1.0", 11, "loss.l2 must be a finite number of at least 0, got -1"),
            ("l2 = 0.01", "l2 = nan", 11, "loss.l2 must be a finite number"),
            ("clients_per_round = 3", "clients_per_round = 7", 15, "must be at most split.clients, 6, got 7"),
            ("clients_per_round = 3", 'clients_per_round = "some"', 15, "at least 1, or 'all', got 'some'"),
            ("reference = false", 'reference = "no"', 16, "run.reference must be true or false, got 'no'"),
            ("reference = false", "seeds = [1, 1]", 16, "run.seeds must be different from each other"),
            ("reference = false", "seeds = 3", 16, "run.seeds must be a list, got 3"),
            ("reference = false", 'engine = "rya"', 16, "got 'rya'; did you mean 'ray'?"),
            ('"breast-cancer"', '"brest-cancer"', 5, "got 'brest-cancer'; did you mean 'breast-cancer'?"),
            ('name = "breast-cancer"', 'file = "no.csv"', 5, "data.file must be a file that is there"),
            ('name = "breast-cancer"', "seed = 1", 4, "[data] must have the key 'name'"),
            ("rounds = 12", "rounds = = 12", 14, "this is not TOML"),
            ("clients = 6", 'kind = "by_column"', 8, "needs data.site"),
            ("l2 = 0.01", 'kind = "poisson"', 11, "'least-squares', 'softmax', got 'poisson'"),
        ],
    )
    def test_a_mistake_is_told_with_its_line(self, tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
        assert old in SMALL
        message = error_of(tmp_path, SMALL.replace(old, new, 1))
        assert message.startswith(f"{tmp_path / 'experiment.toml'}, line {line}: ")
        assert words in message
        assert "\n" not in message

    @pytest.mark.parametrize(
        ("section", "words"),
        [
            ('[method]\nkind = "FPDPF"', "got 'FPDPF'; did you mean 'FPDFP'?"),
            ('[method]\nkind = "FPDFP"\nstpe = 0.1', "no parameter 'stpe'; did you mean 'step'?"),
            ('[method]\nkind = "FPDFP"\nstep = "fast"', "step must be"),
            ('[method]\nkind = "FPDFP"\nlocal_steps = 0', "local_steps must be an integer of at least 1"),
            ('[method]\nkind = "FedProx"', "must have the key 'rho' for FedProx"),
            ('[method]\nkind = "ShiftedPDFP"\nn_clients = 3', "no parameter 'n_clients'"),
            ('[method]\nkind = "FPDFP"\nstep = { kind = "Decreasing", gamma0 = 1.0 }', "must have the key 'c'"),
            ('[method]\nkind = "FPDFP"\nstep = { kind = "Decresing", gamma0 = 1.0 }', "did you mean 'Decreasing'?"),
            ('[compressor]\nkind = "QSGD"\nlevels = 0', "levels must be an integer of at least 1"),
            ('[downlink]\nkind = "none"\nlevels = 3', "no key 'levels'; known are kind"),
            ('[operator]\nkind = "graph"\nalpha = 0', "operator.alpha must be a finite number greater than 0"),
            ('[operator]\nkind = "file"\nfile = "b.txt"', "operator.file must end in .npz or .mtx"),
            ('[operator]\nkind = "gradient"', "[operator] must have the key 'shape'"),
            ('[penalty]\nkind = "tv"', "must be one of 'l1'"),
            ('[penalty]\nkind = "box"\nlower = 1.0\nupper = 0.0', "must be at least penalty.lower, 1"),
            ("[sweep]\nrun.rounds = 3", "sweep.run.rounds must be a list of the values to try, got 3"),
            ("[sweep]\nrun.rounds = []", "must be a list of the values to try"),
            ("[sweep]\nrun.seeds = [[1], [2]]", "give run.seeds in [run]"),
            ('[sweep]\n"run.rounds" = [3, "x"]', "line 19: run.rounds must be a whole number, got 'x'"),
            ('[sweep]\nmethod = [{ kind = "FPDPF" }]', "line 19: method.kind must be one of"),
            ("[sweep]\nrun.roundz = [1]", "line 19: [run] has no key 'roundz'"),
        ],
    )
    def test_a_mistake_in_another_section_is_told(self, tmp_path: Path, section: str, words: str) -> None:
        message = error_of(tmp_path, f"{SMALL}\n{section}\n")
        assert re.match(rf"{re.escape(str(tmp_path))}/experiment\.toml, line (18|19|20|21): ", message)
        assert words in message

    def test_a_file_that_is_not_there_and_one_that_is_no_text(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"file not found.*fpdfp init"):
            read(tmp_path / "none.toml")
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SettingsError, match="not a text in UTF-8"):
            read(tmp_path / "binary.toml")
        with pytest.raises(SettingsError, match="cannot be read"):
            read(tmp_path)

    def test_a_mistake_on_the_command_line_is_told_as_such(self, tmp_path: Path) -> None:
        assert error_of(tmp_path, SMALL, ["run.rounds=x"]).startswith("--set run.rounds=x: run.rounds must be")
        assert error_of(tmp_path, SMALL, ["run.roundz=3"]).startswith("--set run.roundz=3: [run] has no key")
        assert "must be KEY=VALUE" in error_of(tmp_path, SMALL, ["run.rounds"])
        assert "is a value and not a section" in error_of(tmp_path, SMALL, ["name.x=3"])

    def test_lines_within_a_long_text_are_not_taken_for_keys(self, tmp_path: Path) -> None:
        text = 'name = """\nrounds = 1\n[run]\n"""\n[data]\nname = "digits"\n[run]\nrounds = 0\n'
        assert ", line 8: " in error_of(tmp_path, text)

    @pytest.mark.parametrize(
        ("change", "place", "words"),
        [
            ("method.kind=FedAvg", "experiment.toml: ", "penalty must be Zero() for FedAvg"),
            ("data.name=digits", "experiment.toml, line 10: ", "needs two different labels, but there are 10"),
            ("split.clients=1000", "--set split.clients=1000: ", "split.clients must leave a row for every client"),
            ("penalty.kind=group", "experiment.toml: ", "penalty.size must be the number"),
        ],
    )
    def test_what_fits_no_problem_is_refused_before_anything_is_written(
        self, tmp_path: Path, change: str, place: str, words: str
    ) -> None:
        done = invoke("run", written(tmp_path), "--output", tmp_path / "out", "--set", change, "--quiet")
        assert done.exit_code == 2, done.output
        assert place in done.output
        assert words in done.output
        assert len(done.output.strip().splitlines()) == 1
        assert not (tmp_path / "out").exists()


class TestSettings:
    """What is accepted, and what comes of it."""

    def test_the_example_is_whole(self, tmp_path: Path) -> None:
        case = the_case(tmp_path, EXAMPLE.read_text())
        assert case.settings["operator"] == {"kind": "graph", "alpha": 0.1, "stacked": True, "form": "weights"}
        assert case.settings["run"]["evaluate_every"] == "automatic"

    @pytest.mark.parametrize(
        ("section", "expected"),
        [
            (
                'kind = "FedMiD"\nstep = { kind = "Decreasing", gamma0 = 1, c = 0.1 }\ninner = { kind = "InnerSolve" }',
                fpdfp.FedMiD(fpdfp.steps.Decreasing(1.0, 0.1), inner=fpdfp.InnerSolve()),
            ),
            ('kind = "FastFedDualAvg"\nrestarts = [3, 5]', fpdfp.FastFedDualAvg(restarts=(3, 5))),
        ],
    )
    def test_what_is_resolved_is_a_file_of_settings_as_well(
        self, tmp_path: Path, section: str, expected: fpdfp.methods.Method
    ) -> None:
        case = the_case(tmp_path, f"{SMALL}\n[method]\n{section}\n")
        again = the_case(tmp_path, toml.dumps(case.settings))
        assert again.settings == case.settings
        assert build.solve_options(again.settings)["method"] == expected

    @pytest.mark.parametrize("name", sorted({**settings.METHODS, **settings.COMPRESSORS}))
    def test_every_method_and_compressor_can_be_named(self, tmp_path: Path, name: str) -> None:
        section = "method" if name in settings.METHODS else "compressor"
        needed = {"FedProx": "rho = 1.0", "Half": 'format = "float16"', "RandK": "k = 3", "TopK": "k = 3"}
        needed |= dict.fromkeys(("QSGD", "NUQSGD"), "levels = 3")
        text = f'{SMALL}\n[{section}]\nkind = "{name}"\n{needed.get(name, "")}\n'
        case = the_case(tmp_path, text)
        assert type(build.solve_options(case.settings)[section]).__name__ == name
        assert the_case(tmp_path, toml.dumps(case.settings)).settings == case.settings

    def test_options_of_a_run_are_those_of_solve(self, tmp_path: Path) -> None:
        """Their names and types come from one place, so that an option that is new there is accepted here."""
        changes = ["run.prefer=bits", "run.accuracy=1e-4", "run.evaluate_every=[1, 5]", "run.checkpoint_every=4"]
        options = build.solve_options(the_case(tmp_path, SMALL, changes).settings)
        assert (options["prefer"], options["accuracy"], options["checkpoint_every"]) == ("bits", 1e-4, 4)
        assert options["evaluate_every"] == [1, 5]
        usual = build.solve_options(the_case(tmp_path, SMALL).settings)
        fields = {field.name: field for field in dataclasses.fields(RunOptions)}
        for name in run_options():
            if name not in ("rounds", "clients_per_round"):
                assert usual[name] == fields[name].default, name
        assert set(run_options()) | set(NOT_IN_RUN) == set(fields)
        assert "'bits', 'time', got 'soon'" in error_of(tmp_path, SMALL, ["run.prefer=soon"])
        assert "run.accuracy must be a finite number of at least 0" in error_of(tmp_path, SMALL, ["run.accuracy=-1.0"])
        assert "a whole number of at least 1" in error_of(tmp_path, SMALL, ["run.checkpoint_every=0"])

    def test_sampling_is_a_word_or_weights(self, tmp_path: Path) -> None:
        for text, value in (("importance", "importance"), ("[1.0, 2, 3.5]", [1.0, 2, 3.5])):
            case = the_case(tmp_path, SMALL, [f"run.sampling={text}"])
            assert build.solve_options(case.settings)["sampling"] == value
            assert the_case(tmp_path, toml.dumps(case.settings)).settings == case.settings
        assert "'uniform', 'importance', got 'best'" in error_of(tmp_path, SMALL, ["run.sampling=best"])
        assert "run.sampling must be a list of finite numbers" in error_of(tmp_path, SMALL, ["run.sampling=[1.0, 0.0]"])

    def test_a_network_is_a_table(self, tmp_path: Path) -> None:
        text = SMALL + '[run.prefer]\nkind = "Network"\nlatency = 0.08\nup = 1e7\ndown = 5e7\n'
        case = the_case(tmp_path, text)
        assert build.solve_options(case.settings)["prefer"] == fpdfp.Network(0.08, 1e7, 5e7)
        assert the_case(tmp_path, toml.dumps(case.settings)).settings == case.settings
        assert "up must be a finite number greater than 0" in error_of(tmp_path, text.replace("up = 1e7", "up = 0"))
        assert "must have the key 'down'" in error_of(tmp_path, text.replace("down = 5e7", ""))

    def test_arrays_of_a_message_have_compressors_of_their_own(self, tmp_path: Path) -> None:
        text = SMALL + '[compressor.x]\nkind = "QSGD"\nlevels = 3\nblock = [0]\n[compressor.v]\nkind = "none"\n'
        case = the_case(tmp_path, text)
        assert build.solve_options(case.settings)["compressor"] == {"x": fpdfp.QSGD(3, block=(0,)), "v": None}
        assert the_case(tmp_path, toml.dumps(case.settings)).settings == case.settings
        assert "[compressor.x] levels must be" in error_of(tmp_path, text.replace("levels = 3", "levels = 0"))

    def test_the_paper_s_experiments_are_files_of_settings(self, tmp_path: Path) -> None:
        files = sorted(PAPER.glob("*.toml"))
        names = ["a9a", "breast-cancer", "covtype", "ct-paper", "ct-small", "ct-tiny", "theory"]
        assert [file.stem for file in files] == names
        for file in (*files, EXAMPLE, Path(demo.__file__).with_name("demo.toml")):
            (case,) = read(file)
            assert the_case(tmp_path, toml.dumps(case.settings)).settings == case.settings

    def test_quadratics_are_run_like_any_other_problem(self, tmp_path: Path) -> None:
        file = PAPER / "theory.toml"
        changes = ["--set", "run.rounds=3", "--set", "run.seeds=[0]", "--set", "method.local_steps=2"]
        result = invoke("run", file, "--output", tmp_path / "out", "--json", "--quiet", *changes)
        assert result.exit_code == 0, result.output
        (line,) = json.loads(result.stdout)["runs"]
        assert line["rounds"] == 3
        assert 0 < line["relative_error"] < 1
        text = file.read_text()
        assert "data.samples must be a whole number of at least 2" in error_of(tmp_path, text, ["data.samples=1"])

    def test_the_command_line_goes_before_the_file(self, tmp_path: Path) -> None:
        changes = ["run.rounds=7", "method.kind=FPDFP", "run.seeds=[1, 2]", 'data.name="digits"']
        settings = the_case(tmp_path, SMALL, changes).settings
        assert settings["run"]["rounds"] == 7
        assert settings["run"]["seeds"] == [1, 2]
        assert settings["method"]["kind"] == "FPDFP"
        assert settings["data"]["name"] == "digits"

    def test_a_sweep_has_all_combinations(self, tmp_path: Path) -> None:
        text = SMALL + (
            '[sweep]\nrun.clients_per_round = [2, 3]\n"loss.l2" = [0.1, 1]\n'
            'method = [{ kind = "FPDFP" }, { kind = "FPDFP", local_steps = 2 }]\n'
        )
        cases = read(written(tmp_path, text))
        assert len(cases) == 8
        assert len({case.label for case in cases}) == 8
        assert cases[0].label == "clients_per_round=2,l2=0.1,method=FPDFP"
        assert [case.settings["method"]["local_steps"] for case in cases[:2]] == [1, 2]
        assert cases[-1].changes["loss.l2"] == 1
        assert cases[-1].settings["loss"]["l2"] == 1.0

    def test_too_many_combinations_are_refused(self, tmp_path: Path) -> None:
        numbers = list(range(1, 102))
        text = f"{SMALL}\n[sweep]\nrun.rounds = {numbers}\nsplit.seed = {numbers}\n"
        assert "10201 combinations" in error_of(tmp_path, text)

    def test_places_of_keys(self, tmp_path: Path) -> None:
        document = Document.read(written(tmp_path))
        assert document.place(("run", "rounds")).endswith("line 14")
        assert document.place(("run", "nothing")).endswith("line 13")
        assert document.place(("elsewhere",)) == str(tmp_path / "experiment.toml")


class TestProblems:
    """The problem is the one that is declared."""

    def problem(self, folder: Path, text: str, *changes: str) -> build.Built:
        return build.build(the_case(folder, text, list(changes)).settings)

    def test_rows_of_a_file_with_sites(self, tmp_path: Path) -> None:
        lines = [f"{i % 7},{i % 3},{'AB'[i % 2]},{'yes' if i % 5 else 'no'}" for i in range(60)]
        (tmp_path / "rows.csv").write_text("\n".join(["age,dose,hospital,ill", *lines]))
        text = (
            '[data]\nfile = "rows.csv"\nlabel = "ill"\nsite = "hospital"\ntest = 0.25\n'
            '[split]\nkind = "by-column"\nweights = "samples"\n'
        )
        built = self.problem(tmp_path, text)
        assert built.model is not None
        assert built.model["features"] == ["age", "dose", "intercept"]
        assert built.model["intercept"] == 2
        assert built.model["classes"] == ["no", "yes"]
        losses = built.problem.losses
        assert isinstance(losses, fpdfp.losses.Logistic)
        assert losses.client_names.tolist() == ["A", "B"]
        assert losses.sizes.sum() == 45
        assert set(built.metrics) == {"test_loss", "accuracy"}
        # The penalty leaves the intercept alone.
        assert built.problem.penalty.value(built.problem.linop.apply(np.array([0.0, 0.0, 1.0]))) == 0.0

    def test_a_matrix_from_a_file_beside_the_settings(self, tmp_path: Path) -> None:
        matrix = scipy.sparse.random_array((5, 30), density=0.3, rng=np.random.default_rng(0)).tocsr()
        scipy.sparse.save_npz(tmp_path / "b.npz", matrix)
        np.savez(tmp_path / "dense.npz", matrix.toarray())
        scipy.io.mmwrite(tmp_path / "b.mtx", matrix)
        x = np.random.default_rng(1).standard_normal(31)
        for name in ("b.npz", "dense.npz", "b.mtx"):
            built = self.problem(tmp_path, SMALL + f'[operator]\nkind = "file"\nfile = "{name}"\n')
            np.testing.assert_allclose(built.problem.linop.apply(x), matrix @ x[:30], rtol=1e-12)
        np.savez(tmp_path / "b.npz", matrix.toarray()[:, :7])
        (tmp_path / "torn.mtx").write_text("nothing")
        for name, words in (("b.npz", "with 30 columns"), ("torn.mtx", "cannot be read as a matrix")):
            with pytest.raises(ArgumentError, match=words) as caught:
                self.problem(tmp_path, SMALL + f'[operator]\nkind = "file"\nfile = "{name}"\n', "split.seed=5")
            assert caught.value.argument == "operator.file"

    @pytest.mark.parametrize("shape", [[5], [3, 4], [2, 3, 4]])
    def test_the_gradient_is_that_of_the_library(self, shape: list[int]) -> None:
        image = np.random.default_rng(0).standard_normal(shape)
        expected = fpdfp.linops.Gradient(tuple(shape)).apply(image)
        np.testing.assert_array_equal((build.gradient(shape) @ image.ravel()).reshape(expected.shape), expected)

    def test_several_classes_with_total_variation_of_their_images(self, tmp_path: Path) -> None:
        text = SMALL.replace("breast-cancer", "digits") + '[operator]\nkind = "gradient"\n[penalty]\nkind = "group"\n'
        problem = self.problem(tmp_path, text, "loss.kind=softmax", "penalty.weight=0.5").problem
        assert problem.model.shape == (10, 65)
        x = np.random.default_rng(0).standard_normal((10, 65))
        each = fpdfp.linops.Gradient((8, 8))
        expected = sum(np.sqrt((each.apply(one[:64].reshape(8, 8)) ** 2).sum(axis=0)).sum() for one in x)
        assert problem.penalty.value(problem.linop.apply(x)) == pytest.approx(0.5 * expected)

    def test_groups_differences_and_boxes(self, tmp_path: Path) -> None:
        x = np.arange(31.0)
        grouped = self.problem(tmp_path, SMALL, "penalty.kind=group", "penalty.size=2", "penalty.weight=1").problem
        expected = np.sqrt((x[:30].reshape(15, 2) ** 2).sum(axis=1)).sum()
        assert grouped.penalty.value(grouped.linop.apply(x)) == pytest.approx(expected)
        fused = self.problem(tmp_path, SMALL, "operator.kind=difference").problem
        np.testing.assert_array_equal(fused.linop.apply(x), np.ones(29))
        boxed = self.problem(tmp_path, SMALL, "penalty.kind=box", "penalty.upper=3.0").problem
        assert np.isinf(boxed.penalty.value(boxed.linop.apply(x)))
        alone = self.problem(tmp_path, SMALL, "data.intercept=false", "data.test=0", "loss.kind=least-squares")
        assert alone.problem.linop.is_identity
        assert alone.metrics == {}

    def test_rows_can_be_dealt_out_in_the_order_that_the_seed_of_the_data_gives(self, tmp_path: Path) -> None:
        """A fifth as a number of rows; and names of columns that are not told are not counted."""
        changes = ["data.test=114", "split.seed=data", "data.share_names=false"]
        built = self.problem(tmp_path, SMALL, *changes)
        assert isinstance(built, build.BuiltRows)
        assert len(built.test_labels) == 114
        losses = built.problem.losses
        assert isinstance(losses, fpdfp.losses.Logistic)
        assert losses.feature_names is None
        first = fpdfp.losses.Logistic(built.features[::6], built.labels[::6], l2=0.01)
        x = np.linspace(-1, 1, 31)
        assert losses.values(x, np.arange(1))[0] == pytest.approx(first.values(x, np.arange(1))[0])
        with pytest.raises(ValueError, match=r"split.clients must leave one of 455"):
            self.problem(tmp_path, SMALL, *changes, "split.clients=500", "run.clients_per_round=all")

    def test_columns_are_standardized_by_the_rows_for_training(self, tmp_path: Path) -> None:
        losses = self.problem(tmp_path, SMALL).problem.losses
        assert isinstance(losses, fpdfp.losses.Logistic)
        X = losses._rows.X[:, :30]
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(X.std(axis=0), 1.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, run with two seeds."""
    folder = tmp_path_factory.mktemp("example")
    assert invoke("init", folder / "experiment.toml").exit_code == 0
    result = invoke(
        "run", folder / "experiment.toml", "--output", folder / "out", "--set", "run.seeds=[0, 1]", "--quiet"
    )
    assert result.exit_code == 0, result.output
    assert "converged" in result.output
    assert "results.csv" in result.output
    return folder / "out"


class TestRuns:
    """What the commands do and leave."""

    def test_the_example_runs(self, done: Path) -> None:
        run = load(done / "seed-1")
        assert run.info["status"] == "converged"
        assert run.info["objective"] / run.info["reference"] - 1 < 1e-6
        assert run.info["seed"] == 1
        assert run.config["run"]["seeds"] == [1]
        assert run.history.accuracy[-1] > 0.9
        assert run.model is not None
        assert run.model["edges"]
        assert set(run.info["clients"][0]["labels"]) <= {"malignant", "benign"}
        with (done / "results.csv").open() as file:
            lines = list(csv.DictReader(file))
        assert [line["folder"] for line in lines] == ["seed-0", "seed-1"]
        assert float(lines[1]["objective"]) == run.info["objective"]

    def test_the_configuration_of_a_run_runs_again_to_the_same_bits(self, done: Path, tmp_path: Path) -> None:
        again = invoke("run", done / "seed-1" / "config.toml", "--output", tmp_path, "--quiet")
        assert again.exit_code == 0, again.output
        assert (tmp_path / "seed-1/final.npz").read_bytes() == (done / "seed-1/final.npz").read_bytes()

    def test_results_are_not_overwritten(self, done: Path) -> None:
        before = (done / "seed-0/run.json").read_bytes()
        file = done.parent / "experiment.toml"
        refused = invoke("run", file, "--output", done, "--set", "run.seeds=[0, 1]")
        assert refused.exit_code == 2
        assert "holds results already: --resume continues them" in refused.output
        other = invoke("run", file, "--output", done, "--resume", "--set", "run.rounds=9")
        assert other.exit_code == 2
        assert "run.rounds was 100 and is now 9" in " ".join(other.output.split())
        same = invoke("run", file, "--output", done, "--resume", "--set", "run.seeds=[0, 1]", "--json")
        assert same.exit_code == 0
        assert [run["seed"] for run in json.loads(same.stdout)["runs"]] == [0, 1]
        assert (done / "seed-0/run.json").read_bytes() == before

    def test_a_run_that_was_written_before_a_setting_was_known_goes_on(self, tmp_path: Path) -> None:
        file, output = written(tmp_path), tmp_path / "out"
        assert invoke("run", file, "--output", output, "--quiet").exit_code == 0
        config = output / "seed-0" / "config.toml"
        lines = [line for line in config.read_text().splitlines() if not line.startswith(("prefer", "share_names"))]
        config.write_text("\n".join(lines))
        again = invoke("run", file, "--output", output, "--quiet", "--resume")
        assert again.exit_code == 0, again.output
        other = invoke("run", file, "--output", output, "--quiet", "--resume", "--set", "run.prefer=bits")
        assert "run.prefer was 'balanced' and is now 'bits'" in " ".join(other.output.split())

    def test_a_run_can_have_more_rounds_later(self, tmp_path: Path) -> None:
        file = written(tmp_path, SMALL + "evaluate_every = 3\n")
        for output, changes in (
            ("parts", []),
            ("parts", ["--set", "run.rounds=20"]),
            ("whole", ["--set", "run.rounds=20"]),
        ):
            done = invoke("run", file, "--output", tmp_path / output, "--quiet", "--resume", *changes)
            assert done.exit_code == 0, done.output
        parts, whole = (tmp_path / name / "seed-0" for name in ("parts", "whole"))
        assert load(parts).info["rounds"] == load(parts).config["run"]["rounds"] == 20
        assert (parts / "final.npz").read_bytes() == (whole / "final.npz").read_bytes()

    def test_init_does_not_overwrite(self, tmp_path: Path) -> None:
        file = written(tmp_path, "mine")
        assert invoke("init", file).exit_code == 2
        assert file.read_text() == "mine"
        assert invoke("init", file, "--force").exit_code == 0
        assert tomllib.loads(file.read_text())["name"] == "breast-cancer"

    def test_two_runs_are_compared(self, done: Path) -> None:
        found = results.compare(done / "seed-0", done / "seed-1")
        assert found["settings"] == {"run.seeds": [[0], [1]]}
        rounds = [[run["rounds"] for run in row["runs"]] for row in found["reached"] if all(row["runs"])]
        assert rounds == sorted(rounds)
        first = load(done / "seed-0")
        at = next(row for row in found["reached"] if row["relative_error"] == 1e-3)["runs"][0]
        error = first.history.objective / first.info["reference"] - 1
        assert first.history.round[np.argmax(error <= 1e-3)] == at["rounds"]
        shown = invoke("compare", done / "seed-0", done / "seed-1")
        assert shown.exit_code == 0
        assert "run.seeds" in shown.output
        assert json.loads(invoke("compare", done / "seed-0", done / "seed-1", "--json").stdout) == found
        several = invoke("compare", done, done)
        assert several.exit_code == 2
        assert "holds 2 runs" in several.output
        assert invoke("compare", done / "none", done).exit_code == 2

    def test_a_scan(self, tmp_path: Path) -> None:
        text = (
            '[data]\nkind = "ct"\nphantom = "shepp-logan"\nshape = [8, 8, 4]\nviews = 8\n[split]\nclients = 4\n'
            '[method]\nkind = "FPDFP"\n[run]\nrounds = 5\nreference = true\n'
        )
        result = invoke("run", written(tmp_path, text), "--output", tmp_path / "out", "--json", "--quiet")
        assert result.exit_code == 0, result.output
        (line,) = json.loads(result.stdout)["runs"]
        run = load(tmp_path / "out/seed-0")
        assert run.info["kind"] == "ct"
        assert run.truth is not None
        assert run.truth.shape == (8, 8, 4)
        assert line["psnr"] == run.history.psnr[-1] > run.history.psnr[0]
        assert "operator" not in run.config

    def test_settings_of_tables_are_refused_for_scans(self, tmp_path: Path) -> None:
        scan = '[data]\nkind = "ct"\n'
        assert "[operator] is for tables" in error_of(tmp_path, scan + '[operator]\nkind = "identity"\n')
        assert "data.phantom cannot be given" in error_of(tmp_path, scan + 'volume = "."\nphantom = "thorax"\n')
        assert "no key 'intercept'" in error_of(tmp_path, scan + "intercept = true\n")
        assert "must be false" in error_of(tmp_path, scan + "[loss]\nl2 = 0.1\n[run]\nreference = true\n")

    @pytest.mark.slow
    def test_a_sweep_runs_side_by_side_and_only_once(self, tmp_path: Path) -> None:
        file = written(tmp_path, SMALL + '[sweep]\nmethod.kind = ["FPDFP", "automatic"]\n')
        output = tmp_path / "out"
        first = invoke("sweep", file, "--output", output, "--jobs", 2, "--json", "--quiet")
        assert first.exit_code == 0, first.output
        lines = json.loads(first.stdout)["runs"]
        assert [line["setting"]["method.kind"] for line in lines] == ["FPDFP", "automatic"]
        alone = invoke("run", file, "--output", tmp_path / "alone", "--quiet")
        assert alone.exit_code == 0, alone.output
        finals = [Path(line["folder"]) / "final.npz" for line in lines]
        for final in finals:
            assert final.read_bytes() == (tmp_path / "alone" / final.relative_to(output)).read_bytes()
        times = [final.stat().st_mtime_ns for final in finals]
        second = invoke("sweep", file, "--output", output, "--quiet")
        assert second.exit_code == 0
        assert [final.stat().st_mtime_ns for final in finals] == times
        with (output / "results.csv").open() as table:
            assert [line["method.kind"] for line in csv.DictReader(table)] == ["FPDFP", "automatic"]

    def test_ctrl_c_ends_a_sweep_and_what_was_running_says_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The processes themselves are ended; here one of them has left a run that is not done."""
        file, output = written(tmp_path), tmp_path / "out"

        class Interrupted:
            def imap_unordered(self, work: Any, jobs: list[list[Job]]) -> Iterator[Any]:
                ((job,),) = jobs
                write_json(job.folder / "run.json", {"format": 1, "status": "running"})
                write_file(job.folder / "config.toml", toml.dumps(job.settings).encode())
                raise KeyboardInterrupt

        monkeypatch.setattr("fpdfp.declarative.pool.workers", lambda *_, **__: contextlib.nullcontext(Interrupted()))
        done = invoke("sweep", file, "--output", output, "--quiet", "--json")
        assert done.exit_code == 130
        assert json.loads(done.stdout)["status"] == "interrupted"
        assert "the same command goes on" in done.stderr
        assert load(output / "seed-0").info["status"] == "interrupted"
        monkeypatch.undo()
        again = invoke("run", file, "--output", output, "--quiet", "--resume")
        assert again.exit_code == 0, again.output
        assert load(output / "seed-0").info["status"] == "finished"

    def test_a_run_that_diverges_is_told(self, tmp_path: Path) -> None:
        changes = ["method.kind=FPDFP", "method.step=1e6"]
        result = invoke(
            "run", written(tmp_path), "--output", tmp_path / "out", "--json", "--set", changes[0], "--set", changes[1]
        )
        assert result.exit_code == 0
        assert json.loads(result.stdout)["runs"][0]["status"] == "diverged"
        assert "warning: " in result.stderr

    def test_the_live_page_follows(self, tmp_path: Path) -> None:
        result = invoke("run", written(tmp_path), "--output", tmp_path / "out", "--live", "--quiet")
        assert result.exit_code == 0, result.output
        assert "live: http://127.0.0.1:" in result.stderr


@pytest.mark.parametrize(
    ("word", "near"), [("poisson", "known are log"), ("logstic", "mean 'logistic'"), ("lest-squares", "mean 'least-sq")]
)
def test_the_nearest_word_is_told_only_where_it_is_near(word: str, near: str) -> None:
    assert near in suggest(word, ["logistic", "least-squares", "softmax"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("label = 'sick'", "line 5: data.label: {file} has no column 'sick'"),
        ("label = 'ill'\nsite = 'clinic'", "line 6: data.site: {file} has no column 'clinic'"),
        ("label = 'ill'", "line 4: {file}: column 'ward' holds text"),
        ("label = 'ill'", 'data.categories = "onehot" makes 0/1 columns of it, data.drop = ["ward"] leaves it out'),
    ],
)
def test_mistakes_about_a_file_are_told_in_the_words_of_the_settings(tmp_path: Path, data: str, words: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("age,ward,ill\n" + "".join(f"{i % 7},{'abc'[i % 3]},{i % 2}\n" for i in range(40)))
    settings = written(tmp_path, f"name = 'x'\n\n[data]\nfile = 'rows.csv'\n{data}\n")
    result = invoke("run", settings, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert words.format(file=file.resolve()) in result.output.replace("\n", "")
    assert "target" not in result.output


def test_the_doctor_shows_whole_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("COLUMNS", "200")
    found = diagnosis.diagnose()
    found["platform"] = "name [bold]in brackets[/bold]"
    diagnosis.show(found)
    shown = capsys.readouterr().out
    assert "[bold]in brackets[/bold]" in shown
    with Path("pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for extra, module in {
        "ray": "ray",
        "parquet": "pyarrow",
        "ct": "h5py",
    }.items():
        assert found["optional"][module]["get"] == f"pip install '{extras[extra][0]}'"
        assert f"missing: pip install '{extras[extra][0]}'" in shown
    for extra in ("cuda12", "cuda13"):
        assert extras[extra][0] in shown
    for module in ("polars", "pylops", "pyproximal", "tensorboard", "mlflow"):
        assert found["optional"][module]["get"].split("'")[1] in extras["dev"]
    assert "'fpdfp" not in shown  # it is on no package index


def test_the_doctor_tells_what_there_is_and_how_to_get_the_rest() -> None:
    found = json.loads(invoke("doctor", "--json").stdout)
    assert found["fpdfp"] == fpdfp.__version__
    assert found["packages"]["numpy"] == np.__version__
    for one in found["optional"].values():
        assert (one["get"] is None) == one["installed"]
        assert one["installed"] or one["get"].startswith("pip install ")
    assert found["gpu"]["usable"] or found["gpu"]["reason"]
    assert set(found["data"]["sets"]) == {"a9a", "a9a.t", "covtype"}
    assert set(found) == set(diagnosis.diagnose())
    shown = invoke("doctor")
    assert shown.exit_code == 0
    assert "cores" in shown.output
