# From nothing: `make demo` shows Polyhead at work, `make test` proves it. `make` lists the rest.
# Needs GNU make 3.81 or newer, a POSIX shell and Python 3.11 or newer; all else goes into .venv.
# PYTHON=/path/to/python3 chooses the Python, TORCH=cu130 (cpu, plain, ...) the build of torch.

BIN := .venv/bin
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types format lock doctor clean

# what the caller's shell says about other Pythons must not reach ours
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

# the first half takes a few hundredths of a second, and is all there is to do the second time
setup: ## make .venv with torch and all packages, or bring it up to date
	@$(BIN)/python -E -s -S tools/stamp.py 2>/dev/null || sh tools/with-python.sh tools/bootstrap.py

demo: setup ## train a small translator, translate, and look at its attention
	@$(BIN)/polyhead demo

test: setup ## everything that must hold: lint, format, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: setup ## look for mistakes and for lines that `make format` would change
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check the types of the package
	$(BIN)/mypy

format: setup ## put all files into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve pyproject.toml anew and write requirements.lock
	@sh tools/with-python.sh tools/lock.py

doctor: ## explain this machine: what is here, what is wrong, what to do
	@sh tools/with-python.sh tools/doctor.py

clean: ## remove .venv and all caches; runs/ stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
