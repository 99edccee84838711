# Each target sets up what it needs. PYTHON is any Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: serve test prepare check bench fast clean

serve: $(VENV)/installed
	$(BIN)/emubus serve $(ARGS)

test: $(VENV)/installed
	$(MAKE) --jobs 2 check prepare
	$(BIN)/pytest -n 10 --dist worksteal -m sdk $(ARGS)
	$(BIN)/pytest -n 4 --dist loadgroup -m "not sdk" $(ARGS)

prepare: $(VENV)/installed
	$(BIN)/python -m tests.prepare

fast: $(VENV)/installed
	$(BIN)/pytest -m "not sdk and not slow" $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright

bench: $(VENV)/installed
	$(BIN)/python bench/run.py $(ARGS)

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-* build *.egg-info .mypy_cache .ruff_cache .pytest_cache
