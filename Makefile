# The commands of a contributor. `make` lists them. PYTHON names the interpreter of the environment to use.
PYTHON ?= python3
PYTEST_ARGS ?= -n auto --dist loadfile
CONSTRAINTS ?= -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install format check test docs

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install:  ## Install for development: every extra, the tests' tools, the native engine
	$(PYTHON) -m pip install $(CONSTRAINTS) -e '.[dev]'

format:  ## Format the code and fix what ruff can fix
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

check:  ## Check format, lint and types
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy

test:  ## Run all tests, one process per core
	$(PYTHON) -m pytest $(PYTEST_ARGS)

docs:  ## Regenerate the generated pages of the documentation
	$(PYTHON) .ci/configuration_page.py > docs/configuration.md
	$(PYTHON) .ci/configuration_page.py zh > docs/configuration.zh-CN.md
	$(PYTHON) .ci/configuration_page.py zh > docs/configuration.zh-CN.md
	$(PYTHON) .ci/paper_results_page.py > docs/paper/results.md
	$(PYTHON) .ci/paper_results_page.py zh > docs/paper/results.zh-CN.md
	$(PYTHON) .ci/bundled_model_page.py
	$(PYTHON) .ci/classical_page.py
	$(PYTHON) .ci/architecture_page.py
