# The few words a person types. `make help` explains them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINES ?= $(CURDIR)/.engines
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The theme prints an advertisement of its successor unless told not to.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A stamp is newer than pyproject.toml exactly when the environment fits it.
FOR_RUNNING := $(VENV)/.installed
FOR_DEVELOPING := $(VENV)/.installed-dev

.PHONY: help demo test test-engines engines lint format docs docs-site bench measure false-alarms selftest install clean
.NOTPARALLEL:

help:
	@echo "make demo     check a healthy and a leaking deployment in a box (about a minute)"
	@echo "make test     everything that has to pass: format, lint, types, docs, tests (a few minutes)"
	@echo "make test-engines  the same suites against real engines on the CPU: vLLM and llama.cpp (an hour)"
	@echo "make engines  install those into $(ENGINES) and no more (half an hour, 5 GB); ENGINES= moves them"
	@echo "make lint     format, lint and types only"
	@echo "make format   put the code into its format"
	@echo "make docs     write the generated pages and JSON Schemas again"
	@echo "make docs-site  the documentation as a site, in build/site"
	@echo "make bench    what kvcanary costs beside what it is compared with, side by side (minutes)"
	@echo "make measure  time, CPU and memory of both full-size runs (about a minute)"
	@echo "make false-alarms  1,000 healthy labs of many seeds, noise and look-alikes: how many are accused (an hour)"
	@echo "make selftest  predeploy against every fault and every look-alike of the lab (minutes)"
	@echo "make install  make the virtual environment $(VENV) and no more"
	@echo "make clean    remove $(VENV) and everything else that make made"
	@echo
	@echo "PYTHON=python3.12 picks another Python (3.11 or newer) for a new $(VENV)."

demo: $(FOR_RUNNING)
	@$(BIN)/python tools/demo.py

test: lint
	@echo "== generated docs are up to date"
	@$(BIN)/python tools/generate_docs.py --check
	@echo "== docs site: pages and links"
	@$(SITE)
	@$(BIN)/python tools/install_test_servers.py
	@echo "== tests"
	@$(BIN)/python -m pytest -W error --numprocesses auto --maxprocesses 4 --dist loadfile

test-engines: engines
	@KVCANARY_ENGINES="$(ENGINES)" $(BIN)/python -m pytest -W error tests/engines/real

engines: $(FOR_DEVELOPING)
	@$(BIN)/python -m tests.engines.real.environments "$(ENGINES)"

lint: $(FOR_DEVELOPING)
	@echo "== format"
	@$(BIN)/ruff format --check .
	@echo "== lint"
	@$(BIN)/ruff check .
	@echo "== types"
	@$(BIN)/python -m mypy

format: $(FOR_DEVELOPING)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs-site: $(FOR_DEVELOPING)
	@$(SITE)
	@echo "build/site/index.html"

docs: $(FOR_DEVELOPING)
	@$(BIN)/python tools/generate_docs.py

bench: $(FOR_DEVELOPING)
	@for each in benchmarks/[a-z]*.py; do \
	  echo "== $$each"; $(BIN)/python -m benchmarks.$$(basename $$each .py) || exit 1; done

measure: $(FOR_RUNNING)
	@$(BIN)/python tools/measure.py

false-alarms: $(FOR_DEVELOPING)
	@$(BIN)/python -m tools.false_alarms --runs 1000

selftest: $(FOR_RUNNING)
	@$(BIN)/kvcanary selftest --explain

install: $(FOR_DEVELOPING)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "kvcanary needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(FOR_RUNNING): pyproject.toml | $(BIN)/python
	@echo "Installing kvcanary into $(VENV), once (under a minute) ..."
	@$(PIP) -e .
	@touch $@

$(FOR_DEVELOPING): pyproject.toml | $(BIN)/python
	@echo "Installing kvcanary and its tools into $(VENV), once (under a minute) ..."
	@$(PIP) -e '.[dev]'
	@touch $(FOR_RUNNING) $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find kvcanary tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
