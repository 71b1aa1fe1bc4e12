# Everything a person does with a checkout: `make demo`, `make test`, `make lint`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Tests start many processes, and pytest rewrites every module of tests: kept byte code halves the time of both.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo docs gallery test test-slow lint format wheel wheelhouse tables bench coverage soak fuzz reproduce attack study clean

help:
	@echo "make demo    a model over three hospitals, a reconstructed scan and five methods compared, in a minute"
	@echo "make test    set up and run the tests, some six minutes on two cores that do nothing else"
	@echo "make test-slow  the tests that take longer: real federations, a wheel, more methods on more problems"
	@echo "make lint    ruff (format, check) and mypy --strict"
	@echo "make format  let ruff rewrite the files"
	@echo "make wheel   build the package as a wheel in dist/, to install elsewhere"
	@echo "make wheelhouse  all wheels that a site needs, with hashes, for a machine without internet (FOR=3.12: its Python)"
	@echo "make tables  write docs/methods.md anew from the declarations of the methods"
	@echo "make docs    the documentation as a site, into site/; warnings are errors"
	@echo "make gallery run the examples and write docs/gallery anew"
	@echo "make bench   the benchmarks, one after the other"
	@echo "make coverage  how often confidence intervals cover the truth, in 2,000 simulated studies of each family"
	@echo "make soak    long runs in federations and on Ray in which processes are killed"
	@echo "make fuzz    decode a million damaged messages, answer a million forged requests, read a million forged replies"
	@echo "make attack  attack a site with the default policy, and with each rule switched off in turn, into docs/results"
	@echo "make study   an honest study of five hospitals through real processes: seconds, bytes, exchanges, budget"
	@echo "make reproduce  the paper's experiments (a9a, covtype, small CT) and theorems, into docs/results"

$(VENV)/.runtime: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(VENV)/.dev

demo: $(VENV)/.runtime
	$(BIN)/fpdfp demo --output demo-output

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.runtime
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

wheelhouse: $(VENV)/.runtime
	$(BIN)/python -m tools.wheelhouse $(if $(FOR),--python $(FOR))

tables: $(VENV)/.runtime
	$(BIN)/python -m fpdfp.methods.table > docs/methods.md

$(VENV)/.docs: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the site is in site/: open site/index.html"

gallery: $(VENV)/.runtime
	$(BIN)/python -m tools.gallery

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.simulation
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.codec
	$(BIN)/python -m benchmarks.methods
	$(BIN)/python -m benchmarks.ablation
	$(BIN)/python -m benchmarks.heterogeneity
	$(BIN)/python -m benchmarks.solvers
	$(BIN)/python -m benchmarks.engines
	$(BIN)/python -m benchmarks.cross_validation

coverage: $(VENV)/.dev
	$(BIN)/python -m benchmarks.coverage --file coverage.json --page docs/results/coverage.md

soak: $(VENV)/.dev
	$(BIN)/python -m benchmarks.soak

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --messages 1000000 --jobs 2
	$(BIN)/python -m tests.fuzz --requests 1000000 --jobs 2
	$(BIN)/python -m tests.fuzz --replies 1000000 --jobs 2

reproduce: $(VENV)/.runtime
	$(BIN)/python -m reproduce a9a --output docs/results/a9a
	$(BIN)/python -m reproduce covtype --output docs/results/covtype
	$(BIN)/python -m reproduce ct --size small --output docs/results/ct/small
	$(BIN)/python -m reproduce theory --output docs/results/theory
	$(BIN)/python -m reproduce page

clean:
	rm -rf $(VENV) build dist site demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

attack: $(VENV)/.dev
	$(BIN)/python -m tests.attacks 1000000 docs/results/attack.md --jobs 2 --minutes 60

study: $(VENV)/.dev
	$(BIN)/python -m tests.honest_study docs/results/study.md
