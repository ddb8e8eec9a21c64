"""Coverage-guided fuzzing of the JSON readers, where the package atheris is installed.

``python -m tests.fuzz.atheris_readers [libFuzzer options] [corpus]``, for example
``-max_total_time=60``. It ends with an error at the first input that breaks a promise.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Run until libFuzzer's limits are reached."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed; the hypothesis tests in tests/fuzz need it not.")
    with atheris.instrument_imports(include=["neuron_tb"]):
        from tests.fuzz import target
    atheris.Setup(sys.argv, target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
