"""Fixtures that every test file may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import neuron_tb.samples

try:
    from hypothesis import settings
except ImportError:
    pass
else:
    # In continuous integration the same tries each time: what fails there can be tried again.
    settings.register_profile("ci", derandomize=True, deadline=None)
    if os.environ.get("CI"):
        settings.load_profile("ci")


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of synthetic captures that ships with the package."""
    return Path(neuron_tb.samples.__file__).resolve().parent


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of shared test inputs; tests that need it skip where it is not given."""
    folder = os.environ.get("NEURON_TB_CASES")
    if not folder:
        pytest.skip("set NEURON_TB_CASES to the folder of test inputs")
    return Path(folder)
