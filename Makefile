# What people run; CI runs the same targets (.ci/run).
#   make demo    train a tiny BERT on generated data, on this machine
#   make test    all tests
#   make parity-full   every model and schedule in every layout against one process, which takes hours
#   make lint    formatting, types, protos
#   make proto   regenerate the stubs after a change to proto/takt/v1/*.proto

VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Stamps: an environment is made again when what it was made from has changed.
RUN_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
DECLARED := pyproject.toml constraints.txt

# Each of these starts all services and takes every core: one after the other, when the others are done.
SERVICES := tests/integration/services

.PHONY: demo test parity-full lint proto

demo: $(RUN_STAMP)
	@$(BIN)/takt run deploy/jobs/demo.yaml

test: $(DEV_STAMP)
	$(BIN)/python -m pytest tests/unit --numprocesses auto --dist worksteal
	$(BIN)/python -m pytest tests --ignore tests/unit --ignore $(SERVICES) --numprocesses auto --dist worksteal
	$(BIN)/python -m pytest $(SERVICES)

parity-full: $(DEV_STAMP)
	TAKT_PARITY=full $(BIN)/python -m pytest tests/integration/parity

lint: $(DEV_STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cd proto && $(abspath $(BIN))/buf lint
	$(BIN)/python proto/generate.py --check

proto: $(DEV_STAMP)
	$(BIN)/python proto/generate.py

$(RUN_STAMP): $(DECLARED)
	@echo "Installing Takt into $(VENV); the first time this takes a few minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable .
	@touch $@

$(DEV_STAMP): $(DECLARED)
	@echo "Installing Takt with its test and development tools into $(VENV)."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable '.[test,dev]'
	@touch $(RUN_STAMP) $@
