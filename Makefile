# toolcell: `make run` and `make test` work on a machine that has Python 3.11 and make.

VENV ?= .venv
# Empty: python3 if it is 3.11 or newer, else the newest of python3.13 to python3.11.
PYTHON ?=
export PYTHON
# For example: make test ARGS="tests/unit -x"
ARGS ?=

.PHONY: bench containment docs external soak help run test lint format types contracts wheel check clean install install-dev

help:
	@echo "make run        install into .venv, then a tour: real calls, hostile calls, how each ended"
	@echo "make test       install the tools for development too, then run the tests (ARGS=...)"
	@echo "make check      all that CI asks: lint types contracts docs test wheel"
	@echo "make docs       the guides and the reference, into site/; a warning is an error"
	@echo "make external   other people's suites: Inspect's checks of any sandbox provider"
	@echo "make containment  the whole matrix of attacks; as root, once more as a user without rights"
	@echo "make bench      calls beside other sandboxes (PEERS=folder, docs/benchmarks.md); kills, decisions, and the rest, as ratios"
	@echo "make soak       transactions killed at 300 random points, each found whole again"
	@echo "make format     let ruff lay out the code"
	@echo "make clean      remove what these made"

install:
	@scripts/develop.sh run $(VENV)

install-dev:
	@scripts/develop.sh dev $(VENV)

run: install
	$(VENV)/bin/toolcell tour

test: install-dev
	$(VENV)/bin/python -m pytest -n auto --dist loadfile $(ARGS)

external: install-dev
	$(VENV)/bin/python -m pytest -n auto --dist loadfile tests/external $(ARGS)

containment: install-dev
	scripts/containment.sh $(VENV)/bin/python $(ARGS)

lint: install-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: install-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: install-dev
	$(VENV)/bin/mypy

contracts: install-dev
	$(VENV)/bin/lint-imports --no-logo

docs: install-dev
	$(VENV)/bin/mkdocs build

bench: install-dev
	$(VENV)/bin/python tests/bench/kill.py $(ARGS)
	$(VENV)/bin/python tests/bench/transactions.py
	$(VENV)/bin/python tests/bench/decisions.py
	$(VENV)/bin/python tests/bench/rules.py
	$(VENV)/bin/python tests/bench/shell.py
	$(VENV)/bin/python tests/bench/audit.py
	$(VENV)/bin/python tests/bench/registry.py
	$(VENV)/bin/python -m tests.bench.calls --quick $(if $(PEERS),--peers $(PEERS))

soak: install-dev
	$(VENV)/bin/python tests/soak/transactions.py --kills 300 $(ARGS)
	$(VENV)/bin/python tests/soak/paths.py --checks 10000

wheel: install-dev
	rm -rf dist
	$(VENV)/bin/python -m build $(if $(shell command -v uv),--installer=uv) --outdir dist .
	scripts/try_wheel.sh dist/*.whl

check: lint types contracts docs test wheel

clean:
	rm -rf $(VENV) dist build site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
