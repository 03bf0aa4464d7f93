# The front door. Every target sets up what it needs in .venv; set-up is redone when a lock or
# pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--custom-compile-command "make lock" $(LOCK_FLAGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup reproduce evidence predictions curvature docs test slow integrations cluster attack versions same check format bench lock clean

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev ## Prepare .venv for development

reproduce: $(VENV)/.core ## Theory and networks of the paper on one page (core dependencies only)
	$(BIN)/batchlens reproduce

evidence: $(VENV)/.dev ## Measure what is missing of evidence/, for hours (SWEEP=digits WORKERS=2 TIME_BUDGET=3600)
	nice -n 19 $(BIN)/python -m evidence.run --workers $(or $(WORKERS),2) $(if $(SWEEP),--sweep $(SWEEP)) \
		$(if $(TIME_BUDGET),--time-budget $(TIME_BUDGET)) $(if $(MORE_SEEDS),--more-seeds $(MORE_SEEDS)) \
		$(if $(INTO),--into $(INTO))

predictions: $(VENV)/.dev ## Predict every sweep of evidence/ from one run each (SWEEP=digits: that one, again)
	$(BIN)/python -m evidence.predict_run $(if $(SWEEP),--sweep $(SWEEP))

curvature: $(VENV)/.dev ## Measure what is missing of the curvature of five networks, and write the page about them
	$(BIN)/python -m evidence.curvature_run --page report/curvature

docs: $(VENV)/.docs ## Build the documentation site into build/docs and check it, without a network (two minutes)
	$(BIN)/python -m sphinx -E -W --keep-going -n -q -j auto -d build/doctrees docs build/docs
	$(BIN)/python -m pytest -q docs/*.md docs/*/*.md
	$(BIN)/python -m pytest -q -m site tests/test_site.py

test: $(VENV)/.dev ## Run the tests and doctests, slow ones left out (ten minutes)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

slow: $(VENV)/.dev ## Run the slow tests
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m slow tests

integrations: build/integrations/.ready ## Run the callbacks in real trainers of Lightning and Hugging Face (two minutes)
	build/integrations/bin/python -m pytest -m integrations tests/integrations tests/test_pages.py

cluster: build/cluster/.ready ## Run sweeps on a Ray cluster of two nodes, one of which is killed (five minutes)
	build/cluster/bin/python -m pytest -m ray tests/sweep/test_ray.py

# Pythons on which `make versions` tries the wheel, and the tests that need neither torch nor minutes.
PYTHONS ?= python3.11 python3.12 python3.13
CORE_TESTS := tests/theory tests/scaling tests/report tests/test_shapes.py tests/test_optimizers.py tests/test_imports.py

versions: $(VENV)/.dev ## Build the wheel, install it and run the core tests on each of PYTHONS
	@rm -rf build/versions && $(BIN)/python -m pip wheel -qq --no-deps --wheel-dir build/versions .
	@set -e; for python in $(PYTHONS); do \
		echo "== $$($$python --version)"; \
		folder=build/versions/$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); $$python -m venv $$folder; \
		$$folder/bin/pip install -qq --disable-pip-version-check build/versions/*.whl \
			hypothesis 'mpmath<1.4' pytest pytest-xdist; \
		$$folder/bin/python -P -m pytest -q --numprocesses auto --dist loadfile -m "not slow" \
			-p no:cacheprovider $(CORE_TESTS); done

same: $(VENV)/.dev ## Compare the report's numbers and a sweep's winners with those of the commit REF
	$(BIN)/python benchmarks/same_numbers.py $(REF)

attack: $(VENV)/.dev ## Kills, damage and hostile input, for ten minutes (SEED=1: others)
	$(BIN)/python -m pytest -m attack tests/attack

check: $(VENV)/.dev ## Lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Format and apply the safe lint fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Run every benchmark
	@set -e; for file in $(sort $(wildcard benchmarks/bench_*.py)); do \
		echo "== $$file"; $(BIN)/python "$$file"; done

lock: $(VENV)/.dev ## Update the locks to pyproject.toml (LOCK_FLAGS=--upgrade: newest versions)
	$(UV_COMPILE) pyproject.toml --output-file requirements/core.txt
	$(UV_COMPILE) pyproject.toml requirements/torch.txt --extra train --group dev \
		--constraints requirements/core.txt --excludes requirements/left-out.txt \
		--output-file requirements/dev.txt
	$(UV_COMPILE) --group docs --constraints requirements/dev.txt --output-file requirements/docs.txt

clean: ## Remove .venv, caches and reports
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist report
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/.core: requirements/core.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"batchlens needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@echo "Setting up $(VENV): core"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --requirement requirements/core.txt
	@$(PIP_INSTALL) --no-deps --editable .
	@$(BIN)/python -m batchlens.theory._kernels
	@touch $@

$(VENV)/.dev: $(VENV)/.core requirements/torch.txt requirements/dev.txt
	@echo "Setting up $(VENV): torch and development tools"
	@$(PIP_INSTALL) --requirement requirements/torch.txt
	@$(PIP_INSTALL) --requirement requirements/dev.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.dev requirements/docs.txt
	@echo "Setting up $(VENV): documentation"
	@$(PIP_INSTALL) --requirement requirements/docs.txt
	@touch $@

# Other libraries have a folder of their own: what they ask for must not move the locks.
build/integrations/.ready build/cluster/.ready: build/%/.ready: requirements/core.txt requirements/torch.txt \
		requirements/%.txt pyproject.toml
	@echo "Setting up build/$*: what requirements/$*.txt names"
	@$(PYTHON) -m venv build/$*
	@for file in core torch $*; do \
		build/$*/bin/python -m pip install -qq --disable-pip-version-check \
			--requirement requirements/$$file.txt || exit 1; done
	@build/$*/bin/python -m pip install -qq --disable-pip-version-check --no-deps --editable .
	@touch $@
