# Everything runs in a virtual environment of its own, made on first use:
#
#     make demo      AWS's RMSNorm example: table, TensorBoard, Perfetto
#     make test      all tests; browser tests skip without Chromium
#     make fast      the tests that take no time
#     make lint      ruff and mypy
#     make matrix    the tests on Python 3.10 and 3.13, and on old and new protobuf

PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/pip install --quiet --disable-pip-version-check
METADATA = setup.cfg pyproject.toml constraints.txt

.PHONY: demo test fast lint matrix clean

demo: $(VENV)/.demo
	$(VENV)/bin/neuron-tb demo demo

test: $(VENV)/.test
	$(VENV)/bin/python -m pytest

fast: $(VENV)/.test
	$(VENV)/bin/python -m pytest -m "not slow and not browser"

lint: $(VENV)/.test
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

matrix:
	.ci/matrix

clean:
	rm -rf $(VENV) .venv-* build *.egg-info

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/.demo: $(METADATA) | $(VENV)/bin/pip
	$(PIP) --editable '.[tensorboard,offline]'
	touch $@

$(VENV)/.test: $(METADATA) | $(VENV)/bin/pip
	$(PIP) --constraint constraints.txt --editable '.[tensorboard,offline,test]'
	touch $@ $(VENV)/.demo
