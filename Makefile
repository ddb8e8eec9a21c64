# Each target does everything a fresh machine needs, given Python 3.10 to 3.13 and, for the tests,
# g++. What is installed lands in .venv; a second run installs nothing.
#
# The tests use PyTorch on the CPU. On Linux, PyPI's torch is a CUDA build of several gigabytes;
# to take the small one:
#
#     export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

# The first Python on PATH that is neither too old nor too new; PYTHON=... names another.
PYTHON ?= $(firstword $(foreach python,python3 python3.13 python3.12 python3.11 python3.10,\
	$(shell $(python) -c 'import sys; \
	(3, 10) <= sys.version_info < (3, 14) and print("$(python)")' 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WHAT_TO_INSTALL := setup.cfg pyproject.toml constraints.txt

PYTEST_ARGS ?=

.PHONY: demo test lint format matrix robust fuzz bench bench-quick pictures docs clean

demo: $(VENV)/viewers.stamp
	$(BIN)/neuron-tb demo demo/

test: $(VENV)/tests.stamp
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/tests.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

format: $(VENV)/tests.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The tests on the oldest and the newest Python, and with the oldest and the newest protobuf.
matrix:
	$(or $(PYTHON),$(error no Python 3.10 to 3.13 on PATH)) tests/matrix.py

# 2,000 seeded damages of JSON samples: what is intact must be read, nothing invented or lost
# without a finding.
robust: $(VENV)/tests.stamp
	$(BIN)/python -m tests.robust.measure 2000

# Every reader with made-up input, a minute each by hypothesis and by atheris, two at a time.
fuzz: $(VENV)/tests.stamp
	NEURON_TB_FUZZ=60 $(BIN)/python -m pytest tests/fuzz

# How long conversions of a million events take and what memory they need, beside json.load and
# other programs: half an hour.
bench: $(VENV)/bench.stamp
	$(BIN)/python -m benchmarks --json benchmarks.json

# The same for 200,000 events, a minute; fails where a number is over its bar by half.
bench-quick: $(VENV)/tests.stamp
	$(BIN)/python -m benchmarks --quick

# The README's pictures, made anew, two of them by the browser tests; needs Chromium.
pictures: $(VENV)/tests.stamp
	$(BIN)/neuron-tb roofline samples/engines --plot docs/images/roofline.png
	NEURON_TB_SCREENSHOTS=docs/images $(BIN)/python -m pytest -m browser

# The documentation's site, into site/; a link that leads nowhere is an error.
docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) .venv-matrix build dist demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(or $(PYTHON),$(error no Python 3.10 to 3.13 on PATH)) -m venv $(VENV)
	$(PIP) install -qq --upgrade pip

$(VENV)/viewers.stamp: $(BIN)/python $(WHAT_TO_INSTALL)
	$(PIP) install -qq --constraint constraints.txt --editable '.[tensorboard,offline]'
	touch $@

$(VENV)/bench.stamp: $(VENV)/tests.stamp
	$(PIP) install -qq --constraint constraints.txt --editable '.[bench]'
	touch $@

$(VENV)/docs.stamp: $(BIN)/python $(WHAT_TO_INSTALL)
	$(PIP) install -qq --constraint constraints.txt --editable '.[docs]'
	touch $@

$(VENV)/tests.stamp: $(BIN)/python $(WHAT_TO_INSTALL)
	$(PIP) install -qq --constraint constraints.txt --editable '.[tensorboard,offline,test]'
	touch $@
