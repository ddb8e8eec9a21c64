"""What every fuzzer calls: read bytes as a file, and hold the reader to its promises."""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import neuron_tb
from neuron_tb import NeuronTbError
from neuron_tb.analysis.roofline import roofline
from neuron_tb.converters.running.merge import merge

_SECONDS_PER_MEGABYTE = 5
_FREE_MEMORY = 200 << 20
_TIMES_CONTENT = 20


def load(path: Path) -> None:
    """What every command does with a capture; device profiles have figures besides."""
    list(neuron_tb.load(path).findings)
    with suppress(NeuronTbError):
        roofline(path)


def join(folder: Path) -> None:
    """What ``merge`` does with the folders of two ranks."""
    merge(folder / "rank0", folder / "rank1", out=folder / "merged")


def read(
    data: bytes,
    name: str = "trace.json",
    beside: Mapping[str, bytes] | None = None,
    operation: Callable[[Path], None] = load,
) -> None:
    """Fails on any exception but NeuronTbError, on a hang, and on too much memory."""
    files = {**(beside or {}), name: data}
    content = sum(max(len(text), _unpacked(text)) for text in files.values())
    limit = _SECONDS_PER_MEGABYTE * max(1, content >> 20)
    with tempfile.TemporaryDirectory() as folder:
        for place, text in files.items():
            path = Path(folder, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        before, started = _most_memory(), time.process_time()
        with _interrupted_after(limit):
            try:
                operation(Path(folder) if beside else Path(folder, name))
            except NeuronTbError as error:
                text = str(error)
                assert "\n" not in text, text
        spent = time.process_time() - started
        grown = _most_memory() - before
    assert spent < limit, f"{spent:.1f} s"
    assert grown < _TIMES_CONTENT * content + _FREE_MEMORY, f"{grown:,} bytes"


def _unpacked(data: bytes) -> int:
    """The size of the content of gzip, as far as it goes; 0 for everything else."""
    unpacker = zlib.decompressobj(31)
    try:
        return len(unpacker.decompress(data, 1 << 28))
    except zlib.error:
        return 0


def _most_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """An endless loop becomes a failure: by processor time, so that a busy machine makes none."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
