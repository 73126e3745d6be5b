# From nothing: `make demo` shows Polyhead at work, `make test` proves it. `make` lists the rest.
# Needs GNU make 3.81 or newer, a POSIX shell and Python 3.11 or newer; all else goes into .venv.
# PYTHON=/path/to/python3 chooses the Python, TORCH=cu130 (cpu, plain, ...) the build of torch.

BIN := .venv/bin
PYTEST_ARGS ?=
SETUP = @$(BIN)/python -E -s tools/setup.py --check $(1) 2>/dev/null || \
	sh tools/with-python.sh tools/setup.py $(1)

.DEFAULT_GOAL := help
.PHONY: help setup dev demo test test-fast lint types walks format lock doctor clean

# the caller's settings for other Pythons must not reach ours
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## create or update .venv with torch and what polyhead needs
	$(call SETUP,)

dev: ## and what lint and tests need
	$(call SETUP,--dev)

demo: setup ## train a small translator, translate, and show its attention
	@$(BIN)/polyhead demo

test: lint types walks ## lint, types, walks and all tests
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

test-fast: dev ## unit tests only: no browser, no long training (about 90 seconds)
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser" $(PYTEST_ARGS)

lint: dev ## check code, format and wording
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/wording.py

types: dev ## check the types of the package
	$(BIN)/mypy

walks: dev ## count the functions that everyday commands enter, against their limits
	$(BIN)/python tools/walk.py --check

format: dev ## format all files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve pyproject.toml and write the locks
	@sh tools/with-python.sh tools/lock.py

doctor: ## describe this machine and what is missing
	@sh tools/with-python.sh tools/doctor.py

clean: ## remove .venv and all caches; runs/ stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
