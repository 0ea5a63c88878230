# Every target makes .venv from the lock files on first use; later it only checks that they are unchanged.
#   PYTHON=python3.12       the interpreter to make .venv with (else the first suitable one on PATH)
#   EXPERIMENT=micro        the experiment that `make demo` runs
#   WORKERS=4               test processes;  TEST_SLOW=1 adds the tests marked slow
EXPERIMENT ?= tiny-cpu
WORKERS ?= 2

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo ui test lint format lock clean core dev
MAKEFLAGS += --no-print-directory
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH
ifdef PYTHON
export PYTHON
endif

bin := .venv/bin

help: ## say what can be made
	@echo "arena_pipeline: from pinned data to a verdict. Usage:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: core ## run the whole lineage of EXPERIMENT (tiny-cpu) and print the verdict; a second run recomputes nothing
	@$(bin)/arena run --experiment $(EXPERIMENT)

ui: core ## open the Dagster UI on the same instance
	@$(bin)/arena ui

test: lint ## check style, types and import directions, then run the tests
	@echo "tests: $(WORKERS) at a time$(if $(TEST_SLOW), with the slow ones,)"
	@$(bin)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(if $(TEST_SLOW),-m "")

lint: dev ## check style, types and import directions only
	@$(bin)/ruff check --quiet .
	@$(bin)/ruff format --check --quiet .
	@$(bin)/mypy
	@$(bin)/lint-imports --no-logo

format: dev ## put the sources into the house style
	@$(bin)/ruff check --fix --quiet .
	@$(bin)/ruff format --quiet .

lock: dev ## write the lock files anew (UPGRADE=1: with the newest versions that fit)
	@scripts/lock.sh $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and every cache; never storage/ (runs, artifacts, the ledger) and never data/
	@rm -rf .venv build arena_pipeline.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find arena_pipeline arena_pipeline_tests -name __pycache__ -type d -prune -exec rm -rf {} +

core dev:
	@scripts/environment.sh $@
