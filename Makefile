# Everything runs in a virtual environment inside the checkout. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes that share the test run; 0 runs all tests in one process.
WORKERS ?= 2
PYTEST_ARGS ?=
HEARTBEAT_S ?= 20

# One thread per process: pinned arithmetic, and two workers do not fight over two cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-full check docs-check format build clean distclean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make .venv and install edgedraft with the demo model and the developer's tools

demo: $(STAMP)  ## write three answers with an edge process and a cloud process, and prove them exact
	$(BIN)/edgedraft demo

test: $(STAMP)  ## every test but the long matrices
	$(BIN)/python -m pytest -m "not full" -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-full: $(STAMP)  ## every test, the long matrices included
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

check: $(STAMP)  ## lint, format, types, import rules
	$(BIN)/ruff check src tests examples training
	$(BIN)/ruff format --check src tests examples training
	$(BIN)/mypy
	$(BIN)/lint-imports

docs-check: $(STAMP)  ## only the tests that run what the documentation says
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

format: $(STAMP)  ## let ruff fix and lay out the code
	$(BIN)/ruff check --fix src tests examples training
	$(BIN)/ruff format src tests examples training

build: $(STAMP)  ## a wheel and a source archive in dist/
	$(BIN)/python -m build --no-isolation

clean:  ## remove what was built and cached, keep .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## clean, and remove .venv
	rm -rf $(VENV)

# Installs again only when pyproject.toml has changed. Building llama-cpp-python is silent for minutes, so a heartbeat
# says that it goes on; its output goes nowhere while it sleeps, so that a pipe behind `make` closes with make.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	  echo "edgedraft needs Python 3.11, 3.12 or 3.13; '$(PYTHON)' is `$(PYTHON) --version 2>/dev/null || echo not there`."; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@command -v c++ >/dev/null && command -v cc >/dev/null || { \
	  echo "A C and a C++ compiler are needed to build llama-cpp-python, and there is none."; \
	  echo "On Debian or Ubuntu: apt-get install build-essential"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "The virtual environment could not be made. On Debian or Ubuntu: apt-get install python3-venv"; \
	  rm -rf $(VENV); exit 1; }
	@echo "Installing into $(VENV). The first time, building llama-cpp-python takes 4 to 7 minutes on two free cores."
	@( elapsed=0; while sleep $(HEARTBEAT_S) >/dev/null 2>&1; do elapsed=$$((elapsed + $(HEARTBEAT_S))); \
	     echo "  ... still installing, $$elapsed s so far"; done ) & heartbeat=$$!; \
	  trap 'kill $$heartbeat 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	  $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check -e '.[demo,torch,bench,caption,containers,microphone,dev]'
	@touch $(STAMP)
