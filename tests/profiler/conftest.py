"""Every test here starts PyTorch in a process of its own, which takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.name != "test_options.py":
            item.add_marker(pytest.mark.slow)
