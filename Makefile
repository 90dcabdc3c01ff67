# make setup | demo | check | services | bench | clean
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo check lint types test services bench clean
.DELETE_ON_ERROR:

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "headrace: setting up $(VENV) (fetches about 3 GB once; torch is the large part)"
	@command -v $(PYTHON) >/dev/null || { echo "headrace: needs Python 3.11 as '$(PYTHON)'; say PYTHON=/path/to/python3.11 make ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/headrace doctor --warm
	@touch $@

demo: setup
	@$(BIN)/headrace demo

check: setup lint types test

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

test:
	$(BIN)/python -m pytest

services: setup
	$(BIN)/python -m dev.services up

bench: setup
	$(BIN)/python -m benchmarks log_embedded
	$(BIN)/python -m benchmarks featurize
	$(BIN)/python -m benchmarks chain

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
