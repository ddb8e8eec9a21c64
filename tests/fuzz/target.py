"""What every fuzzer calls: read bytes as a file, and hold the reader to its promises."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import neuron_tb
from neuron_tb import NeuronTbError

_SECONDS_PER_MEGABYTE = 5
_FREE_MEMORY = 200 << 20
_TIMES_INPUT = 20


def read(data: bytes, name: str = "trace.json") -> None:
    """Fails on any exception but NeuronTbError, on a hang, and on too much memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        before, started = _most_memory(), time.process_time()
        try:
            trace = neuron_tb.load(path)
            list(trace.findings)
        except NeuronTbError as error:
            text = str(error)
            assert "\n" not in text, text
        spent = time.process_time() - started
        grown = _most_memory() - before
    assert spent < _SECONDS_PER_MEGABYTE * max(1, len(data) >> 20), f"{spent:.1f} s"
    assert grown < _TIMES_INPUT * len(data) + _FREE_MEMORY, f"{grown:,} bytes"


def _most_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
