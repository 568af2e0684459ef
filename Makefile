# Everything a newcomer needs: `make demo` and `make test`. `make` alone lists the rest.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
RECORDING ?=

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

BIN := $(VENV)/bin
PIP := "$(BIN)/python" -m pip --disable-pip-version-check --no-input
# A third of the installed modules is ever imported, so they are compiled then and not here; that
# only works where Python may keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE
# Tests against a real vLLM take turns in one process, all others run beside them.
SIDE_BY_SIDE := --numprocesses 2 --dist loadscope --no-loadscope-reorder
INSTALL := $(PIP) install --no-deps --no-compile

.PHONY: help demo train-demo test test-long faults lint format types check picture pictures bench-tui bench fuzz clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  Variables: PYTHON=$(PYTHON)  VENV=$(VENV)  PYTEST_ARGS="-k name"'

demo: $(VENV)/.installed ## serve a real small model with a drafter on this machine's CPU
	@"$(BIN)/specpanel" demo

train-demo: $(VENV)/.train ## train a drafter for that model on this machine's CPU
	@"$(BIN)/specpanel" train train-demo

test: $(VENV)/.dev ## run the whole suite, tests against a real vLLM included
	@"$(BIN)/python" -m pytest -m "not faults and not long" $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-long: $(VENV)/.dev ## run what the suite leaves out because it takes minutes
	@"$(BIN)/python" -m pytest -m long $(SIDE_BY_SIDE) $(PYTEST_ARGS)

faults: $(VENV)/.dev ## kill real processes in every way and look at what is left
	@"$(BIN)/python" -m pytest -m faults $(PYTEST_ARGS)

lint: $(VENV)/.dev ## check style, formatting and who imports whom
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/lint-imports"

format: $(VENV)/.dev ## mend style and formatting
	@"$(BIN)/ruff" check --fix .
	@"$(BIN)/ruff" format .

types: $(VENV)/.dev ## check the types
	@"$(BIN)/mypy"

check: lint types test ## lint, types and test

pictures: $(VENV)/.installed ## paint every screen into docs/images from the recorded run
	@"$(BIN)/python" scripts/pictures.py

picture: $(VENV)/.installed ## paint the README's picture: make picture RECORDING=file.ndjson
	@test -n "$(RECORDING)" || { echo 'Name a recording of specpanel run --record: make picture RECORDING=file.ndjson' >&2; exit 1; }
	@mkdir -p docs/images
	@"$(BIN)/python" scripts/screenshot.py "$(RECORDING)" --out docs/images/live-120x40.png

bench-tui: $(VENV)/.installed ## measure the panel beside other monitors into docs/measurements.md (about 20 minutes)
	@"$(BIN)/python" scripts/bench_tui.py --peers "$(VENV)/bench-peers"

bench: $(VENV)/.dev ## measure everything that the README claims into docs/measurements.md (about an hour)
	@"$(BIN)/python" scripts/bench_tui.py --peers "$(VENV)/bench-peers"
	@"$(BIN)/python" scripts/bench.py
	@"$(BIN)/python" scripts/soak.py --write

fuzz: $(VENV)/.dev ## try twenty times as many bent inputs as the suite does
	@FUZZ=20 "$(BIN)/python" -m pytest tests/fuzz $(PYTEST_ARGS)

clean: ## remove the environment and every cache in this folder
	rm -rf "$(VENV)" build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo 'There is no "$(PYTHON)" here; name a Python of version 3.11 or newer: make demo PYTHON=/path/to/python3.11' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "specpanel needs Python 3.11 or newer, and $(PYTHON) is $$("$(PYTHON)" -V 2>&1); choose another: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -m venv "$(VENV)" || { \
	  rm -rf "$(VENV)"; echo 'The environment could not be made; on Debian and Ubuntu the package python3-venv is missing.' >&2; exit 1; }

$(VENV)/.cpu: requirements/cpu.lock | $(VENV)/bin/python
	@echo 'Installing the pinned CPU set into $(VENV): about 0.6 GB to download, one to five minutes.'
	@$(INSTALL) -r requirements/cpu.lock
	@"$(BIN)/python" -c 'import torch' 2>/dev/null || { \
	  echo 'The torch found here is a CUDA build; installing the libraries that it loads, too.'; \
	  $(PIP) install -c requirements/cpu.lock "$$(grep '^torch==' requirements/cpu.lock)"; }
	@touch $@

# No build isolation: setuptools is in the lock, so nothing more is fetched.
$(VENV)/.installed: pyproject.toml $(VENV)/.cpu
	@PYTHONWARNINGS=ignore $(INSTALL) --no-build-isolation --quiet --editable .
	@touch $@

$(VENV)/.train: requirements/train.lock $(VENV)/.installed
	@echo 'Installing Speculators, which trains drafters: about 0.3 GB, half a minute.'
	@$(INSTALL) --quiet -r requirements/train.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.train
	@$(INSTALL) --quiet -r requirements/dev.lock
	@touch $@
