# `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PY := $(CURDIR)/.venv/bin/python
BIN := $(CURDIR)/.venv/bin
# AutoScheduler's TVM and MetaSchedule's never share a process; this prefix picks the first.
ANSOR := PYTHONPATH=$(CURDIR)/.venv/tvm-ansor
PYTEST := $(PY) -m pytest -m "not slow"
OUT ?= work
ARGS ?=

.PHONY: help setup lint test test-unit test-backend test-meta test-slow \
	bench-cpu bench-cpu-full bench-gpu train-sample train-x86 collect offline clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | \
	    while IFS=$$'\t' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

setup: ## .venv with everything in it; does nothing when it is up to date
	@scripts/setup.sh

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup lint test-unit test-backend test-meta ## set-up, lint and every test that is not slow

test-unit: setup ## tests that need no TVM
	$(PYTEST) tests/unit

test-backend: setup ## tests with AutoScheduler's TVM
	$(ANSOR) $(PYTEST) $(wildcard tests/backend tests/integration)

test-meta: setup ## tests with MetaSchedule's TVM
ifneq ($(wildcard tests/meta),)
	$(PYTEST) tests/meta
endif

test-slow: setup ## the slow tests, all folders
	$(PY) -m pytest -m slow tests/unit || test $$? -eq 5
	$(ANSOR) $(PY) -m pytest -m slow $(wildcard tests/backend tests/integration) || test $$? -eq 5
ifneq ($(wildcard tests/meta),)
	$(PY) -m pytest -m slow tests/meta || test $$? -eq 5
endif

clean: ## caches and build artefacts; leaves .venv and work/ alone
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .pkl_memoize_py3
	find wmsched data_builder benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
