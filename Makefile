# Everything from a fresh machine that has Python 3.11 (or newer), pip and make:
#   make demo    makes .venv, installs waycode into it and runs the demo
#   make studio  the same, and opens the studio: plan by clicking, in the browser
#   make test    makes .venv, installs the development tools too and runs every check and test

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
MINUTES ?= 30
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMMONROAD := commonroad-io==2026.1 protobuf==3.20.2 lxml iso3166 omegaconf

.PHONY: demo studio test check docs commonroad format clean fuzz wheel lock help

help:
	@sed -n 's/^#   //p' Makefile
	@echo "make check   every check but the tests"
	@echo "make docs    writes the documentation site to build/site"
	@echo "make fuzz    reads damaged input for MINUTES=30"
	@echo "make wheel   builds the wheel and tries it in an empty environment"
	@echo "make lock    writes requirements-dev.lock"
	@echo "make format  formats and mends what ruff can mend"
	@echo "make clean   removes .venv and everything that was made"

# Stamps: an empty file for each installation that is done; pyproject.toml is newer than it when it must be done again.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
		f"waycode needs Python 3.11 or newer, {sys.executable} is {v[0]}.{v[1]}: try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.made
	$(PIP) install --editable '.[studio]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.made
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/waycode demo
	@echo "To go on:"
	@echo "  . $(BIN)/activate"
	@echo "  waycode plan sample-crossings --index 2 --objective left-turn --out plan.png"
	@echo "  waycode studio"
	@echo "  waycode --help"

studio: $(VENV)/.installed
	$(BIN)/waycode studio

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A test builds the site too. The variable silences an advertisement of the next version.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# commonroad-io needs a protobuf that the extra womd does not run with: it gets a folder that one test puts on its path.
build/commonroad/.installed: Makefile $(VENV)/.made
	rm -rf build/commonroad
	$(PIP) install --no-deps --target build/commonroad $(COMMONROAD)
	@touch $@

commonroad: build/commonroad/.installed

test: check commonroad
	$(BIN)/pytest -n $(JOBS)

# The wheel must hold all that it needs: it is tried in an environment and a folder that know nothing of this one.
wheel: $(VENV)/.made
	rm -rf build/wheel dist && $(PIP) wheel --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check --quiet install dist/waycode-*.whl
	cd build && wheel/bin/waycode --version && wheel/bin/waycode data check sample
	cd build && wheel/bin/waycode doctor
	cd build && wheel/bin/waycode demo --out wheel/demo

lock: $(VENV)/.made
	@mkdir -p build
	$(PIP) install --dry-run --ignore-installed --report build/report.json '.[dev]'
	$(BIN)/python .ci/lock.py build/report.json requirements-dev.lock

fuzz: $(VENV)/.installed-dev
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist waycode-demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
