# Each target sets up what it needs. PYTHON is any Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := tests/sdk tests/examples # wait for builds, then mostly for their servers
HEAVY := tests/spark tests/web # more than one processor, or a browser
LONG := $(addprefix tests/,crash attack codec amqp broker commands http operations refusals storage web spark/codec \
	spark/acceptance sdk examples/test_languages.py emubus/test_damaged_folders.py emubus/test_data_folder.py \
	emubus/test_config_schema.py)
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode
.PHONY: serve test test-heavy test-clients test-parts test-long long-tests real-disks kill-rounds simulation try-dist conformance prepare check bench fast dist moving-picture site clean
serve: $(VENV)/served
	$(BIN)/emubus serve $(ARGS)
test: # installs beside the builds
	$(MAKE) --jobs 4 --output-sync test-heavy test-clients test-parts check
	@$(BIN)/python -m tests.prepare --report
test-heavy: prepare $(VENV)/collected # comes first: Spark gives a worker ten seconds to start
	$(BIN)/pytest -n 3 --dist loadgroup $(HEAVY) $(ARGS)
test-clients: prepare $(VENV)/collected
	nice -n 5 $(BIN)/pytest -n 6 --dist loadgroup $(CLIENTS) $(ARGS)
test-parts: $(VENV)/collected # takes what the others leave of the machine
	nice -n 7 $(BIN)/pytest -n 5 --dist worksteal $(addprefix --ignore=,$(CLIENTS) $(HEAVY)) $(ARGS)
test-long: long-tests real-disks kill-rounds simulation try-dist conformance # hours
long-tests: $(VENV)/installed # long forms of the tests that try by chance
	EMUBUS_TEST_LONG=1 $(BIN)/pytest -n 2 $(LONG) $(ARGS)
real-disks: $(VENV)/installed # file systems that are full, frozen, aborted, gone; as root
	unshare --mount $(BIN)/python -m tests.crash.real_disks $(ARGS)
kill-rounds: $(VENV)/installed # the broker and Spark's processes, killed a thousand times
	$(BIN)/python -m tests.crash.namespace_rounds --rounds 1000
	$(BIN)/python -m tests.spark.acceptance.kill_rounds
	$(BIN)/python -m tests.spark.acceptance.cluster_kills
simulation: $(VENV)/installed # the namespace against a model: ten million commands
	$(BIN)/python -m tests.broker.namespace_simulation --commands 10000000 --jobs 2
try-dist: dist # from the wheels to the first message
	release/try
conformance: $(VENV)/installed # suites that others wrote: docs/CONFORMANCE.md
	$(BIN)/python -m tests.conformance $(ARGS)
prepare: $(BIN)/python ; $(BIN)/python -m tests.prepare
fast: $(VENV)/installed
	$(BIN)/pytest -m "not sdk and not slow" $(ARGS)
check: $(VENV)/installed # with 64 MB for new objects, pyright collects less garbage
	nice -n 5 sh -c '$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && NODE_OPTIONS=--max-semi-space-size=64 $(BIN)/pyright'
bench: $(VENV)/installed ; $(BIN)/python bench/run.py $(ARGS)
dist: $(VENV)/installed ; PYTHON=$(BIN)/python release/dist $(ARGS) # wheels for machines without a compiler
moving-picture: $(VENV)/installed ; $(BIN)/python -m docs.generate.moving_picture # of the README
site: $(VENV)/site # the documents, with search
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
$(BIN)/python:
	@$(PYTHON) tests/can_build.py
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --upgrade pip
$(VENV)/installed: pyproject.toml $(wildcard amqp/wire/*.c broker/message/*.c codec/*.c storage/journal/*.c) | $(BIN)/python
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]' && touch $@
$(VENV)/served: pyproject.toml $(wildcard amqp/wire/*.c broker/message/*.c codec/*.c storage/journal/*.c) | $(BIN)/python # the product alone
	$(BIN)/pip install --quiet --no-compile --editable . && touch $@
$(VENV)/site: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --no-compile --editable '.[site]' && touch $@
$(VENV)/collected: $(VENV)/installed # compiles all tests once, before many processes do it at a time
	$(BIN)/pytest --collect-only -qq > $@.new && mv $@.new $@
clean:
	rm -rf $(VENV) .venv-* build *.egg-info .mypy_cache .ruff_cache .pytest_cache
