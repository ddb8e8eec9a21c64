"""Coverage-guided fuzzing of one reader, where the package atheris is installed.

``python -m tests.fuzz.atheris_readers READER [libFuzzer options] [corpus]``: READER is a key
of ``tests.fuzz.seeds.SEEDS``, an option for example ``-max_total_time=60``. It ends with an
error at the first input that breaks a promise.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fuzz.seeds import RESULTS, SEEDS


def main() -> None:
    """Run until libFuzzer's limits are reached."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed; the hypothesis tests beside this file do not need it.")
    reader = sys.argv.pop(1)
    with atheris.instrument_imports(include=["neuron_tb"]):
        import_module("neuron_tb.converters.load")
        readers = import_module("neuron_tb.converters.readers")
        known = [form.module.lstrip(".") for form in readers.FORMATS]
        for module in (*known, "json.repair.document", "json.gunzip"):
            import_module(f"neuron_tb.converters.readers.{module}")
        target = import_module("tests.fuzz.target")
    seeds = SEEDS[reader]()
    operation = target.join if reader == RESULTS else target.load

    def read(data: bytes) -> None:
        # The first byte chooses among the seeds' names, so that the corpus serves them all.
        seed = seeds[data[0] % len(seeds) if data else 0]
        target.read(data[1:], seed.name, seed.beside, operation)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds):
            Path(folder, str(number)).write_bytes(bytes([number]) + seed.data)
        atheris.Setup([sys.argv[0], *sys.argv[1:], folder], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
