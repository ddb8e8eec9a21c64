"""Coverage-guided fuzzing of one reader, where the package atheris is installed.

``python -m tests.fuzz.atheris_readers READER [libFuzzer options] [corpus]``: READER is a module
of neuron_tb.converters.readers, an option for example ``-max_total_time=60``. It ends with an
error at the first input that breaks a promise.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fuzz.seeds import SEEDS


def main() -> None:
    """Run until libFuzzer's limits are reached."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed; the hypothesis tests beside this file do not need it.")
    reader = sys.argv.pop(1)
    with atheris.instrument_imports(include=["neuron_tb"]):
        import_module("neuron_tb.converters.load")
        for module in (*SEEDS, "repair", "gunzip"):
            import_module(f"neuron_tb.converters.readers.{module}")
        target = import_module("tests.fuzz.target")
    seeds = SEEDS[reader]()
    names = sorted({seed.name for seed in seeds})

    def read(data: bytes) -> None:
        # The first byte chooses among the names, so that the corpus serves them all.
        target.read(data[1:], names[data[0] % len(names)] if data else names[0])

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            Path(folder, str(number)).write_bytes(bytes([names.index(seed.name)]) + seed.data)
        atheris.Setup([sys.argv[0], *sys.argv[1:], folder], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
